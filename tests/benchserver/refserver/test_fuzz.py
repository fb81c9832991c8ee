"""Whatever a client may lawfully encode, a handler answers or refuses; nothing else happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchserver.clock import VirtualClock
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.copier import Copier
from benchserver.refserver.core import Core, Handler
from benchserver.refserver.journal import Journal
from benchserver.refserver.ops.engine import EngineOps
from benchserver.refserver.ops.lookup import LookupOps
from benchserver.refserver.ops.mapped import MappedOps
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.registry import Registry
from benchserver.refserver.sessions import Sessions
from benchserver.refserver.store.arena import open_private
from benchserver.refserver.store.cache import Cache
from protocol import codec
from protocol.dialects import V056
from protocol.handles import CpuShmHandle
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from protocol.keys import CacheKey
from protocol.messages import Incoming
from protocol.ops import Op

ints = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 4, 8, 16, 2**31, 2**64 - 1])
names = st.sampled_from(["", "m", "m@m", "\0", "/", "é"])
junk = st.recursive(
    st.none() | st.booleans() | ints | names | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
keys = st.builds(
    CacheKey,
    model_name=names,
    world_size=st.sampled_from([1, 2, -1, 2**60]),
    worker_id=st.none() | ints,
    token_ids=st.lists(st.integers(0, 3), max_size=12),
    start=ints,
    end=ints,
    request_id=st.sampled_from(["r", "s"]),
    num_kv_readers=ints,
)
handles = st.builds(
    CpuShmHandle,
    shm_name=st.sampled_from(["", "a/b", "\0", "refserver-none", "x" * 300]),
    nbytes=ints,
    dtype=st.sampled_from(["float16", "float32", "uint8"]),
    shape=st.sampled_from([(), (1,), (2, 4, 4), (2, 4, 4, 1, 1), (0, 4, 4), (2**62, 4, 4)]),
    stride=st.just((0, 0, 0, 0, 0)),
)
engine_fields = st.fixed_dictionaries(
    {
        "instance_id": st.sampled_from([1, 2, "1"]),
        "model_name": st.just("m"),
        "world_size": st.sampled_from([1, 2, 0, 2**60]),
        "block_size": st.sampled_from([1, 4, -1]),
        "num_layers": st.sampled_from([1, 2, 2**39]),
        "hidden_dim_size": st.sampled_from([1, 3, 2**39]),
        "dtype_str": st.sampled_from(["float16", "uint8", "x"]),
        "use_mla": st.booleans(),
    },
    optional={"num_physical_slots": st.none() | ints},
)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "key": keys,
    "int": ints,
    "opt_int": st.none() | ints,
    "str": names,
    "bool": st.booleans(),
    "float": st.floats() | ints,
    "map": engine_fields | st.dictionaries(names, junk, max_size=3),
    "maps": st.lists(
        st.fixed_dictionaries(
            {"engine_group_id": ints, "layer_indices": st.lists(ints, max_size=3) | junk}
        ),
        max_size=3,
    ),
    "block_ids": st.lists(st.lists(ints, max_size=6), max_size=3),
    "handles": st.lists(handles, max_size=3),
    "bytes": st.binary(max_size=8)
    | st.just(encode_tensor_list([InlineTensor("float16", (1, 4, 1), bytes(8))])),
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[Op, tuple[Any, ...]]:
    op = draw(st.sampled_from(list(V056.ops)))
    return op, tuple(draw(KINDS[field.kind.name]) for field in V056.ops[op].payload)


@contextmanager
def handlers() -> Iterator[dict[Op, Handler]]:
    clock = VirtualClock()
    arena, copier = open_private(1 << 16), Copier()
    core = Core(
        config=ServerConfig(l1_bytes=1 << 16, chunk_size=4),
        clock=clock,
        journal=Journal(clock, lambda _: None),
        arena=arena,
        cache=Cache(arena.nbytes),
        sessions=Sessions(),
        registry=Registry(),
        copier=copier,
    )
    later: list[Any] = []
    groups = (LookupOps(core), MappedOps(core, later.append), EngineOps(core))
    try:
        yield {op: handler for group in groups for op, handler in group.table().items()}
    finally:
        copier.close()
        arena.close()


@pytest.mark.asyncio
@settings(max_examples=150, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=12))
async def test_every_request_is_answered_or_refused(
    sequence: list[tuple[Op, tuple[Any, ...]]],
) -> None:
    with handlers() as table:
        for op, args in sequence:
            try:
                result = await table[op](args)
            except RefusalError:
                continue
            incoming = Incoming(uid=b"u", op_frame=b"o", op=op, args=args)
            assert codec.encode_reply(V056, incoming, result)[0] == b"u"
