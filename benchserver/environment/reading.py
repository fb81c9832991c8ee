"""Small files of the kernel, read whole or as far as they are expected to go.

What is not there, or cannot be read, is a text that says so, in place of a value.
"""

from __future__ import annotations

from pathlib import Path

MOST_BYTES = 1 << 20
"""/proc/cpuinfo of a machine with 256 CPUs has 400 KB."""

NOT_INSTALLED = "not installed"


def not_known(why: str) -> str:
    """Return what stands where a value is not known."""
    return f"not known: {why}"


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


def field_in(text: str, name: str) -> str:
    """Return what the first line `name: value` of a text says, or ""."""
    for line in text.splitlines():
        found, colon, value = line.partition(":")
        if colon and found.strip() == name:
            return value.strip()
    return ""


def kib_in(text: str, name: str) -> int | None:
    """Return the bytes that a line `name: 12 kB` says, or None."""
    number = field_in(text, name).partition(" ")[0]
    return int(number) * 1024 if number.isascii() and number.isdigit() else None
