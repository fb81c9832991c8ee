"""Transport: the bytes took the way that the user required."""

from __future__ import annotations

from benchserver.check.verdict import Check, Finding, failed, passed

TRANSPORT = Check("transport", "the transport that was asked for was used")

_REMEDY = {
    "shm": "start the server with --supported-transfer-mode auto --shm-name NAME and use "
    "--transfer-mode engine_driven",
    "inline": "start the server with --supported-transfer-mode auto without --shm-name and use "
    "--transfer-mode engine_driven",
    "handle": "use --transfer-mode lmcache_driven",
}


def judge_transport(required: str, taken: set[str]) -> Finding:
    """Return the finding; `required` "" accepts any one transport for all ranks."""
    if len(taken) > 1:
        return failed(TRANSPORT, f"ranks took different transports: {sorted(taken)}")
    if required and taken != {required}:
        shown = ", ".join(sorted(taken)) or "none"
        return failed(
            TRANSPORT,
            f"--require-transport {required}, but {shown} was negotiated; {_REMEDY[required]}",
        )
    return passed(TRANSPORT)
