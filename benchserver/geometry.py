"""How the tokens of a request divide into chunks and blocks, and how many bytes each takes.

Owns every division of a shape spec, the server's chunk size and a number of tokens.  Pure.  Only
whole chunks are cached, so what does not fill one is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from shapespec import ShapeSpec, chunk_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A request of `num_tokens` tokens against a server with chunks of `chunk_tokens`.

    Bytes are those of one tensor-parallel rank.  `num_tokens` and `chunk_tokens` are at least 1.
    """

    spec: ShapeSpec
    chunk_tokens: int
    num_tokens: int

    @property
    def chunks(self) -> int:
        """Return the whole chunks of a request; 0 if it does not fill one."""
        return self.num_tokens // self.chunk_tokens

    @property
    def end(self) -> int:
        """Return the tokens of those chunks: keys cover `[0, end)`."""
        return self.chunks * self.chunk_tokens

    @property
    def whole_blocks(self) -> bool:
        """Tell whether a chunk is a whole number of blocks; if not, no request can be made."""
        return self.chunk_tokens % self.spec.block_size == 0

    @property
    def blocks_per_chunk(self) -> int:
        """Return the blocks of one chunk."""
        return self.chunk_tokens // self.spec.block_size

    @property
    def blocks(self) -> int:
        """Return the blocks of a request's whole chunks."""
        return self.end // self.spec.block_size

    @property
    def chunk_bytes(self) -> int:
        """Return the bytes of one chunk in all layers."""
        return chunk_bytes(self.spec, self.chunk_tokens)

    @property
    def nbytes(self) -> int:
        """Return the bytes of a request's whole chunks in all layers."""
        return self.chunks * self.chunk_bytes

    def skipped_blocks(self, skip_tokens: int) -> int:
        """Return the blocks that lie wholly in the first `skip_tokens` tokens."""
        return skip_tokens // self.spec.block_size

    def bytes_behind(self, skip_tokens: int) -> int:
        """Return the bytes of all blocks that do not lie wholly in the first `skip_tokens`."""
        skipped = self.skipped_blocks(skip_tokens) * self.spec.block_size
        return self.nbytes * (self.end - skipped) // self.end
