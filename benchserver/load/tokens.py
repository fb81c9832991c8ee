"""The tokens of a request: drawn from the run's seed and the names of its parts alone.

Each token is a mixed 64-bit number (SplitMix64) of its part's start and its place in the part, so
that a longer part begins as a shorter one does, and all parts are drawn in one pass.  The numbers
are the same on every machine and in every version.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchserver.load.workload import VOCABULARY

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from benchserver.load.request import Request

GAMMA = 0x9E3779B97F4A7C15
"""The step from a number to the next, before mixing."""

_WORD = (1 << 64) - 1


def mixed(value: int) -> int:
    """Return a 64-bit number of which each bit depends on all of `value` (SplitMix64)."""
    value &= _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def start_of(seed: int, name: str) -> int:
    """Return the 64-bit number at which the draws of this name begin."""
    text = f"bench-server load v1\0{seed}\0{name}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Draws:
    """Numbers drawn from a seed, by name and place: the same wherever they are asked for."""

    start: int

    @classmethod
    def named(cls, seed: int, name: str) -> Draws:
        """Return the draws of this name."""
        return cls(start_of(seed, name))

    def share(self, place: int) -> float:
        """Return a number between 0 and 1, neither of them included."""
        return ((mixed(self.start + place * GAMMA) >> 12) + 0.5) / (1 << 52)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of all requests of a run with this seed."""

    seed: int

    def ids(self, request: Request) -> list[int]:
        """Return the token ids of a request."""
        ids: list[int] = self.array(request).tolist()
        return ids

    def array(self, request: Request) -> npt.NDArray[np.uint32]:
        """Return the token ids of a request as an array."""
        # Loaded here: workloads are parsed before anything is drawn.
        import numpy as np

        counts = [part.count for part in request.parts]
        starts = np.array([start_of(self.seed, part.label) for part in request.parts], np.uint64)
        begins = np.cumsum([0, *counts[:-1]]).astype(np.uint64)
        places = np.arange(sum(counts), dtype=np.uint64)
        places -= np.repeat(begins, counts)
        places *= np.uint64(GAMMA)
        places += np.repeat(starts, counts)
        # `mixed`, of all at once and in place.
        places ^= places >> np.uint64(30)
        places *= np.uint64(0xBF58476D1CE4E5B9)
        places ^= places >> np.uint64(27)
        places *= np.uint64(0x94D049BB133111EB)
        places ^= places >> np.uint64(31)
        # The upper half as a share of the vocabulary: a division would take as long as the rest.
        places >>= np.uint64(32)
        places *= np.uint64(VOCABULARY)
        places >>= np.uint64(32)
        return places.astype(np.uint32)
