"""The answer as lines, and as JSON.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchserver.breakeven.measured import Measured
from benchserver.breakeven.model import Hit, Row, Turn
from benchserver.breakeven.quantities import bandwidth_text, bytes_text, ms_text
from benchserver.breakeven.question import Question
from benchserver.errors import one_line

JSON_FORMAT = 1
_HEAD = ("network", "serial", "gain", "pipelined", "gain")
NO_NETWORK_TEXT = "none (in the host)"
"""Of a hit that is there already: no network does better."""


def lines(asked: Question, run: Measured | None) -> Iterator[str]:
    """Yield what is asked, the table, and where it turns."""
    hit = asked.hit
    if run is not None:
        yield from _run_lines(run)
    yield (
        f"A hit moves {bytes_text(hit.payload_bytes)}, to the device at "
        f"{bandwidth_text(hit.device_bytes_per_s)}, after {ms_text(hit.fixed_s)} of fixed cost; "
        f"it saves {ms_text(hit.saved_s)} of prefill."
    )
    yield ""
    yield _line(_HEAD)
    for network in asked.networks:
        yield _line(_cells(network.text, hit.over(network.bytes_per_s)))
    yield _line(_cells(NO_NETWORK_TEXT, hit.local))
    yield ""
    yield _turn_line("one leg after the other", hit.turns(pipelined=False))
    yield _turn_line("both legs at once", hit.turns(pipelined=True))


def document(asked: Question, run: Measured | None) -> dict[str, Any]:
    """Return the JSON report; null stands for the bandwidth of no network, and for never."""
    hit = asked.hit
    rows = [*(hit.over(network.bytes_per_s) for network in asked.networks), hit.local]
    return {
        "format": JSON_FORMAT,
        "payload_bytes": round(hit.payload_bytes),
        "saved_ms": hit.saved_s * 1e3,
        "fixed_ms": hit.fixed_s * 1e3,
        "device_bytes_per_s": hit.device_bytes_per_s,
        "run": None if run is None else asdict(run),
        "rows": [_row_document(row) for row in rows],
        "turns": {
            "serial": _turn_document(hit, pipelined=False),
            "pipelined": _turn_document(hit, pipelined=True),
        },
    }


def _run_lines(run: Measured) -> Iterator[str]:
    yield (
        f"Run {one_line(run.path, 120)}: {run.tokens} tokens, {bytes_text(run.payload_bytes)}, "
        f"LOOKUP {ms_text(run.lookup_s)}, RETRIEVE at "
        f"{bandwidth_text(run.retrieve_bytes_per_s)}."
    )
    if not run.passed:
        yield "That run did not pass: its figures may be those of wrong bytes."


def _cells(network: str, row: Row) -> tuple[str, ...]:
    return (
        network,
        ms_text(row.serial_s),
        _gain_text(row.serial_gain_s),
        ms_text(row.pipelined_s),
        _gain_text(row.pipelined_gain_s),
    )


def _gain_text(gain_s: float) -> str:
    return f"{gain_s * 1e3:+.1f} ms {'gain' if gain_s > 0 else 'loss' if gain_s < 0 else 'even'}"


def _line(cells: tuple[str, ...]) -> str:
    network, serial, serial_gain, pipelined, pipelined_gain = cells
    return f"{network:<19}{serial:>13}{serial_gain:>18}{pipelined:>13}{pipelined_gain:>18}"


def _turn_line(how: str, turn: Turn) -> str:
    if turn.why_never:
        return f"With {how}, a hit never pays: {turn.why_never}."
    return f"With {how}, a hit pays above {bandwidth_text(turn.network_bytes_per_s)} of network."


def _row_document(row: Row) -> dict[str, Any]:
    local = math.isinf(row.network_bytes_per_s)
    return {
        "network_bytes_per_s": None if local else row.network_bytes_per_s,
        "serial_ms": row.serial_s * 1e3,
        "serial_gain_ms": row.serial_gain_s * 1e3,
        "pipelined_ms": row.pipelined_s * 1e3,
        "pipelined_gain_ms": row.pipelined_gain_s * 1e3,
    }


def _turn_document(hit: Hit, *, pipelined: bool) -> dict[str, Any]:
    turn = hit.turns(pipelined=pipelined)
    return {
        "network_bytes_per_s": None if turn.why_never else turn.network_bytes_per_s,
        "why_never": turn.why_never,
    }
