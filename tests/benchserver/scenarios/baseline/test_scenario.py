"""The baseline on a stage: in which order, what is concluded, and what is left out."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.content import CONTENT, SOURCE
from benchserver.check.verdict import Finding, Verdict
from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.errors import FatalError, ServerSilentError
from benchserver.history import LookupRecord, SequenceRecord
from benchserver.scenarios.baseline import scenario
from benchserver.scenarios.baseline.checks import JUDGES
from benchserver.scenarios.baseline.plan import PROBES
from benchserver.scenarios.baseline.scenario import Baseline
from benchserver.scenarios.baseline.series import SEQUENCE, STORE
from benchserver.stage.traits import Omissions
from protocol.ops import Op
from tests.benchserver.scenarios.conftest import MakeStage
from tests.benchserver.scenarios.honest import Played


async def play(played: Played) -> None:
    await Baseline(played.asked).play(played.stage)


def omitted(played: Played, **facts: Any) -> Omissions:
    stage = played.stage
    server = replace(stage.server, **facts)
    return Baseline(played.asked).omissions(replace(stage, server=server))


@pytest.mark.asyncio
async def test_sequences_come_one_after_the_other_and_each_is_concluded(
    make_stage: MakeStage,
) -> None:
    played = make_stage(start=0, end=3, interval_s=0.5)
    await play(played)
    assert [label for label, _ in played.told.verdicts] == ["seq=0", "seq=1", "seq=2"]
    assert played.stage.book.counts[Verdict.VALID] == 3
    ledger = played.stage.book.ledger
    assert [probe.made for probe in ledger.probes.values()] == [1, 2, 1, 1, 1]
    counted = played.stage.measures.latencies
    summaries = counted[SEQUENCE].summary(), counted[STORE].summary()
    assert [summary.count for summary in summaries if summary is not None] == [3, 3]
    # Two pauses of half a second, before all but the first.
    assert NS_PER_S <= played.clock.now_ns() < NS_PER_S + 200 * NS_PER_MS


@pytest.mark.asyncio
async def test_no_sequence_begins_after_its_duration_and_one_begins_all_the_same(
    make_stage: MakeStage,
) -> None:
    played = make_stage(start=0, end=9, interval_s=0.5, duration_s=0.8)
    await play(played)
    assert [label for label, _ in played.told.verdicts] == ["seq=0", "seq=1"]
    assert played.asked.lasts_s == 0.8
    played = make_stage(start=0, end=9, duration_s=0.1, interval_s=0.5)
    await play(played)
    assert [label for label, _ in played.told.verdicts] == ["seq=0"]


@pytest.mark.asyncio
async def test_a_first_sequence_of_unequal_chunks_has_a_request_beside_it(
    make_stage: MakeStage,
) -> None:
    played = make_stage(start=3, end=5)
    await play(played)
    labels = {label for label, _ in played.told.steps}
    assert labels == {"seq=3", "seq=3, equal chunks", "seq=4"}
    # One verdict for both.
    assert [label for label, _ in played.told.verdicts] == ["seq=3", "seq=4"]
    assert all(tally.made for tally in played.stage.book.ledger.probes.values())
    summary = played.stage.measures.latencies[SEQUENCE].summary()
    assert summary is not None
    assert summary.count == 2


@pytest.mark.asyncio
async def test_a_bad_sequence_does_not_end_the_run(make_stage: MakeStage) -> None:
    played = make_stage(start=0, end=3)
    played.server.stored.clear()
    honest = played.server.store

    def drop_second(key: Any, *rest: Any) -> Any:
        answer = honest(key, *rest)
        if "-1-cold" in key.request_id:
            for name in played.server.chunk_names(key, 0):
                del played.server.stored[name]
        return answer

    played.server.answers[Op.STORE] = drop_second
    await play(played)
    counts = played.stage.book.counts
    assert (counts[Verdict.VALID], counts[Verdict.INVALID]) == (2, 1)


@pytest.mark.asyncio
async def test_a_check_that_fails_itself_leaves_a_run_unproven_and_goes_on(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(record: SequenceRecord) -> list[Finding]:
        raise IndexError("tuple index out of range")

    judges = [(check, broken if check == CONTENT else look) for check, look in JUDGES]
    monkeypatch.setattr(scenario, "JUDGES", judges)
    played = make_stage(start=0, end=2, interval_s=0.0)
    await play(played)
    ledger = played.stage.book.ledger
    assert len(played.told.verdicts) == 2
    assert (ledger.tallies[CONTENT].verdict, ledger.tallies[CONTENT].unproven) == (
        Verdict.UNKNOWN,
        2,
    )
    assert "the check itself failed, IndexError: tuple index" in ledger.tallies[CONTENT].cause
    assert ledger.tallies[SOURCE].verdict is Verdict.VALID


@pytest.mark.asyncio
async def test_a_server_that_answers_no_more_ends_it_and_what_was_seen_is_concluded(
    make_stage: MakeStage,
) -> None:
    played = make_stage(start=0, end=3)
    played.server.answers |= {Op.STORE: None, Op.NOOP: None}
    with pytest.raises(ServerSilentError):
        await play(played)
    ((label, findings),) = played.told.verdicts
    assert label == "seq=0"
    assert max(finding.verdict for finding in findings) is Verdict.UNKNOWN
    assert [type(step) for _, step in played.told.steps][:1] == [LookupRecord]


@pytest.mark.asyncio
async def test_a_lost_connection_ends_it_after_the_sequence(make_stage: MakeStage) -> None:
    played = make_stage(start=0, end=3)
    honest = played.server.store

    def lose_after(*args: Any) -> Any:
        played.connection.standing = replace(played.connection.standing, lost=1)
        return honest(*args)

    played.server.answers[Op.STORE] = lose_after
    with pytest.raises(FatalError, match=r"was lost during seq=0"):
        await play(played)
    assert len(played.told.verdicts) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("changes", "facts", "checks"),
    [
        ({"needs_http": False}, {}, {"digests": "--no-http"}),
        (
            {"needs_http": True},
            {"transport": "shm"},
            {
                "digests": "the server's digest API covers lmcache_driven workers alone",
                "partial": "the client copies, so no server is asked to skip",
            },
        ),
        (
            {"expect_warm": True, "end": 12},
            {},
            {
                "digests": "--no-http",
                **dict.fromkeys(
                    ("store", "dropped", "visibility", "warm_lookup", "source"),
                    "--expect-warm stores nothing",
                ),
            },
        ),
        (
            {"partial_every": 0},
            {},
            {"digests": "--no-http", "partial": "--partial-retrieve-every 0"},
        ),
    ],
)
async def test_checks_that_a_run_leaves_out_have_a_reason(
    make_stage: MakeStage, changes: dict[str, Any], facts: dict[str, Any], checks: dict[str, str]
) -> None:
    omissions = omitted(make_stage(**changes), **facts)
    found = {check.name: reason for check, reason in omissions.checks.items()}
    if "partial" not in checks:
        assert found.pop("partial").endswith("--partial-retrieve-every 10")
    assert found == checks
    assert set(omissions.probes) == set(PROBES)


@pytest.mark.asyncio
async def test_digests_of_overwritten_sources_are_left_out_by_name(make_stage: MakeStage) -> None:
    played = make_stage(end=5, needs_http=True)
    crew = replace(played.stage.crews[0], cross_check=True)
    stage = replace(played.stage, crews=(crew,))
    checks = Baseline(played.asked).omissions(stage).checks
    told = {check.name: reason for check, reason in checks.items()}
    assert told["digests"] == "left out: those of overwritten sources"


@pytest.mark.asyncio
async def test_what_a_run_knows_of_it_beforehand(make_stage: MakeStage) -> None:
    traits = Baseline(make_stage(start=2, end=6).asked).traits
    assert (traits.name, traits.unit, traits.workers) == ("baseline", "sequence", True)
    assert traits.turns == range(2, 6)
    assert traits.probes == PROBES


def lines_of(played: Played) -> list[str]:
    """Return the labels of steps and verdicts in the order in which they were told."""
    return [label for label, _ in played.told.everything]


@pytest.mark.asyncio
async def test_sequences_at_once_are_each_on_a_client_and_told_together(
    make_stage: MakeStage,
) -> None:
    played = make_stage(start=0, end=8, interval_s=0.5, concurrency=4)
    await play(played)
    assert played.stage.book.counts[Verdict.VALID] == 8
    assert {label for label, _ in played.told.verdicts} == {f"seq={seq}" for seq in range(8)}
    stored_by = {
        (int(call[1].request_id.split("-")[2]), call[2])
        for call in played.connection.calls
        if call[0] is Op.STORE
    }
    assert stored_by == {(seq, 1000 + seq % 4) for seq in range(8)}
    told = [label for label, _ in itertools.groupby(lines_of(played))]
    assert len(told) == len(set(told)) == 8, told
    probes = played.stage.book.ledger.probes.values()
    assert [probe.made for probe in probes] == [1, 4, 1, 1, 1]
    # One pause, of all clients at the same time.
    assert NS_PER_S / 2 <= played.clock.now_ns() < NS_PER_S


@pytest.mark.asyncio
async def test_what_ends_one_client_ends_all(make_stage: MakeStage) -> None:
    played = make_stage(start=0, end=None, interval_s=0.0, concurrency=3)
    honest = played.server.store

    def last_answer(key: Any, *rest: Any) -> Any:
        if "-7-cold" in key.request_id:
            played.server.answers |= {Op.STORE: None, Op.NOOP: None}
        return honest(key, *rest)

    played.server.answers[Op.STORE] = last_answer
    with pytest.raises(ServerSilentError):
        await play(played)
    *good, (_, last) = played.told.verdicts
    assert len(good) >= 4
    assert all(max(f.verdict for f in findings) is Verdict.VALID for _, findings in good)
    assert max(finding.verdict for finding in last) is Verdict.UNKNOWN
    # Nobody goes on behind it.
    calls = len(played.connection.calls)
    await played.clock.sleep_ns(60 * NS_PER_S)
    assert len(played.connection.calls) == calls


@pytest.mark.asyncio
async def test_of_sequences_at_once_the_bad_one_alone_fails(make_stage: MakeStage) -> None:
    played = make_stage(start=0, end=8, interval_s=0.0, concurrency=4)
    honest = played.server.retrieve

    def spoil(key: Any, instance: int, tables: Any, *rest: Any) -> Any:
        answer = honest(key, instance, tables, *rest)
        if "-5-warm" in key.request_id:
            pool = played.server.pools[instance]
            pool.page(0, 0, tables[0][0])[0] ^= 1
        return answer

    played.server.answers[Op.RETRIEVE] = spoil
    await play(played)
    bad = [
        label
        for label, findings in played.told.verdicts
        if any(finding.verdict is not Verdict.VALID for finding in findings)
    ]
    assert bad == ["seq=5"]
    (text,) = played.stage.book.ledger.tallies[CONTENT].texts
    assert text.startswith("seq=5 rank=0: CHECKSUM MISMATCH, leg destination")


@pytest.mark.asyncio
async def test_as_many_clients_as_sequences_at_once_and_as_much_room_for_them(
    make_stage: MakeStage,
) -> None:
    traits = Baseline(make_stage(start=0, end=8, concurrency=3).asked).traits
    assert (traits.clients, traits.in_flight, traits.at_once) == (3, 1, 3)
