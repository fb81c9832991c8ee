"""The HTTP token: where it comes from, and that the process list does not show it."""

from __future__ import annotations

from pathlib import Path

from benchserver.errors import UsageError, os_reason

_MAX_FILE_BYTES = 8192
_FIRST_ARGUMENT_FIELD = 48
"""`arg_start` in /proc/self/stat, counted from 1; `arg_end` is the next."""


def read_token(token: str | None, path: str | None) -> str:
    """Return the token, or "" if none is asked for; raises UsageError, which never shows it."""
    option = "--http-token"
    if path is not None:
        option = f"--http-token-file {path!r}"
        if token is not None:
            raise UsageError("--http-token and --http-token-file are both given; leave one out")
        token = _file_token(path)
    if token == "":
        raise UsageError(f"{option}: the HTTP token is empty; leave it out, or give a token")
    if token:
        # Loaded here: wrong usage of other options is told without the protocol.
        from protocol.httpapi import token_problem

        if problem := token_problem(token):
            raise UsageError(f"{option}: {problem}")
    return token or ""


def hide_from_process_list(secret: str) -> None:
    """Overwrite an argument that holds the secret, as `ps` and /proc show them (Linux).

    Raises UsageError where that is not possible: what everybody sees is not a secret.
    """
    needle = secret.encode("utf-8", "surrogateescape")
    try:
        if needle not in Path("/proc/self/cmdline").read_bytes():
            return
        start, end = _argument_range()
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            shown = memory.read(end - start)
            memory.seek(start)
            memory.write(shown.replace(needle, b"x" * len(needle)))
        hidden = needle not in Path("/proc/self/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        hidden = False
    if not hidden:
        raise UsageError(
            "the process list would show the HTTP token; give it by --http-token-file or "
            "BENCH_SERVER_HTTP_TOKEN"
        )


def _argument_range() -> tuple[int, int]:
    # The name before the last ")" may hold anything, so fields are counted from there.
    _, _, rest = Path("/proc/self/stat").read_text().rpartition(") ")
    fields = rest.split()
    index = _FIRST_ARGUMENT_FIELD - 3
    return int(fields[index]), int(fields[index + 1])


def _file_token(path: str) -> str:
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else "no path"
        raise UsageError(f"--http-token-file {path!r}: {reason}") from error
    lines = raw.decode("utf-8", "surrogateescape").splitlines()
    if len(raw) > _MAX_FILE_BYTES or len(lines) != 1:
        raise UsageError(f"--http-token-file {path!r}: expected one line, the token")
    return lines[0]
