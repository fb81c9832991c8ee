"""From a scripted server to registered workers, and what ends that in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchserver.check.run import RUN
from benchserver.check.transport import TRANSPORT
from benchserver.check.verdict import Verdict
from benchserver.client.scripted import NEVER
from benchserver.errors import UsageError
from benchserver.options.engine import TransferChoice
from protocol.ops import Op
from tests.benchserver.stage.runs import MLA, MakeConfig
from tests.benchserver.stage.scripted import SPEC, WELL, Play, Server, played, two_acts

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.asyncio
async def test_mla_ranks_share_the_objects_of_one(make_config: MakeConfig) -> None:
    play = Play(two_acts)
    result = await played(make_config(spec=MLA, tp_size=2), play, Server())
    assert result.verdict is Verdict.VALID
    crew = play.seen[0].crews[0]
    assert [worker.kv_rank for worker in crew.workers] == [0, 0]
    assert (crew.keys.world_size, crew.keys.readers) == (1, 2)


@pytest.mark.asyncio
async def test_digests_are_asked_for_unless_the_options_say_no(make_config: MakeConfig) -> None:
    for cross_check in (True, False):
        play = Play(two_acts)
        await played(make_config(spec=SPEC, needs_http=cross_check), play, Server())
        assert play.seen[0].crews[0].cross_check is cross_check


@pytest.mark.asyncio
async def test_a_transport_that_was_required_and_is_not_taken_ends_the_run(
    make_config: MakeConfig,
) -> None:
    config, server = make_config(spec=SPEC, require_transport="shm"), Server()
    result = await played(config, Play(two_acts), server)
    assert result.ledger.tallies[TRANSPORT].verdict is Verdict.INVALID
    assert result.ledger.tallies[RUN].verdict is Verdict.INVALID
    assert result.sequences_ok == 0
    assert not server.registered


@pytest.mark.asyncio
async def test_a_mode_that_the_server_does_not_serve_is_refused_before_anything_is_allocated(
    make_config: MakeConfig,
) -> None:
    config, server = make_config(spec=SPEC, transfer=TransferChoice.LMCACHE_DRIVEN), Server()
    server.mode = "engine_driven"
    result = await played(config, Play(two_acts), server)
    (text,) = result.ledger.tallies[RUN].texts
    assert "lmcache_driven" in text
    assert Op.REGISTER_KV_CACHE not in server.ops


@pytest.mark.asyncio
async def test_a_registration_without_an_answer_ends_the_run_and_is_taken_back(
    make_config: MakeConfig,
) -> None:
    server = Server(script={Op.REGISTER_KV_CACHE: NEVER})
    result = await played(make_config(spec=SPEC), Play(two_acts), server)
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("rank 0: REGISTER_KV_CACHE: no answer within 1 s; it cannot map our")
    assert server.ops[-3:] == [Op.NOOP, Op.UNREGISTER_KV_CACHE, Op.NOOP]


@pytest.mark.asyncio
async def test_workers_that_http_does_not_list_belong_to_another_server(
    make_config: MakeConfig,
) -> None:
    class Elsewhere(set[int]):
        def add(self, _: int) -> None:
            """Register nobody here."""

    server = Server(registered=Elsewhere())
    result = await played(make_config(spec=SPEC), Play(two_acts), server)
    (text,) = result.ledger.tallies[RUN].texts
    assert text.endswith("--rpc-url and --url are two different servers")


@pytest.mark.asyncio
async def test_a_sequence_that_does_not_fit_into_l1_is_refused_before_anything_is_allocated(
    make_config: MakeConfig,
) -> None:
    server = Server(status=replace(WELL, l1_bytes=100))
    result = await played(make_config(spec=SPEC), Play(two_acts), server)
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("the server's L1 holds 100 bytes")
    assert Op.REGISTER_KV_CACHE not in server.ops


@pytest.mark.asyncio
async def test_leases_or_sequences_that_do_not_fit_are_refused_before_anything_is_allocated(
    make_config: MakeConfig,
) -> None:
    play, server = Play(two_acts, clients=2, in_flight=64), Server()
    with pytest.raises(UsageError, match=r"64 requests at once of 8 chunks .* raise NB"):
        await played(make_config(spec=SPEC, num_tokens=512), play, server)
    assert server.ops[-1] is Op.GET_CHUNK_SIZE
    sequence = 512 * 2 * 2 * 2 * 8 * 2
    server = Server(status=replace(WELL, l1_bytes=2 * sequence - 1))
    play = Play(two_acts, clients=2, at_once=2)
    result = await played(make_config(spec=SPEC, num_tokens=512), play, server)
    (text,) = result.ledger.tallies[RUN].texts
    assert "2 sequences of 8 chunks" in text
    assert Op.REGISTER_KV_CACHE not in server.ops
