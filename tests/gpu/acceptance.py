"""The acceptance runs of gpu mode, and what a finished run says as a row of a table: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.mitm.bench import Ended
from tests.room import stored_bytes

DEFAULT_SPEC = "(2,1024,16,8,128):float16:32"
LONG_TOKENS = 8192
LONG_SPEC = "(2,2048,16,8,128):float16:32"
"""Room for 8192 tokens twice, the canaries and the null block."""

SEQUENCES, QUICK_SEQUENCES = 20, 3
_SHOWN_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceCase:
    """One run, and within which time it must end."""

    name: str
    spec: str
    options: tuple[str, ...] = ()
    tokens: int = 512
    within_s: float = 60.0

    @property
    def ranks(self) -> int:
        """Return how many ranks it has."""
        return 2 if "--tp-size" in self.options else 1

    @property
    def sequence_bytes(self) -> int:
        """Return how much a sequence stores at most."""
        return stored_bytes(self.spec, tokens=self.tokens, sequences=1, ranks=self.ranks)

    def words(self, sequences: int) -> list[str]:
        """Return the options of bench-server."""
        return [
            "--kvcache-shape-spec", self.spec, "--end", str(sequences), "--interval", "0",
            "--transfer-mode", "lmcache_driven", "--num-tokens", str(self.tokens), *self.options,
        ]  # fmt: skip


CASES = (
    AcceptanceCase(name="default spec", spec=DEFAULT_SPEC),
    AcceptanceCase(
        name="two groups, MLA and classical",
        spec="(1,1024,16,1,576):bfloat16:4;(2,1024,16,8,128):bfloat16:28",
    ),
    AcceptanceCase(name="uint8", spec="(2,1024,16,8,128):uint8:32"),
    AcceptanceCase(name="tp 2", spec=DEFAULT_SPEC, options=("--tp-size", "2")),
    AcceptanceCase(
        name="tp 2, MLA", spec="(1,1024,16,1,576):bfloat16:60", options=("--tp-size", "2")
    ),
    AcceptanceCase(name="driver handles", spec=DEFAULT_SPEC, options=("--cuda-ipc", "driver")),
    AcceptanceCase(
        name="8192 tokens",
        spec=LONG_SPEC,
        tokens=LONG_TOKENS,
        within_s=110.0,
    ),
)

HEADER = (
    "| run | exit | proven / run | sequence wall p50, ms | STORE p50, ms | GB/s "
    "| RETRIEVE p50, ms | GB/s | devices |\n|---|---|---|---|---|---|---|---|---|"
)


def row_of(case: AcceptanceCase, ended: Ended) -> str:
    """Return a finished run as a row; what there is no number for is a dash."""
    report = ended.report
    latency, rates = report.get("latency", {}), report.get("throughput_gb_per_s", {})
    sequences = report.get("sequences", {})
    cells = [
        case.name,
        "killed" if ended.timed_out else str(ended.exit_code),
        f"{sequences.get('proven', '-')} / {sequences.get('attempted', '-')}",
        _p50(latency, "sequence wall", 0),
    ]
    for name in ("STORE", "RETRIEVE"):
        rate = rates.get(name)
        cells += [_p50(latency, name, 2), "-" if rate is None else f"{rate:.1f}"]
    numbers = [f"{device['number']}" for device in devices_of(report)]
    cells.append(", ".join(numbers) or "-")
    return f"| {' | '.join(cells)} |"


def _p50(latency: Mapping[str, Any], series: str, digits: int) -> str:
    summary = latency.get(series)
    return "-" if summary is None else f"{summary['p50_ms']:.{digits}f}"


def devices_of(report: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return each rank's device, as the report names it."""
    devices: Sequence[Mapping[str, Any]] = report.get("config", {}).get("devices", [])
    return devices


def problems_of(case: AcceptanceCase, ended: Ended, sequences: int, gpus: int = 1) -> Iterator[str]:
    """Yield what is wrong with a run that must have proven everything.

    Its ranks must lie on as many different devices as there are, up to `gpus`.
    """
    if ended.timed_out:
        yield f"it did not end within {case.within_s:g} s; its last line: {_last_line(ended)}"
        return
    if ended.exit_code != 0:
        yield f"exit {ended.exit_code}: {_last_words(ended)}"
    proven = ended.report.get("sequences", {}).get("proven", 0)
    if proven != sequences:
        yield f"{proven} of {sequences} sequences are proven"
    if ended.exit_code == 0 and ended.bad_checks:
        yield f"exit 0, but {', '.join(sorted(ended.bad_checks))} not valid"
    used = {device["uuid"] for device in devices_of(ended.report)}
    wanted = min(case.ranks, gpus)
    if ended.exit_code == 0 and len(used) < wanted:
        yield f"{case.ranks} ranks on {len(used)} device(s), expected {wanted}"


def _last_line(ended: Ended) -> str:
    lines = (ended.stdout + ended.stderr).strip().splitlines()
    return lines[-1][:_SHOWN_CHARS] if lines else "nothing"


def _last_words(ended: Ended) -> str:
    """Return the first line that says what failed, or the last of all."""
    for line in (ended.stdout + "\n" + ended.stderr).splitlines():
        head = line.partition(": ")[0]
        if line.startswith("bench-server: error: ") or head in ended.bad_checks:
            return line[:_SHOWN_CHARS]
    return _last_line(ended)
