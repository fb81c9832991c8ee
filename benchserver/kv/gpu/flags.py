"""From flags of wrong pages, found on a device, to evidence.

The flags are numpy arrays by now; of the pages themselves only the first wrong one is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchserver.kv.evidence import Evidence, EvidenceKind, PageFault
from benchserver.kv.gpu.views import GroupView

Flags = npt.NDArray[Any]
"""[layer, plane, column]: not 0 where a page is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A wrong page: its layer counts from the group's first, its column from the flags' first."""

    layer: int
    plane: int
    column: int


class FirstFault:
    """Describes the first wrong page of all and leaves the others, which nobody would see."""

    def __init__(self) -> None:
        self._described = False

    def describe(self, describe: Callable[[], PageFault]) -> PageFault | None:
        """Return the description if it is the first."""
        if self._described:
            return None
        self._described = True
        return describe()


def layer_evidence(
    view: GroupView,
    flags: Flags,
    first: FirstFault,
    describe: Callable[[Found], PageFault],
    *,
    poisoned: Flags | None = None,
    by_plane: bool = False,
) -> list[Evidence]:
    """Return the evidence of each layer of a group.

    `poisoned`, where given, tells which pages hold nothing but poison: a layer with nothing else
    is untouched.  The first wrong page of a layer is that of the first column, then plane, or
    with `by_plane` of the first plane, then column.
    """
    parts: list[Evidence] = []
    for layer in range(flags.shape[0]):
        wrong = flags[layer] != 0
        bad = int(np.count_nonzero(wrong))
        kind = EvidenceKind.MISMATCH if bad else EvidenceKind.MATCH
        if bad == wrong.size and poisoned is not None and bool((poisoned[layer] != 0).all()):
            kind = EvidenceKind.UNTOUCHED
        fault = None
        if bad:
            found = _first(wrong, layer, by_plane=by_plane)
            fault = first.describe(lambda found=found: describe(found))  # type: ignore[misc]
        parts.append(
            Evidence(
                kind=kind,
                pages=wrong.size,
                bad_pages=bad,
                checked_bytes=wrong.size * view.page_bytes,
                first=fault,
            )
        )
    return parts


def _first(wrong: npt.NDArray[np.bool_], layer: int, *, by_plane: bool) -> Found:
    if by_plane:
        plane, column = np.argwhere(wrong)[0]
    else:
        column, plane = np.argwhere(wrong.T)[0]
    return Found(layer=layer, plane=int(plane), column=int(column))


def fetch_flags(flags: Sequence[Any]) -> list[Flags]:
    """Bring tensors of flags to the host in one copy, which waits for the device."""
    import torch

    flat = torch.cat([part.reshape(-1).to(torch.bool) for part in flags]).cpu().numpy()
    ends = np.cumsum([part.numel() for part in flags])
    pieces = np.split(flat, ends[:-1])
    return [piece.reshape(tuple(part.shape)) for piece, part in zip(pieces, flags, strict=True)]
