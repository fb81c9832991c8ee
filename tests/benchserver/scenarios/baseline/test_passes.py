"""One sequence under way, and many: real bytes, a scripted server, virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.dropped import DroppedAccount
from benchserver.check.judging import judge
from benchserver.check.verdict import Finding, Verdict
from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.errors import ServerSilentError
from benchserver.history import (
    EndRecord,
    EvidenceRecord,
    LookupRecord,
    Outcome,
    SequenceRecord,
    SourceRecord,
    Step,
    TransferRecord,
)
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.verify import verify
from benchserver.scenarios.baseline.checks import JUDGES
from benchserver.scenarios.baseline.passes import Passes, Setting
from benchserver.scenarios.baseline.plan import PROBES, REUSED_SOURCE, SKIPPED_TOKENS, Pass
from benchserver.scenarios.baseline.probes import probes_made
from benchserver.scenarios.baseline.scenario import findings_on, sequences_of, settings_of
from benchserver.scenarios.baseline.sequences import Sequences
from benchserver.stage.condition import Condition
from protocol.counters import Counters
from protocol.keys import CacheKey
from protocol.messages import TransferResult
from protocol.ops import Op
from tests.benchserver.scenarios.conftest import MakeStage
from tests.benchserver.scenarios.honest import NONCE, Played

REFUSED = TransferResult(event=b"", ok=False)


def ready(played: Played) -> tuple[Sequences, Setting]:
    (setting,) = settings_of(played.asked, played.stage, DroppedAccount(None))
    return sequences_of(played.asked, setting.crew, played.stage), setting


async def run_one(played: Played, seq: int = 0) -> SequenceRecord:
    sequences, setting = ready(played)
    record, fatal = await Passes(setting, sequences.plan(seq)).run()
    assert fatal is None
    return record


def bad(record: SequenceRecord) -> list[Finding]:
    return [f for f in judge(record, JUDGES) if f.verdict is not Verdict.VALID]


def named(steps: tuple[Step, ...]) -> list[str]:
    """Return the steps by name: LOOKUPs by what they are for, the proof by its kind."""
    return [
        step.which
        if isinstance(step, LookupRecord)
        else step.name
        if isinstance(step, TransferRecord | EndRecord)
        else type(step).__name__
        for step in steps
    ]


@pytest.mark.asyncio
async def test_a_sequence_is_stored_found_retrieved_and_proven(make_stage: MakeStage) -> None:
    played = make_stage(tp_size=2)
    record = await run_one(played, seq=3)
    assert bad(record) == []
    assert record.probes == frozenset()
    assert named(record.steps) == [
        "cold",
        *["STORE"] * 2,
        "END_SESSION",
        "warm",
        *["RETRIEVE"] * 2,
        "END_SESSION",
        *["EvidenceRecord"] * 2,
        *["SourceRecord"] * 2,
    ]
    assert [(label, step) for label, step in played.told.steps] == [
        ("seq=3", step) for step in record.steps
    ]
    assert (record.began_ns, record.ended_ns) == (0, played.clock.now_ns())


@pytest.mark.asyncio
async def test_the_first_sequence_makes_every_probe(make_stage: MakeStage) -> None:
    played = make_stage()
    record = await run_one(played)
    assert record.probes == frozenset(PROBES)
    assert bad(record) == []
    assert probes_made(record) == frozenset(PROBES)
    assert not record.overwritten
    # Its source holds its content again.
    pool = played.stage.crews[0].workers[0].pool
    sequences, _ = ready(played)
    plan = sequences.plan(0)
    seen = verify(pool, plan.plans[0].source, plan.digests, ())
    assert seen.kind is EvidenceKind.MATCH


@pytest.mark.asyncio
async def test_a_later_source_stays_overwritten_and_the_server_has_what_it_held(
    make_stage: MakeStage,
) -> None:
    played = make_stage()
    record = await run_one(played, seq=2)
    assert record.probes == {REUSED_SOURCE}
    assert record.overwritten
    assert bad(record) == []


@pytest.mark.asyncio
async def test_instants_are_those_of_the_clock(make_stage: MakeStage) -> None:
    """Every call takes one millisecond: LOOKUP and its query two."""
    record = await run_one(make_stage(), seq=3)
    calls = [s for s in record.steps if isinstance(s, LookupRecord | TransferRecord | EndRecord)]
    spans = [(s.name, s.began_ns // NS_PER_MS, s.ended_ns // NS_PER_MS) for s in calls]
    assert spans == [
        ("LOOKUP", 0, 2),
        ("STORE", 2, 3),
        ("END_SESSION", 3, 4),
        ("LOOKUP", 4, 6),
        ("RETRIEVE", 6, 7),
        ("END_SESSION", 7, 8),
    ]
    warm = record.lookup(Pass.WARM)
    assert warm is not None
    assert (warm.stored_ns, warm.lag_ns) == (3 * NS_PER_MS, 3 * NS_PER_MS)


@pytest.mark.asyncio
async def test_many_sequences_at_once_each_have_a_record_of_their_own(
    make_stage: MakeStage,
) -> None:
    """Four that use different places of the pool; what each is told is of itself alone."""
    played = make_stage(spec="(2,128,16,1,8):float16:2", end=None)
    sequences, setting = ready(played)
    numbers = (3, 4, 67, 68)  # two places in each of two batches
    plans = [sequences.plan(seq) for seq in numbers]
    used = [set(p.plans[0].source.block_ids) | set(p.plans[0].destination.block_ids) for p in plans]
    assert len(set().union(*used)) == sum(map(len, used))
    lone = [await run_one(make_stage(spec="(2,128,16,1,8):float16:2"), seq) for seq in numbers]

    played.server.visible_after_ns = 0
    ended = await asyncio.gather(*(Passes(setting, plan).run() for plan in plans))

    records = [record for record, _ in ended]
    assert [fatal for _, fatal in ended] == [None] * 4
    assert [record.seq for record in records] == list(numbers)
    for record, alone in zip(records, lone, strict=True):
        assert bad(record) == []
        # The same steps, in the same order, as if it had run alone.
        assert named(record.steps) == named(alone.steps)
        assert [step for label, step in played.told.steps if label == record.label] == list(
            record.steps
        )
    steps = [id(step) for record in records for step in record.steps]
    assert len(set(steps)) == len(steps)
    requests = [
        {s.request_id for s in record.steps if isinstance(s, EndRecord)} for record in records
    ]
    assert all(requests)
    assert len(set().union(*requests)) == sum(map(len, requests))
    # They were under way together: each began before the first ended.
    assert max(r.began_ns for r in records) < min(r.ended_ns for r in records)
    ops = played.connection.ops
    assert ops.index(Op.RETRIEVE) > max(i for i, op in enumerate(ops) if op is Op.STORE) - 4
    assert played.stage.crews[0].desk.open_requests == {}


@pytest.mark.asyncio
async def test_one_that_fails_beside_others_fails_alone(make_stage: MakeStage) -> None:
    played = make_stage(spec="(2,128,16,1,8):float16:2", end=None)
    sequences, setting = ready(played)
    plans = [sequences.plan(seq) for seq in (3, 4, 67)]
    honest = played.server.store

    def refuse_one(key: CacheKey, *rest: Any) -> object:
        refused = key.request_id == f"bs-{NONCE}-4-cold"
        return REFUSED if refused else honest(key, *rest)

    played.server.answers[Op.STORE] = refuse_one
    records = [
        record for record, _ in await asyncio.gather(*(Passes(setting, p).run() for p in plans))
    ]
    assert [bool(bad(record)) for record in records] == [False, True, False]
    assert "STORE answered False" in bad(records[1])[0].text


@pytest.mark.asyncio
async def test_a_store_is_looked_for_until_it_is_visible(make_stage: MakeStage) -> None:
    played = make_stage()
    played.server.visible_after_ns = 50 * NS_PER_MS
    record = await run_one(played, seq=3)
    assert bad(record) == []
    warm = record.lookup(Pass.WARM)
    assert warm is not None
    assert warm.attempts > 3
    assert 50 * NS_PER_MS <= warm.lag_ns < 80 * NS_PER_MS
    # Lookups that missed are ended, and not told of.
    assert played.connection.ops.count(Op.LOOKUP) == 1 + warm.attempts
    assert named(record.steps).count("END_SESSION") == 2
    assert played.stage.crews[0].desk.open_requests == {}


@pytest.mark.asyncio
async def test_a_store_that_never_becomes_visible_is_given_up_in_time(
    make_stage: MakeStage,
) -> None:
    played = make_stage(visible_within_s=0.2)
    played.server.visible_after_ns = 3600 * NS_PER_S
    record = await run_one(played, seq=3)
    assert [f.check.name for f in bad(record) if not f.follows] == ["visibility", "warm_lookup"]
    assert 200 * NS_PER_MS <= played.clock.now_ns() < 300 * NS_PER_MS
    assert Op.RETRIEVE not in played.connection.ops


@pytest.mark.parametrize(
    ("max_dropped", "counted", "failing"),
    [
        (0.0, 2, ["dropped"]),
        (0.0, 1, ["dropped", "visibility", "warm_lookup"]),
        (0.0, 0, ["visibility", "warm_lookup"]),
        (0.5, 2, []),
        (0.5, 1, ["visibility", "warm_lookup"]),
    ],
)
@pytest.mark.asyncio
async def test_chunks_that_the_server_has_dropped_are_its_own_finding(
    make_stage: MakeStage,
    monkeypatch: pytest.MonkeyPatch,
    max_dropped: float,
    counted: int,
    failing: list[str],
) -> None:
    """A server that counts what it dropped; what it does not account for fails as ever."""
    played = make_stage(visible_within_s=0.2, max_dropped=max_dropped)
    played.server.visible_after_ns = 3600 * NS_PER_S
    tell_counters(monkeypatch, played, Counters(dropped_chunks=7 + counted))
    account = DroppedAccount(Counters(dropped_chunks=7))
    (setting,) = settings_of(played.asked, played.stage, account)
    sequences = sequences_of(played.asked, setting.crew, played.stage)
    record, _ = await Passes(setting, sequences.plan(3)).run()
    found = [f for f in findings_on(record) if f.verdict is not Verdict.VALID]
    assert [f.check.name for f in found if not f.follows] == failing
    if not failing:
        assert found == [], "what may be dropped leaves nothing unproven"
    assert (account.stored, account.dropped) == (2, counted)


def tell_counters(monkeypatch: pytest.MonkeyPatch, played: Played, told: Counters) -> None:
    """Let the server's /metrics say so."""

    async def counters(_self: Condition, model_name: str) -> Counters:
        assert model_name == played.stage.crews[0].engine.model_name
        return told

    monkeypatch.setattr(Condition, "counters", counters)


@pytest.mark.asyncio
async def test_a_refused_store_is_not_looked_for(make_stage: MakeStage) -> None:
    played = make_stage()
    played.server.answers[Op.STORE] = lambda *_: REFUSED
    record = await run_one(played, seq=3)
    assert named(record.steps) == ["cold", "STORE", "END_SESSION"]
    assert [f.check.name for f in bad(record) if not f.follows] == ["store"]


@pytest.mark.asyncio
async def test_a_server_that_answers_no_more_ends_the_run_and_the_record_says_how_far(
    make_stage: MakeStage,
) -> None:
    played = make_stage()
    played.server.answers |= {Op.RETRIEVE: None, Op.NOOP: None}
    sequences, setting = ready(played)
    record, fatal = await Passes(setting, sequences.plan(3)).run()
    assert isinstance(fatal, ServerSilentError)
    assert "the server no longer answers: RETRIEVE: no answer within 1 s" in str(fatal)
    assert named(record.steps) == ["cold", "STORE", "END_SESSION", "warm", "RETRIEVE"]
    moved = record.steps[-1]
    assert isinstance(moved, TransferRecord)
    assert moved.outcome is Outcome.UNKNOWN
    assert moved.latency_ns == NS_PER_S
    # Its request is still open: leaving the server settles it.
    assert list(played.stage.crews[0].desk.open_requests) == [f"bs-{NONCE}-3-warm-1"]


@pytest.mark.asyncio
async def test_without_a_count_nothing_is_stored_and_the_locks_are_freed(
    make_stage: MakeStage,
) -> None:
    """Whether the LOOKUP that got no answer has locked anything is not known."""
    played = make_stage()
    played.server.answers[Op.LOOKUP] = None
    record = await run_one(played, seq=3)
    assert named(record.steps) == ["cold", "FREE_LOOKUP_LOCKS", "END_SESSION"]
    assert [f.check.name for f in bad(record) if not f.follows] == ["cold_lookup"]
    assert Op.STORE not in played.connection.ops
    assert played.stage.crews[0].desk.open_requests == {}


@pytest.mark.asyncio
async def test_what_is_gone_before_the_partial_retrieve_is_not_retrieved(
    make_stage: MakeStage,
) -> None:
    played = make_stage()
    honest = played.server.look_up

    def forget_before_partial(key: CacheKey, workers: int) -> object:
        if key.request_id == f"bs-{NONCE}-0-partial":
            played.server.stored.clear()
        return honest(key, workers)

    played.server.answers[Op.LOOKUP] = forget_before_partial
    record = await run_one(played)
    findings = bad(record)
    assert findings[0].text == (
        "seq=0: LOOKUP before the partial RETRIEVE hit 0/2 chunks, expected 2/2"
    )
    assert sum(isinstance(s, TransferRecord) and s.skip_tokens > 0 for s in record.steps) == 0
    assert probes_made(record) == frozenset(PROBES) - {SKIPPED_TOKENS}


@pytest.mark.asyncio
async def test_wrong_bytes_are_found_and_nothing_more_is_asked(make_stage: MakeStage) -> None:
    """A RETRIEVE that copies nothing leaves poison behind; the probes go on."""
    played = make_stage()
    played.server.answers[Op.RETRIEVE] = lambda *_: replace(REFUSED, ok=True)
    record = await run_one(played, seq=3)
    (seen,) = [step for step in record.steps if isinstance(step, EvidenceRecord)]
    assert seen.content.kind is EvidenceKind.UNTOUCHED
    assert [f.check.name for f in bad(record)] == ["content"]


@pytest.mark.asyncio
async def test_what_is_expected_to_be_warm_is_not_stored(make_stage: MakeStage) -> None:
    first = make_stage()
    await run_one(first, seq=3)
    second = make_stage(expect_warm=True)
    second.server.stored = {name: (0, data) for name, (_, data) in first.server.stored.items()}
    record = await run_one(second, seq=3)
    assert bad(record) == []
    assert named(record.steps) == ["cold", "RETRIEVE", "END_SESSION", "EvidenceRecord"]
    missing = await run_one(second, seq=4)
    assert [f.check.name for f in bad(missing) if not f.follows] == ["cold_lookup"]
    assert not [step for step in missing.steps if isinstance(step, SourceRecord)]


@pytest.mark.asyncio
async def test_a_cancelled_sequence_leaves_its_store_to_end(make_stage: MakeStage) -> None:
    played = make_stage()
    sequences, setting = ready(played)
    storing, honest = asyncio.Event(), played.server.store

    def tell(*args: Any) -> object:
        storing.set()
        return honest(*args)

    played.server.answers[Op.STORE] = tell
    one = asyncio.ensure_future(Passes(setting, sequences.plan(2)).run())
    await storing.wait()
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    await played.stage.finishing.wait()
    assert played.server.stored
    assert list(played.stage.crews[0].desk.open_requests) == [f"bs-{NONCE}-2-cold"]
