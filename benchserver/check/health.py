"""Health: what the server says of its own parts, and what of that explains a failed sequence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from benchserver.check.verdict import Check, Finding, Verdict, failed, passed, unproven
from protocol.health import Health
from protocol.httpapi import ServerStatus
from protocol.metrics import FAILURES

HEALTH = Check("health", "before the run and after it, the server is well by its own /status")

_SHOWN = 3
_FULL = 0.9
"""The used share of L1 from which on a sequence may well have found no room."""


def judge_health(health: Health, when: str) -> Finding:
    """Return the finding on what /status says `when`: before or after the run."""
    if not health.said:
        return unproven(HEALTH, f"{when} the run, /status says nothing about its health")
    if not health.bad:
        return passed(HEALTH)
    return failed(
        HEALTH,
        f"{when} the run, the server is not well, by its own /status: {_listed(health.bad)}; see "
        "its log, and restart it",
    )


def causes(
    status: ServerStatus, ours: frozenset[int], failures: Mapping[str, int]
) -> tuple[str, ...]:
    """Return what explains that a sequence failed; `failures` are those since the run began."""
    found: list[str] = []
    missing = sorted(ours - (status.handle_instances | status.engine_instances))
    if missing:
        found.append(
            f"our registration of instance {', '.join(map(str, missing))} is gone: the server gave "
            "it up, or was restarted"
        )
    if status.health.bad:
        found.append(f"not well: {_listed(status.health.bad)}")
    if status.l1_bytes and status.l1_used >= _FULL * status.l1_bytes:
        kept = f"; it is to be emptied from {status.l1_watermark:g} on" * bool(status.l1_watermark)
        found.append(f"L1 is full, {status.l1_used} of {status.l1_bytes} bytes{kept}")
    found += [
        f"{count} {FAILURES[name]} since the run began (/metrics)"
        for name, count in failures.items()
        if count > 0
    ]
    return tuple(found)


def explain(findings: Iterable[Finding], found: Iterable[str]) -> list[Finding]:
    """Say in the first failure that `found` may explain what was found."""
    explained, text = list(findings), "; ".join(found)
    for index, finding in enumerate(explained):
        if text and finding.check.explained and finding.verdict is Verdict.INVALID:
            said = f"{finding.text}; the server's /status says: {text}"
            explained[index] = replace(finding, text=said)
            break
    return explained


def _listed(parts: tuple[str, ...]) -> str:
    more = f", and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return ", ".join(parts[:_SHOWN]) + more
