"""Small files of the kernel, read whole or as far as they are expected to go."""

from __future__ import annotations

from pathlib import Path

MOST_BYTES = 1 << 20
"""/proc/cpuinfo of a machine with 256 CPUs has 400 KB."""


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Return what stands in a file, or "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """Return the number in a file, or None if there is none."""
    text = read_text(path, 64).strip()
    return int(text) if text.isascii() and text.isdigit() else None
