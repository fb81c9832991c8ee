"""The chain of hashes: the real server's, by its own file names, and by its definition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from blake3 import blake3

from benchserver.refserver.store.hashing import ROOT, chain

GOLDEN = Path(__file__).parents[3] / "golden/chunk_hashes_v056.json"


def hashes(tokens: list[int], chunk_size: int) -> list[bytes]:
    return list(chain(tokens, chunk_size=chunk_size, start=0, root=ROOT))


def test_chunks_have_the_hashes_that_a_real_server_gave_them() -> None:
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
    found = hashes(recorded["token_ids"], recorded["chunk_size"])
    assert [chunk_hash.hex() for chunk_hash in found] == recorded["chunk_hash_hex"]


def test_the_root_is_the_hash_of_a_hash_and_a_token_that_are_zero() -> None:
    assert blake3(bytes(8) + bytes(4)).digest() == ROOT


def test_a_hash_covers_the_chunk_and_everything_before_it() -> None:
    first, second = hashes([1, 2, 3, 4, 5], 2)
    assert first == blake3(ROOT + bytes.fromhex("0000000100000002")).digest()
    assert second == blake3(first + bytes.fromhex("0000000300000004")).digest()


def test_token_ids_use_all_32_bits() -> None:
    (found,) = hashes([2**32 - 1], 1)
    assert found == blake3(ROOT + b"\xff" * 4).digest()


def test_a_chain_goes_on_from_any_chunk() -> None:
    tokens = list(range(8))
    whole = hashes(tokens, 2)
    rest = list(chain(tokens, chunk_size=2, start=4, root=whole[1]))
    assert rest == whole[2:]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3]])
def test_less_than_a_chunk_has_no_hash(tokens: list[int]) -> None:
    assert hashes(tokens, 4) == []
    assert len(ROOT) == 32
