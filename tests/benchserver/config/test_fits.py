"""What is asked for and what a server has: chunk size, pool, L1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchserver.config.engine import Engine
from benchserver.config.fits import check_against_l1, check_geometry
from benchserver.errors import FatalError, UsageError

MakeEngine = Callable[..., Engine]


def test_a_chunk_size_that_blocks_do_not_divide(make_engine: MakeEngine) -> None:
    with pytest.raises(UsageError) as caught:
        check_geometry(make_engine(spec="(2,64,24,1,8):float16:1").geometry(256))
    assert str(caught.value) == (
        "block size 24 does not divide the server's chunk size 256; change BS in "
        "--kvcache-shape-spec, or the server's --chunk-size"
    )


def test_fewer_tokens_than_a_chunk(make_engine: MakeEngine) -> None:
    check_geometry(make_engine(num_tokens=256).geometry(256))
    with pytest.raises(
        UsageError,
        match="requests of 255 tokens are less than one chunk of 256 ",
    ):
        check_geometry(make_engine(num_tokens=255).geometry(256))


def test_a_pool_that_is_too_small_is_told_the_sum(make_engine: MakeEngine) -> None:
    # 2 chunks of 256 tokens are 32 blocks: 32 source + 32 destination + 2 canaries + block 0.
    check_geometry(make_engine(num_tokens=767, spec="(2,67,16,1,8):float16:1").geometry(256))
    with pytest.raises(UsageError) as caught:
        check_geometry(make_engine(num_tokens=767, spec="(2,66,16,1,8):float16:1").geometry(256))
    assert str(caught.value) == (
        "the pool has 66 blocks (NB), but 2 chunks of 256 tokens need 67: 32 source + "
        "32 destination + 2 canaries + the null block; raise NB or lower --num-tokens"
    )


def test_a_sequence_must_fit_into_the_server_s_l1(make_engine: MakeEngine) -> None:
    # A chunk of 256 tokens of K and V, 8 elements of 2 bytes: 8 KiB.
    engine = make_engine(spec="(2,128,16,1,8):float16:1", tp_size=3, num_tokens=600)
    geometry, ranks = engine.geometry(256), engine.world_size
    for l1_bytes in (0, 3 * 2 * 8192, 1 << 30):
        check_against_l1(geometry, kv_ranks=ranks, l1_bytes=l1_bytes)
    with pytest.raises(FatalError) as caught:
        check_against_l1(geometry, kv_ranks=ranks, l1_bytes=3 * 2 * 8192 - 1)
    assert str(caught.value) == (
        "the server's L1 holds 49151 bytes, a sequence of 2 chunks on 3 KV ranks needs 49152; "
        "start it with a larger --l1-size-gb, or lower --num-tokens"
    )
    mla = make_engine(spec="(1,128,16,1,8):uint8:1", tp_size=3)
    check_against_l1(mla.geometry(256), kv_ranks=mla.world_size, l1_bytes=4096)


def test_a_pool_needs_a_lease_for_each_request_under_way(make_engine: MakeEngine) -> None:
    # Each has 32 source + 32 destination + 2 canaries, and there is one null block.
    engine = make_engine(num_tokens=512, spec="(2,265,16,1,8):float16:1")
    check_geometry(engine.geometry(256), in_flight=4)
    with pytest.raises(UsageError) as caught:
        check_geometry(engine.geometry(256), in_flight=5)
    assert str(caught.value) == (
        "the pool has 265 blocks (NB), but 5 requests at once of 2 chunks of 256 tokens need 331: "
        "5 x (32 source + 32 destination + 2 canaries) + the null block; raise NB or lower "
        "--num-tokens (of a trace --max-input-tokens) or --concurrency"
    )


def test_sequences_at_once_must_fit_into_the_server_s_l1_together(make_engine: MakeEngine) -> None:
    geometry = make_engine(spec="(2,128,16,1,8):float16:1", num_tokens=600).geometry(256)
    check_against_l1(geometry, kv_ranks=1, l1_bytes=4 * 2 * 8192, at_once=4)
    with pytest.raises(FatalError) as caught:
        check_against_l1(geometry, kv_ranks=1, l1_bytes=4 * 2 * 8192 - 1, at_once=4)
    assert str(caught.value) == (
        "the server's L1 holds 65535 bytes, 4 sequences of 2 chunks on 1 KV ranks need 65536; "
        "start it with a larger --l1-size-gb, or lower --num-tokens or --concurrency"
    )
