"""Whole runs in gpu mode without a GPU: pools on the host that behave as pools on a device do.

The server is our embedded one, on the host; where a test says so, its replies get the events that
a server of GPUs would send.
"""

from __future__ import annotations

import threading

import pytest

from benchserver.check import transfers
from benchserver.check.residue import RESIDUE
from benchserver.check.run import RUN
from benchserver.check.verdict import Verdict
from benchserver.history import TransferRecord
from benchserver.kv.placement import device_numbers
from benchserver.options.engine import TransferChoice
from benchserver.scenarios.baseline.series import RETRIEVE, RETRIEVE_REPLY, STORE, STORE_REPLY
from tests.benchserver.stage.runs import (
    EVENT,
    LANDS_AFTER_S,
    MLA,
    SPEC,
    AlienPool,
    BrokenPool,
    FailingPool,
    Machine,
    MakeConfig,
    RunMaker,
    UnnamedPool,
)
from tests.mitm.forkedserver import forked_server

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize(("spec", "tp_size"), [(SPEC, 1), (SPEC, 3), (MLA, 2)])
@pytest.mark.asyncio
async def test_a_run_is_proven_and_its_latencies_are_those_of_landed_data(
    play: RunMaker, machine: Machine, spec: str, tp_size: int
) -> None:
    playing = play(101 + tp_size, machine, spec=spec, tp_size=tp_size)
    result = await playing.one.execute()
    notes = playing.notes
    texts = {check: tally.texts for check, tally in result.ledger.tallies.items() if tally.texts}
    assert result.verdict is Verdict.VALID, texts
    assert [device.number for device in result.devices] == device_numbers(tp_size, 2)
    moved = [step for step in notes.steps if isinstance(step, TransferRecord)]
    assert all(step.began_ns < step.replied_ns < step.ended_ns for step in moved)
    assert all(step.latency_ns > LANDS_AFTER_S * 1e9 for step in moved)
    # Two sequences, one of them retrieved in part too.
    assert len(machine.pools[0].waits) == 5
    assert all(set(pool.waits) == {EVENT} for pool in machine.pools)
    for name, reply in ((STORE, STORE_REPLY), (RETRIEVE, RETRIEVE_REPLY)):
        landed, replied = (result.measures.latencies[n].summary() for n in (name, reply))
        assert landed is not None
        assert replied is not None
        assert landed.count == replied.count
        assert replied.max_ms < landed.max_ms
    assert "(mode=gpu)" in notes.notes[0]
    assert "KV pool of rank 0 on cuda:0, FAKE, uuid-0" in notes.notes
    assert any(note.endswith("latencies: no compiler") for note in notes.notes)
    # What takes seconds does not hold up the event loop.
    assert threading.get_ident() not in machine.made_in


@pytest.mark.asyncio
async def test_a_server_that_answers_as_on_the_host_fails(play: RunMaker, machine: Machine) -> None:
    playing = play(201, machine)
    result = await playing.one.execute()
    tally = result.ledger.tallies[transfers.STORE]
    assert tally.verdict is Verdict.INVALID
    assert tally.texts[0] == (
        "seq=0 rank=0: STORE: replied True, but with an event of 15 bytes, expected 64: a client "
        "cannot know when the data lands"
    )
    assert result.ledger.tallies[RESIDUE].passed
    assert machine.pools[0].waits == []


@pytest.mark.usefixtures("events")
@pytest.mark.asyncio
async def test_an_event_that_does_not_tell_leaves_the_run_unproven(
    play: RunMaker, machine: Machine
) -> None:
    machine.trouble = "the server's event did not complete within 10 s"
    playing = play(301, machine)
    result = await playing.one.execute()
    tally = result.ledger.tallies[transfers.STORE]
    assert (tally.verdict, tally.failed, tally.unproven) == (Verdict.UNKNOWN, 0, 2)
    assert tally.texts[0] == (
        "seq=0 rank=0: STORE: replied True, but when its data lands is unknown: the server's event "
        "did not complete within 10 s"
    )
    assert result.exit_code == 1


@pytest.mark.usefixtures("events")
@pytest.mark.asyncio
async def test_engine_driven_runs_wait_for_no_event(play: RunMaker, machine: Machine) -> None:
    engine = TransferChoice.ENGINE_DRIVEN
    playing = play(401, machine, transfer=engine)
    result = await playing.one.execute()
    notes = playing.notes
    assert result.verdict is Verdict.VALID
    assert machine.pools[0].waits == []
    moved = [step for step in notes.steps if isinstance(step, TransferRecord)]
    assert moved
    assert all(step.replied_ns == step.ended_ns for step in moved)
    assert result.measures.latencies[STORE_REPLY].summary() is None


@pytest.mark.asyncio
async def test_a_device_that_does_not_keep_what_is_written_ends_the_run(
    play: RunMaker, machine: Machine
) -> None:
    machine.kind = BrokenPool
    playing = play(501, machine)
    result = await playing.one.execute()
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("rank 0: 128 of 128 pages that were just written to cuda:0 (uuid-0)")
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("cuda_ipc", "said", "unsaid"),
    [("torch", "(--ipc=host), or use --cuda-ipc driver", "?"), ("driver", "handles)", "--ipc=")],
)
@pytest.mark.usefixtures("never_late")
@pytest.mark.asyncio
async def test_a_registration_without_an_answer_says_what_a_server_needs(
    play: RunMaker,
    machine: Machine,
    cuda_ipc: str,
    said: str,
    unsaid: str,
) -> None:
    machine.kind = UnnamedPool
    playing = play(601, machine, cuda_ipc=cuda_ipc, timeout_s=1.0, tp_size=1)
    result = await playing.one.execute()
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("rank 0: REGISTER_KV_CACHE: no answer within 1 s; it cannot map our")
    assert "see the GPU uuid-0, and be able to open our CUDA IPC handles" in text
    assert said in text
    assert unsaid not in text


@pytest.mark.asyncio
async def test_older_releases_are_refused_before_anything_is_allocated(
    make_config: MakeConfig, machine: Machine
) -> None:
    with forked_server("--as", "0.5.5", "--supported-transfer-mode", "lmcache_driven") as old:
        result = await RunMaker(old.urls, make_config)(701, machine).one.execute()
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("release 0.5.5 takes CUDA memory described in a pickle")
    assert machine.pools == []


@pytest.mark.asyncio
async def test_no_room_on_the_device_ends_the_run_before_it_is_registered(
    play: RunMaker, machine: Machine
) -> None:
    machine.refused = "GPU memory: 9 bytes asked for, 5 bytes free on cuda:0"
    playing = play(801, machine)
    result = await playing.one.execute()
    (text,) = result.ledger.tallies[RUN].texts
    assert text.endswith("5 bytes free on cuda:0")
    assert machine.pools == []


@pytest.mark.usefixtures("events")
@pytest.mark.asyncio
async def test_a_device_that_fails_in_a_sequence_does_not_leave_anything_on_the_server(
    play: RunMaker, machine: Machine
) -> None:
    machine.kind = FailingPool
    playing = play(901, machine)
    result = await playing.one.execute()
    (text,) = result.ledger.tallies[RUN].texts
    assert text == "cuda:0: an illegal memory access was encountered"
    residue = result.ledger.tallies[RESIDUE]
    assert (residue.passed, residue.failed, residue.unproven) == (2, 0, 0)


@pytest.mark.asyncio
async def test_a_descriptor_that_cannot_be_sent_ends_the_run_in_one_line(
    play: RunMaker, machine: Machine
) -> None:
    machine.kind = AlienPool
    playing = play(1501, machine)
    result = await playing.one.execute()
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("rank 0: its registration cannot be sent: handle: handle[1] is b'eee")
    assert result.exit_code == 1
