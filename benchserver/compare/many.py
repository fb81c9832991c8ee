"""Many figures looked at once: what one of them would show by chance alone.  Pure."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values as if each were the only one looked at, by Holm's method."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, worst = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = worst
    return adjusted
