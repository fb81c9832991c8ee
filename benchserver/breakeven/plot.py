"""The answer as a picture: both times over the network bandwidth.  Alone to import matplotlib."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from benchserver.breakeven.model import Row, Turn
from benchserver.breakeven.quantities import bandwidth_text, bytes_text, ms_text
from benchserver.breakeven.question import Question
from benchserver.errors import UsageError, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
GIB = 1024.0**3
_POINTS = 96
"""Of a curve; matplotlib leaves none out of so few."""

_BEYOND = 4.0
"""How far a curve goes beyond the slowest and the fastest network of the table."""

_CURVES = (("serial", "one leg after the other", "C0"), ("pipelined", "both legs at once", "C1"))


def format_of(path: str) -> str:
    """Return the format that a file's name asks for; UsageError if we draw none, or cannot."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise UsageError(f"--plot {one_line(path, 120)}: expected a name that ends in .png or .svg")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--plot needs matplotlib ({one_line(error, 120)}): pip install 'bench-server[report]';"
            " the table and --json do not"
        ) from error
    return ending


def picture(asked: Question, file_format: str) -> bytes:
    """Return the picture as the bytes of a file; the same question gives the same bytes."""
    import matplotlib

    out = io.BytesIO()
    metadata = {"Date": None} if file_format == "svg" else {}
    with matplotlib.rc_context({"svg.hashsalt": "bench-server"}):
        drawn(asked).savefig(out, format=file_format, metadata=metadata)
    return out.getvalue()


def drawn(asked: Question) -> Figure:
    """Return the figure; each line has an id: a curve, the rows on it, its turn, what is saved."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    hit, rows = asked.hit, curve(asked)
    gib_per_s = [row.network_bytes_per_s / GIB for row in rows]
    for name, label, colour in _CURVES:
        times_ms = [_time_ms(row, name) for row in rows]
        turn = hit.turns(pipelined=name == "pipelined")
        axes.plot(gib_per_s, times_ms, color=colour, label=f"{label}: {_pays(turn)}", gid=name)
        _mark_rows(axes, asked, name, colour)
        if not turn.why_never:
            at = turn.network_bytes_per_s / GIB
            axes.plot([at], [hit.saved_s * 1e3], "o", color=colour, gid=f"{name}-turn")
    axes.axhline(hit.saved_s * 1e3, color="0.3", linestyle="--", label="prefill saved", gid="saved")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0, top=_top_ms(asked, rows))
    axes.set_xlabel("network bandwidth [GiB/s]")
    axes.set_ylabel("time of a hit [ms]")
    axes.set_title(
        f"{bytes_text(hit.payload_bytes)}, {ms_text(hit.fixed_s)} fixed, "
        f"{bandwidth_text(hit.device_bytes_per_s)} to the device"
    )
    axes.legend()
    return figure


def curve(asked: Question) -> list[Row]:
    """Return the rows of the curves: evenly on a logarithmic axis, beyond table and turns."""
    turns = [asked.hit.turns(pipelined=pipelined) for pipelined in (False, True)]
    networks = [network.bytes_per_s for network in asked.networks]
    networks.append(asked.hit.device_bytes_per_s)
    networks += [turn.network_bytes_per_s for turn in turns if not turn.why_never]
    low, high = min(networks) / _BEYOND, max(networks) * _BEYOND
    steps = _POINTS - 1
    return [asked.hit.over(low * (high / low) ** (i / steps)) for i in range(_POINTS)]


def _time_ms(row: Row, name: str) -> float:
    return (row.serial_s if name == "serial" else row.pipelined_s) * 1e3


def _top_ms(asked: Question, rows: list[Row]) -> float:
    """Return the upper end of the axis: a slow network must not flatten what is near the turn."""
    wanted_s = max(3 * asked.hit.saved_s, 1.5 * asked.hit.local.serial_s)
    return 1e3 * min(wanted_s, 1.1 * rows[0].serial_s)


def _pays(turn: Turn) -> str:
    return (
        "never pays" if turn.why_never else f"pays above {bandwidth_text(turn.network_bytes_per_s)}"
    )


def _mark_rows(axes: Axes, asked: Question, name: str, colour: str) -> None:
    rows = [asked.hit.over(network.bytes_per_s) for network in asked.networks]
    gib_per_s = [row.network_bytes_per_s / GIB for row in rows]
    times_ms = [_time_ms(row, name) for row in rows]
    axes.plot(gib_per_s, times_ms, "|", color=colour, gid=f"{name}-rows")
