"""One request against a script: what is sent, what is timed, what is known afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchserver.check.dropped import DroppedAccount
from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.errors import ServerSilentError
from benchserver.history import Outcome
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.owners import Candidate
from benchserver.load.request import Part, Request
from benchserver.load.tokens import Tokens
from benchserver.scenarios import requests
from benchserver.scenarios.load.exchange import Exchange, Setting
from benchserver.scenarios.load.lease import Lease
from benchserver.scenarios.load.losses import Losses
from benchserver.scenarios.load.model import Stored
from benchserver.scenarios.load.records import Missing, RequestRecord
from benchserver.scenarios.load.work import Drawing, Work
from benchserver.tasks import gather_all
from protocol.messages import TransferResult
from protocol.ops import Op
from tests.benchserver.scenarios.load.conftest import Loaded, MakeLoad


class One:
    """Requests one after the other, on one lease."""

    def __init__(self, loaded: Loaded) -> None:
        stage, crew = loaded.stage, loaded.stage.crews[0]
        self.clock = loaded.played.clock
        self.setting = Setting(
            stage=stage,
            config=loaded.config,
            stored=Stored(),
            digesters=(None,),
            losses=Losses(stage, DroppedAccount(None)),
        )
        self.lease = Lease(stage, crew, number=0, leases=2)
        self.drawing = Drawing(
            tokens=Tokens(7), geometry=crew.geometry, content_root=crew.content_root
        )
        self.number = 0
        self.done: list[int] = []

    def work(self, *parts: Part) -> Work:
        self.number += 1
        return self.drawing.work(Request(number=self.number, parts=parts))

    async def send(self, *parts: Part) -> RequestRecord:
        exchange = Exchange(self.setting, self.lease, self.work(*parts))
        now_ns = await exchange.prepare()
        return await exchange.run(
            now_ns, now_ns, warmup=False, done=lambda: self.done.append(self.clock.now_ns())
        )


SHARED = Part("shared", 64)


def own(name: str) -> Part:
    return Part(name, 64)


@pytest.mark.asyncio
async def test_what_hit_is_read_and_the_rest_is_stored(make_load: MakeLoad) -> None:
    loaded = make_load({"tp_size": 2})
    one = One(loaded)
    first = await one.send(SHARED, own("a"))
    assert (first.lookup.hits, first.retrieves, first.evidence) == (0, (), ())
    assert [(step.rank, step.chunks) for step in first.stores] == [(0, 4), (1, 4)]
    second = await one.send(SHARED, own("b"))
    assert (second.lookup.hits, second.lookup.expected, second.possible) == (2, 2, 2)
    assert [(step.rank, step.chunks) for step in second.retrieves] == [(0, 2), (1, 2)]
    assert [(step.rank, step.chunks) for step in second.stores] == [(0, 2), (1, 2)]
    third = await one.send(SHARED, own("b"))
    assert (third.lookup.hits, third.stores) == (4, ())
    for record in (second, third):
        assert record.answered
        kinds = [(seen.content.kind, seen.canaries.kind) for seen in record.evidence]
        assert kinds == [(EvidenceKind.MATCH, EvidenceKind.MATCH)] * 2
    assert not loaded.stage.crews[0].desk.open_requests


@pytest.mark.asyncio
async def test_its_place_is_given_back_once_the_calls_are_done_and_before_anybody_looks(
    make_load: MakeLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = One(make_load())
    seen: list[tuple[str, int]] = []
    arm, look, settle = one.lease.arm, one.lease.look, requests.settle

    def noted(name: str, do: Any) -> Any:
        def call(*args: Any) -> Any:
            seen.append((name, len(one.done)))
            return do(*args)

        return call

    monkeypatch.setattr(one.lease, "arm", noted("arm", arm))
    monkeypatch.setattr(one.lease, "look", noted("look", look))
    monkeypatch.setattr(requests, "settle", noted("settle", settle))
    await one.send(SHARED)
    await one.send(SHARED)
    assert seen[-3:] == [("arm", 1), ("settle", 1), ("look", 2)]
    assert len(one.done) == 2


@pytest.mark.asyncio
async def test_service_is_what_the_calls_take_and_response_has_the_prefill(
    make_load: MakeLoad,
) -> None:
    loaded = make_load({"tp_size": 2}, prefill_tokens_per_s=1000.0)
    one = One(loaded)
    await one.send(SHARED, own("a"))
    clocking = (await one.send(SHARED, own("b"))).clocking
    # LOOKUP and its status query, RETRIEVE and STORE of both ranks at once, END_SESSION.
    assert clocking.service_ns == 5 * NS_PER_MS
    assert clocking.response_ns == 5 * NS_PER_MS + 64 * NS_PER_MS
    assert (clocking.lag_ns, one.done[-1]) == (0, clocking.ended_ns)


@pytest.mark.asyncio
async def test_a_hit_that_nobody_foresaw_is_read_and_verified(make_load: MakeLoad) -> None:
    loaded = make_load()
    one = One(loaded)
    await one.send(SHARED, own("a"))
    other = One(loaded)
    other.number = 50
    found = await other.send(SHARED, own("a"))
    assert (found.lookup.hits, found.lookup.expected, found.possible) == (4, 0, 0)
    assert found.missing is Missing.NOTHING
    assert found.evidence[0].content.kind is EvidenceKind.MATCH


@pytest.mark.parametrize(
    ("waited_ns", "why"), [(0, Missing.NOT_VISIBLE), (3 * NS_PER_S, Missing.UNTOLD)]
)
@pytest.mark.asyncio
async def test_what_was_stored_and_is_not_found_is_explained_or_not(
    make_load: MakeLoad, waited_ns: int, why: Missing
) -> None:
    loaded = make_load()
    one = One(loaded)
    await one.send(SHARED, own("a"))
    loaded.played.server.stored.clear()
    await one.clock.sleep_ns(waited_ns)
    lost = await one.send(SHARED, own("b"))
    assert (lost.lookup.hits, lost.lookup.expected, lost.missing) == (0, 2, why)
    # It was stored again, and is not lost twice.
    again = await one.send(SHARED, own("c"))
    assert (again.lookup.hits, again.missing) == (2, Missing.NOTHING)


@pytest.mark.asyncio
async def test_two_lookups_at_once_that_miss_one_chunk_count_one_loss(make_load: MakeLoad) -> None:
    loaded = make_load()
    one = One(loaded)
    await one.send(SHARED, own("a"))
    loaded.played.server.stored.clear()
    await one.clock.sleep_ns(3 * NS_PER_S)
    other = One(loaded)
    other.setting, other.number = one.setting, 50
    other.lease = Lease(loaded.stage, loaded.stage.crews[0], number=1, leases=2)
    lost = await gather_all([one.send(SHARED, own("b")), other.send(SHARED, own("c"))])
    assert [(record.lookup.hits, record.lookup.expected) for record in lost] == [(0, 2), (0, 2)]
    assert [record.missing for record in lost] == [Missing.UNTOLD, Missing.KNOWN]


@pytest.mark.asyncio
async def test_threads_look_for_owners_in_requests_that_stay_the_same(
    make_load: MakeLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, seen = One(make_load()), []
    look = one.lease.look

    async def looked(digests: Sequence[int], past: Sequence[Candidate]) -> Any:
        seen.append((past, len(past)))
        return await look(digests, past)

    monkeypatch.setattr(one.lease, "look", looked)
    for name in "abc":
        await one.send(SHARED, own(name))
    assert [(len(past), count) for past, count in seen] == [(2, 2), (3, 3)]


@pytest.mark.asyncio
async def test_wrong_bytes_are_seen(make_load: MakeLoad) -> None:
    loaded = make_load()
    one = One(loaded)
    await one.send(SHARED, own("a"))
    for name, (stored_ns, data) in loaded.played.server.stored.items():
        loaded.played.server.stored[name] = (stored_ns, data ^ 1)
    record = await one.send(SHARED, own("b"))
    assert record.evidence[0].content.kind is EvidenceKind.MISMATCH


@pytest.mark.asyncio
async def test_nobody_looks_if_nobody_asked_for_it(make_load: MakeLoad) -> None:
    one = One(make_load(verify="off"))
    await one.send(SHARED, own("a"))
    record = await one.send(SHARED, own("b"))
    assert (record.delivered, record.looked_at, record.evidence) == (True, False, ())


@pytest.mark.asyncio
async def test_what_was_promised_and_not_delivered_ends_a_request(make_load: MakeLoad) -> None:
    loaded = make_load()
    one = One(loaded)
    await one.send(SHARED, own("a"))
    loaded.played.server.answers[Op.RETRIEVE] = lambda *_: TransferResult(event=b"", ok=False)
    record = await one.send(SHARED, own("b"))
    assert [step.outcome for step in record.retrieves] == [Outcome.FAIL]
    assert (record.stores, record.evidence, record.delivered) == ((), (), False)
    assert record.told == "neither /metrics nor /status answers"
    assert [end.name for end in record.ends] == ["FREE_LOOKUP_LOCKS", "END_SESSION"]


@pytest.mark.asyncio
async def test_after_a_retrieve_without_an_answer_nobody_knows_whose_locks_are_freed(
    make_load: MakeLoad,
) -> None:
    loaded = make_load()
    one, server = One(loaded), loaded.played.server
    assert (await one.send(SHARED, own("a"))).locks_known
    server.answers[Op.RETRIEVE] = None
    silent = await one.send(SHARED, own("b"))
    assert [step.outcome for step in silent.retrieves] == [Outcome.UNKNOWN]
    server.answers[Op.RETRIEVE] = lambda *_: TransferResult(event=b"", ok=False)
    refused = await one.send(SHARED, own("c"))
    assert ([step.outcome for step in refused.retrieves], refused.locks_known) == (
        [Outcome.FAIL],
        False,
    )


@pytest.mark.asyncio
async def test_a_store_without_an_answer_may_have_happened_and_its_blocks_rest(
    make_load: MakeLoad,
) -> None:
    loaded = make_load()
    one, server = One(loaded), loaded.played.server
    server.answers[Op.STORE] = None
    record = await one.send(SHARED, own("a"))
    assert [step.outcome for step in record.stores] == [Outcome.UNKNOWN]
    # 10 s is what the server had to answer, by the configuration of the run.
    assert one.clock.now_ns() - record.clocking.sent_ns >= 10 * NS_PER_S
    del server.answers[Op.STORE]
    after = await one.send(SHARED, own("b"))
    assert (after.lookup.hits, after.lookup.expected, after.possible) == (0, 0, 2)
    assert after.missing is Missing.NOTHING


@pytest.mark.asyncio
async def test_a_server_that_is_gone_ends_the_run(make_load: MakeLoad) -> None:
    loaded = make_load()
    loaded.played.server.answers |= {Op.LOOKUP: None, Op.NOOP: None, Op.END_SESSION: None}
    with pytest.raises(ServerSilentError):
        await One(loaded).send(SHARED, own("a"))
