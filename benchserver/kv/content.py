"""What all pages of one rank's pool must hold: the patterns of its groups, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchserver.kv.pattern import U64, GroupPattern
from shapespec import ShapeSpec, layer_indices

Patterns = tuple[GroupPattern, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolContent:
    """The content of one rank's pool.

    `rank` is the rank whose content the pages hold: the worker's own, or 0 for MLA.  `ranks` is
    how many there are: any one's page may turn up in a wrong place.
    """

    spec: ShapeSpec
    patterns: Patterns
    rank: int
    ranks: int

    @property
    def blocks_per_chunk(self) -> int:
        """Return the blocks of one chunk."""
        return self.patterns[0].blocks_per_chunk

    def pattern_of(self, layer: int) -> GroupPattern:
        """Return the pattern of a layer's group; layers are numbered over the whole spec."""
        return next(pattern for pattern in self.patterns if layer in pattern.layers)

    def keys(self, layer: int, digests: Sequence[int]) -> U64:
        """Return the keys of one layer's pages; see `GroupPattern.page_keys`."""
        return self.pattern_of(layer).page_keys(digests, rank=self.rank, layer=layer)


def group_patterns(root: bytes, spec: ShapeSpec, blocks_per_chunk: int) -> Patterns:
    """Return the pattern of every group; shared by all workers of a run."""
    return tuple(
        GroupPattern(
            root, group, index=index, first_layer=layers.start, blocks_per_chunk=blocks_per_chunk
        )
        for index, (group, layers) in enumerate(zip(spec.groups, layer_indices(spec), strict=True))
    )
