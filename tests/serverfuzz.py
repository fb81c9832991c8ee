"""What `scripts/fuzz_server` draws: requests over ZMQ and HTTP, valid, mutated, and noise."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st

from protocol import codec
from protocol.dialects import V056
from protocol.errors import LocalProtocolError
from protocol.handles import CpuShmHandle
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from protocol.keys import CacheKey

NAME = f"fuzz-server-{os.getpid()}"
"""Of the segment that registrations name, and of the server's pool."""

SEGMENT_BYTES = 1 << 16
CHUNK = 32
INSTANCES = (0, 1, 2, 3)

T = TypeVar("T")

ints = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 4, 8, 16, 32, 64, 2**31, 2**63, 2**64 - 1])
names = st.sampled_from(["", "m", "m@m", "\0", "/", "é", "x" * 300])
instances = st.sampled_from(INSTANCES)
junk = st.recursive(
    st.none() | st.booleans() | ints | st.floats() | names | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
keys = st.builds(
    CacheKey,
    model_name=st.just("m"),
    world_size=st.sampled_from([1, 1, 1, 2, -1, 2**60]),
    worker_id=st.sampled_from([None, 0, 0, 0, 1, -1]),
    token_ids=st.sampled_from([0, 1, 32, 64, 96]).map(lambda count: list(range(count))),
    start=st.sampled_from([0, 0, 0, 32, -1, 2**63]),
    end=st.sampled_from([0, 32, 64, 64, 96, -1, 2**63]),
    request_id=st.sampled_from(["r", "s", "t"]),
    cache_salt=st.sampled_from(["", "", "s"]),
    num_kv_readers=st.sampled_from([1, 1, 2, 2**31]),
)
handles = st.builds(
    CpuShmHandle,
    shm_name=st.sampled_from([NAME, NAME, NAME, "", "a/b", "\0", "fuzz-none", "x" * 300]),
    nbytes=st.sampled_from([SEGMENT_BYTES, SEGMENT_BYTES, 0, 1, 2**62, SEGMENT_BYTES + 1]),
    dtype=st.sampled_from(["float16", "uint8"]),
    shape=st.sampled_from([(2, 8, 16, 2, 3), (8, 16, 5), (), (0, 4, 4), (2**62, 4, 4)]),
    stride=st.sampled_from([(768, 96, 6, 3, 1), (80, 5, 1), (0, 0, 0, 0, 0), (-1, 1, 1)]),
    storage_offset=st.sampled_from([0, 0, 1, -1, 2**40]),
)
registrations = st.fixed_dictionaries(
    {
        "instance_id": instances,
        "model_name": st.just("m"),
        "world_size": st.sampled_from([1, 1, 2, 0, 2**60]),
        "block_size": st.sampled_from([16, 16, -1]),
        "num_layers": st.sampled_from([1, 2, 2**39]),
        "hidden_dim_size": st.sampled_from([3, 6, 2**39]),
        "dtype_str": st.sampled_from(["float16", "uint8", "x"]),
        "use_mla": st.booleans(),
    },
    optional={"num_physical_slots": st.none() | ints},
)
infos = st.fixed_dictionaries(
    {"engine_group_id": ints, "layer_indices": st.lists(st.sampled_from([0, 1, 9]), max_size=3)},
    optional={"tokens_per_block": st.sampled_from([16, 0, -1])},
)
tensors = encode_tensor_list([InlineTensor("float16", (2, 2, CHUNK, 6), bytes(1536))] * 2)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "key": keys,
    "int": instances | ints,
    "opt_int": st.none() | ints,
    "str": st.sampled_from(["r", "s", "t"]) | names,
    "bool": st.booleans(),
    "float": st.floats() | ints,
    "map": registrations | st.dictionaries(names, junk, max_size=3),
    "maps": st.lists(infos, max_size=2),
    "block_ids": st.lists(st.lists(st.sampled_from([0, 1, 2, 3, 7, 8, -1, 2**63])), max_size=2),
    "handles": st.lists(handles, min_size=1, max_size=2),
    "bytes": st.binary(max_size=8) | st.just(tensors),
}
uids = st.integers(0, 1 << 20)


@st.composite
def valid_requests(draw: st.DrawFn) -> tuple[bytes, ...]:
    """Draw frames that a client could lawfully send, whatever they mean."""
    op = draw(st.sampled_from(list(V056.ops)))
    args = tuple(draw(KINDS[item.kind.name]) for item in V056.ops[op].payload)
    try:
        return codec.encode_request(V056, draw(uids), op, args)
    except LocalProtocolError:
        reject()  # our own codec refuses to send it; mutations get there


@st.composite
def mutated_requests(draw: st.DrawFn) -> tuple[bytes, ...]:
    """Draw a valid request with one thing wrong."""
    frames = list(draw(valid_requests()))
    place = draw(st.integers(0, len(frames) - 1))
    frame = frames[place]
    cut = draw(st.integers(0, len(frame)))
    how = draw(st.sampled_from(["cut", "flip", "insert", "drop", "repeat", "replace"]))
    if how == "cut":
        frames[place] = frame[:cut]
    elif how == "flip":
        frames[place] = frame[:cut] + draw(st.binary(min_size=1, max_size=2)) + frame[cut + 1 :]
    elif how == "insert":
        frames[place] = frame[:cut] + draw(st.binary(max_size=4)) + frame[cut:]
    elif how == "drop":
        del frames[place]
    elif how == "repeat":
        frames.insert(place, frame)
    else:
        frames[place] = draw(st.binary(max_size=16))
    return tuple(frames) or (b"",)


noise = st.lists(st.binary(max_size=40), min_size=1, max_size=6).map(tuple)
messages = valid_requests() | valid_requests() | mutated_requests() | noise

tiers = st.sampled_from(["l1", "l2", "all", "x"]) | junk
objects = st.fixed_dictionaries(
    {},
    optional={
        "chunk_hash_hex": st.binary(max_size=32).map(bytes.hex) | names,
        "model_name": names,
        "kv_rank": ints,
        "object_group_id": ints,
        "cache_salt": names,
    },
)
BODIES: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("POST", "/cache/clear"): st.fixed_dictionaries(
        {}, optional={"tier": tiers, "force": st.booleans() | junk}
    ),
    ("POST", "/cache/checksums"): st.fixed_dictionaries(
        {},
        optional={
            "block_ids": st.lists(ints | instances, max_size=5) | junk,
            "chunk_size": ints | junk,
            "instance_id": instances,
            "layerwise": st.booleans(),
        },
    ),
    # No text that is a fault's name: a server that lies on purpose cannot be checked.
    ("POST", "/faults"): st.fixed_dictionaries(
        {}, optional={"faults": st.lists(st.sampled_from(["", "no:such@fault", "@", "é"])) | junk}
    ),
    ("DELETE", "/cache/objects"): st.fixed_dictionaries(
        {}, optional={"keys": st.lists(objects | junk, max_size=4), "tier": tiers, "force": junk}
    ),
}
PATHS = ["/", "/healthcheck", "/version", "/status", "/config", "/metrics", "/faults"]
PATHS += ["/cache/objects?page_size=0", "/cache/objects?tier=l1", "/%00", "/nothing"]


@st.composite
def http_requests(draw: st.DrawFn) -> tuple[str, str, bytes | None]:
    """Draw method, path and body."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(["GET", "PUT", "HEAD"])), draw(st.sampled_from(PATHS)), None
    method, path = draw(st.sampled_from(list(BODIES)))
    text = _json_of(draw(BODIES[method, path] | junk))
    cut = draw(st.none() | st.none() | st.integers(0, len(text)))
    return method, path, text if cut is None else text[:cut] + draw(st.binary(max_size=4))


def _json_of(value: Any) -> bytes:
    return json.dumps(value, default=lambda raw: raw.hex()).encode()


raw_requests = st.binary(max_size=80) | st.tuples(
    st.sampled_from([b"GET / HTTP/1.1\r\n", b"POST /cache/clear HTTP/1.1\r\nHost: x\r\n"]),
    st.sampled_from([b"Content-Length: 9\r\n", b"Content-Length: -1\r\n", b"X: " + b"y" * 9000]),
    st.binary(max_size=40),
).map(b"".join)


HALF_BODY = b"POST /cache/clear HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"


@dataclass(frozen=True, slots=True)
class Burst:
    """What is sent before the next PING."""

    messages: list[tuple[bytes, ...]]
    requests: list[tuple[str, str, bytes | None]]
    raw: bytes
    coding: str
    attack: str


bursts = st.builds(
    Burst,
    st.lists(messages, min_size=5, max_size=20),
    st.lists(http_requests(), max_size=5),
    raw_requests,
    st.sampled_from(["", "", "gzip", "deflate", "br", "x"]),
    st.sampled_from([*[""] * 6, "long", "flood", "crowd"]),
)


def drawn(strategy: st.SearchStrategy[T], number: int, count: int) -> list[T]:
    """Return examples that depend on the number alone."""
    found: list[T] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found
