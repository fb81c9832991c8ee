"""Which tokens, content and blocks each sequence of the baseline has: pure.

The tokens of a sequence depend on its number and the seed alone, so that a later run finds them
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchserver.geometry import Geometry
from benchserver.history import Probe
from benchserver.kv.blocks import BlockPlan
from benchserver.kv.pattern import chunk_digests
from benchserver.load.workload import chunked_tokens, equal_chunk_tokens
from benchserver.scenarios.baseline.plan import EQUAL_CHUNKS, REUSED_SOURCE, Probing
from benchserver.scenarios.proof import SequencePlan

_ASIDE = "equal chunks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """Plans the sequences of one client; `blocks` plans those of a sequence, for every rank."""

    seed: int
    geometry: Geometry
    content_root: bytes
    probing: Probing
    blocks: Callable[[int], tuple[BlockPlan, ...]]

    def plan(self, seq: int) -> SequencePlan:
        """Plan a sequence with the probes that it owes."""
        probes = self.probing.owed(seq)
        return self._planned(
            seq,
            chunked_tokens(self.seed, seq, self.geometry.num_tokens, self.geometry.chunk_tokens),
            probes,
            overwritten=REUSED_SOURCE in probes and not self.probing.gives_back(seq),
        )

    def plan_aside(self, seq: int) -> SequencePlan:
        """Plan the request of equal chunks that goes with a first sequence that has none."""
        return self._planned(
            seq,
            equal_chunk_tokens(
                self.seed, seq, self.geometry.num_tokens, self.geometry.chunk_tokens
            ),
            frozenset({EQUAL_CHUNKS}),
            aside=_ASIDE,
        )

    def _planned(
        self,
        seq: int,
        tokens: Sequence[int],
        probes: frozenset[Probe],
        *,
        overwritten: bool = False,
        aside: str = "",
    ) -> SequencePlan:
        return SequencePlan(
            seq=seq,
            tokens=tokens,
            digests=chunk_digests(self.content_root, tokens, self.geometry.chunk_tokens),
            plans=self.blocks(seq),
            probes=probes,
            overwritten=overwritten,
            aside=aside,
        )
