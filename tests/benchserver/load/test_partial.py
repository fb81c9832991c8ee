"""Which sequences are retrieved in part, and that every offset inside a chunk has its turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.load.partial import skip_tokens, why_never


def skips(seed: int, turns: int, *, chunks: int = 2, blocks: int = 16, size: int = 16) -> list[int]:
    return [
        skip_tokens(seed=seed, turn=turn, chunks=chunks, blocks_per_chunk=blocks, block_size=size)
        for turn in range(turns)
    ]


def test_the_seed_says_where_it_begins() -> None:
    assert [skip // 16 % 16 for skip in skips(7, 12)] == [7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2]
    assert [skip % 16 > 0 for skip in skips(7, 4)] == [True, False, True, False]
    assert skips(7, 40) == skips(7, 40)
    assert skips(7, 40) != skips(7 + 16, 40)


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 1 << 40),
    st.integers(1, 9),
    st.integers(1, 33),
    st.integers(1, 40),
)
def test_one_block_is_skipped_and_one_is_not(
    seed: int, turn: int, chunks: int, blocks: int, size: int
) -> None:
    if chunks * blocks < 2:
        with pytest.raises(ValueError, match="fewer than two blocks"):
            skip_tokens(
                seed=seed, turn=turn, chunks=chunks, blocks_per_chunk=blocks, block_size=size
            )
        return
    skip = skip_tokens(
        seed=seed, turn=turn, chunks=chunks, blocks_per_chunk=blocks, block_size=size
    )
    assert 1 <= skip // size < chunks * blocks


@pytest.mark.parametrize("seed", [0, 5, 2**63 - 1])
@pytest.mark.parametrize(("chunks", "blocks"), [(2, 16), (4, 3), (9, 1), (3, 2)])
def test_every_offset_has_its_turn(seed: int, chunks: int, blocks: int) -> None:
    found = skips(seed, blocks, chunks=chunks, blocks=blocks)
    assert {skip // 16 % blocks for skip in found} == set(range(blocks))


def test_a_single_chunk_has_every_offset_but_0() -> None:
    assert {skip // 16 for skip in skips(3, 16, chunks=1)} == set(range(1, 16))


def test_every_chunk_has_its_turn() -> None:
    assert {skip // 256 for skip in skips(3, 200, chunks=5)} == set(range(5))


@pytest.mark.parametrize("blocks", [1, 2, 3, 16])
def test_every_other_number_is_no_multiple_of_the_block(blocks: int) -> None:
    rests = [skip % 16 for skip in skips(3, 2 * blocks, chunks=3, blocks=blocks)]
    assert rests[0] > 0
    assert sum(rest > 0 for rest in rests) == blocks
    # Each offset comes both ways in two rounds.
    assert all((rests[i] > 0) is not (rests[i + blocks] > 0) for i in range(blocks))


def test_blocks_of_one_token_have_no_parts() -> None:
    assert set(skips(3, 9, chunks=2, blocks=5, size=1)) <= set(range(1, 10))


@given(st.integers(0, 2**63 - 1), st.integers(0, 1 << 40), st.integers(2, 9), st.integers(1, 33))
def test_whole_chunks_are_skipped_where_only_they_may_be(
    seed: int, turn: int, chunks: int, blocks: int
) -> None:
    skip = skip_tokens(
        seed=seed,
        turn=turn,
        chunks=chunks,
        blocks_per_chunk=blocks,
        block_size=16,
        unit="chunks",
    )
    skipped, within = divmod(skip // 16, blocks)
    assert 1 <= skipped < chunks
    assert within == 0


def test_one_chunk_cannot_be_skipped_whole() -> None:
    with pytest.raises(ValueError, match="1 chunks: fewer than two"):
        skip_tokens(seed=1, turn=0, chunks=1, blocks_per_chunk=16, block_size=16, unit="chunks")


def never(every: int = 1, transport: str = "handle", blocks: int = 32, chunks: int = 2) -> str:
    return why_never(every, transport=transport, blocks=blocks, chunks=chunks, unit="blocks")


def test_why_there_is_none() -> None:
    assert never(10, blocks=2) == ""
    assert never(0) == "--partial-retrieve-every 0"
    for transport in ("shm", "inline"):
        assert never(transport=transport).startswith("the client copies")
    assert never(blocks=1, chunks=1).startswith("a sequence is one block")
    assert never(blocks=16, chunks=1) == ""
    for chunks, reason in ((2, ""), (1, "a sequence is one chunk, and --partial-skip chunks ")):
        found = why_never(1, transport="handle", blocks=16 * chunks, chunks=chunks, unit="chunks")
        assert found.startswith(reason)
        assert bool(found) is bool(reason)
