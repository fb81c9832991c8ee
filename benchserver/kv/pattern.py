"""What each page must contain: a pure function, so that no copy is ever kept.

A *page* is one block in one plane (K or V) of one layer of one rank: `BS*NH*HS` elements.  Its
bytes are `table XOR key`, where

* `table` is a random string of one page, from the run's seed and the KV layer group.  It codes
  the position: no two positions of a page look alike.
* `key` is 64 bits, repeated along the page, mixed from the chunk's digest (which chains over the
  token prefix), the rank, the layer, the plane and the block within the chunk.  Any two pages
  differ in it, so a page that lies in the wrong place is told at once, and whose it is can be
  read back from a single word.

One bit is reserved: bit 6 of the most significant byte of every element is 0 in valid data and 1
in poison, canaries and reused blocks.  So valid floats are finite (their top exponent bit is 0),
and no element of a page can be mistaken for poison.  XOR with a short key runs at memory speed,
which is the point: filling and checking must not dominate a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shapespec import GroupSpec, page_bytes, planes

U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]

POISON_BYTE = 0xE5
CANARY_BYTE = 0xDA
REUSED_MASK = 0x5A
"""What every byte of a reused source block is XORed with; by its reserved bit, to no valid data."""

_RESERVED_BIT = 0x40
_WORD_BYTES = 8


def content_seed(seed: int, cache_salt: str) -> bytes:
    """Return the root of a run's content: from its seed, and the salt, since salts are tenants."""
    text = f"bench-server content v1\0{seed}\0{cache_salt}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def chunk_digests(root: bytes, token_ids: Sequence[int], chunk_tokens: int) -> tuple[int, ...]:
    """Return one 64-bit digest a full chunk, chained over the token prefix."""
    digests: list[int] = []
    state = root
    for start in range(0, len(token_ids) - chunk_tokens + 1, chunk_tokens):
        tokens = np.asarray(token_ids[start : start + chunk_tokens], dtype="<u4").tobytes()
        state = hashlib.blake2b(state + tokens, digest_size=16).digest()
        digests.append(int.from_bytes(state[:_WORD_BYTES], "little"))
    return tuple(digests)


def _mix(values: U64) -> U64:
    """Mix 64-bit words so that each bit depends on all (the finaliser of SplitMix64)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: U64 = z ^ (z >> np.uint64(31))
    return mixed


def _element_mask(item_bytes: int) -> bytes:
    """Return the mask that clears the reserved bit of one little-endian element."""
    return b"\xff" * (item_bytes - 1) + bytes([0xFF ^ _RESERVED_BIT])


class GroupPattern:
    """The content of one KV layer group for one run.

    `index` counts the groups of the spec.  `words` is the table as an array that broadcasts
    against a page: uint64 where a page is a whole number of 8-byte words, else uint8.
    """

    def __init__(
        self, root: bytes, group: GroupSpec, *, index: int, first_layer: int, blocks_per_chunk: int
    ) -> None:
        self.group = group
        self.index = index
        self.first_layer = first_layer
        self.blocks_per_chunk = blocks_per_chunk
        size = page_bytes(group)
        self.dtype: type[np.uint64 | np.uint8] = np.uint64 if size % _WORD_BYTES == 0 else np.uint8
        mask = np.frombuffer(_element_mask(group.dtype.item_bytes), dtype=np.uint8)
        self._page_mask = np.resize(mask, size)
        self._key_mask = np.uint64(int.from_bytes(np.resize(mask, _WORD_BYTES).tobytes(), "little"))
        seed = root + index.to_bytes(4, "little")
        table = np.frombuffer(hashlib.shake_128(seed).digest(size), dtype=np.uint8)
        self.words = (table & self._page_mask).view(self.dtype)

    @property
    def key_mask(self) -> int:
        """Return the bits that a key may have."""
        return int(self._key_mask)

    @property
    def layers(self) -> range:
        """Return the layers of this group, numbered over the whole spec."""
        return range(self.first_layer, self.first_layer + self.group.layers)

    def plane_name(self, plane: int) -> str:
        """Return K or V, or `latent` for the single plane of an MLA group."""
        return "latent" if self.group.is_mla else "KV"[plane]

    def page_keys(self, digests: Sequence[int], *, rank: int, layer: int) -> U64:
        """Return the masked keys of one layer's pages, shape (planes, chunks * blocks_per_chunk).

        Column `c * blocks_per_chunk + b` belongs to block `b` of chunk `c`.
        """
        chunks = np.asarray(digests, dtype=np.uint64)
        plane_ids = np.arange(planes(self.group), dtype=np.uint64)
        blocks = np.arange(self.blocks_per_chunk, dtype=np.uint64)
        place = np.uint64((rank << 48) | (layer << 32))
        inner = _mix(place | (plane_ids[:, None] << np.uint64(28)) | blocks[None, :])
        keys = _mix(chunks[None, :, None] ^ inner[:, None, :])
        masked: U64 = (keys & self._key_mask).reshape(len(plane_ids), -1)
        return masked

    def key_words(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64 | np.uint8]:
        """Return keys in a form that XORs with `words` along the last axis."""
        if self.dtype is np.uint64:
            return keys[..., None]
        as_bytes = np.ascontiguousarray(keys[..., None]).view(np.uint8)
        repeats = -(-self.words.size // _WORD_BYTES)
        return np.tile(as_bytes, repeats)[..., : self.words.size]

    def expected_page(self, key: int) -> U8:
        """Return the bytes of one page."""
        words = self.words ^ self.key_words(np.asarray([key], dtype=np.uint64))[0]
        page: U8 = words.view(np.uint8)
        return page


def is_filled_with(page: U8, byte: int) -> bool:
    """Tell whether a page holds nothing but one byte value."""
    return bool((page == byte).all())
