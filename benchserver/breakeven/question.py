"""What is asked: options, and a run's figures for what they leave out, to a hit.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchserver.breakeven.measured import Measured
from benchserver.breakeven.model import Hit
from benchserver.breakeven.options import NETWORKS
from benchserver.breakeven.quantities import BANDWIDTH, SIZE, TIME, TIME_OR_NONE, Quantity, read
from benchserver.errors import UsageError

_MAX_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Network:
    """A network, by its bandwidth and as it was asked for."""

    bytes_per_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A hit, and the networks that are asked about, the slowest first."""

    hit: Hit
    networks: tuple[Network, ...]


def question(options: Mapping[str, Any], run: Measured | None) -> Question:
    """Return what is asked; UsageError, in one line, for what is missing or no quantity."""
    measured: tuple[float | None, float | None, float | None] = (None, None, None)
    if run is not None:
        measured = (run.payload_bytes, run.lookup_s, run.retrieve_bytes_per_s)
    payload_bytes, lookup_s, bytes_per_s = measured
    hit = Hit(
        payload_bytes=_value(options, "--payload", SIZE, payload_bytes),
        saved_s=_saved_s(options, run),
        fixed_s=_value(options, "--fixed", TIME_OR_NONE, lookup_s),
        device_bytes_per_s=_value(options, "--device-bandwidth", BANDWIDTH, bytes_per_s),
    )
    asked = options["network_bandwidth"] or NETWORKS
    if len(asked) > _MAX_ROWS:
        raise UsageError(f"--network-bandwidth: {len(asked)} rows, expected {_MAX_ROWS} at most")
    found = {read("--network-bandwidth", text, BANDWIDTH): text.strip(" ") for text in asked}
    return Question(hit, tuple(Network(rate, found[rate]) for rate in sorted(found)))


def _value(
    options: Mapping[str, Any], name: str, quantity: Quantity, measured: float | None
) -> float:
    text = options[name.removeprefix("--").replace("-", "_")]
    if text is not None:
        return read(name, text, quantity)
    if measured is None:
        raise UsageError(f"{name} is missing: say {quantity.example}, or --run RUN.json")
    return measured


def _saved_s(options: Mapping[str, Any], run: Measured | None) -> float:
    rate, tokens = options["prefill_tokens_per_s"], options["tokens"]
    if options["saved"] is not None:
        for name, value in (("--prefill-tokens-per-s", rate), ("--tokens", tokens)):
            if value is not None:
                raise UsageError(
                    f"--saved and {name} are not for one call: each says what is saved"
                )
        return read("--saved", options["saved"], TIME)
    if rate is None:
        raise UsageError(
            f"--saved is missing: say {TIME.example}, or --prefill-tokens-per-s and the tokens"
        )
    if tokens is None and run is None:
        raise UsageError("--tokens is missing: --prefill-tokens-per-s alone is no time")
    count: int = tokens if tokens is not None or run is None else run.tokens
    return float(count / rate)
