"""How much the server's L1 holds."""

from __future__ import annotations

from benchserver.scenarios.load.l1 import chunk_bytes, l1_bytes, l1_chunks
from benchserver.stage.stage import Stage
from protocol.httpapi import ServerStatus
from tests.benchserver.scenarios.load.conftest import MakeLoad


def with_l1(stage: Stage, nbytes: int) -> Stage:
    """Return the stage, whose server now says how large its L1 is."""
    stage.met.condition.before = ServerStatus(
        chunk_size=stage.crews[0].geometry.chunk_tokens,
        active_sessions=0,
        read_locked=0,
        write_locked=0,
        handle_instances=frozenset(),
        engine_instances=frozenset(),
        l1_bytes=nbytes,
    )
    return stage


def test_l1_holds_whole_chunks_of_all_ranks(make_load: MakeLoad) -> None:
    stage = make_load({"tp_size": 2}).stage
    each = 2 * stage.crews[0].geometry.chunk_bytes
    assert chunk_bytes(stage.crews[0].engine, stage.crews[0].geometry) == each
    assert (l1_bytes(stage), l1_chunks(stage)) == (0, 0)
    with_l1(stage, 3 * each + each // 2)
    assert (l1_bytes(stage), l1_chunks(stage)) == (3 * each + each // 2, 3)
