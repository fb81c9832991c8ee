"""What a server's `/status` says of its health: which of its parts are not well, in words.

All releases from 0.4.7 on say `is_healthy` of the whole and of every part, and `thread_alive` of
what has a thread of its own, as `event_loop_alive` of some tiers.  The whole document is looked
through, so that a part that a later release adds is seen too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.values import clip

_HEALTHY = "is_healthy"
_ALIVE = "_alive"
_MOST = 64
"""How many parts that are not well are kept."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is said: by how many parts, and which of them are not well, in words."""

    said: int = 0
    bad: tuple[str, ...] = ()


NOTHING_SAID = Health()


def read_health(document: Any) -> Health:
    """Look through a decoded document of whatever shape."""
    said = 0
    bad: dict[Path, str] = {}
    for path, part in _parts(document):
        flags = {name: value for name, value in part.items() if _is_flag(name, value)}
        said += len(flags)
        wrong = [f"{name} {_shown(value)}" for name, value in flags.items() if value is not True]
        if wrong and len(bad) < _MOST:
            bad[path] = f"{'.'.join(path) or 'the server'} ({', '.join(wrong)})"
    # A part is not well because of those in it: they are the cause.
    causes = {path[:depth] for path in bad for depth in range(len(path))}
    return Health(said=said, bad=tuple(bad[path] for path in bad if path not in causes))


def _parts(document: Any) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield every map of a document with its place, except those that stand there twice."""
    pending: list[tuple[Path, Any]] = [((), document)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict):
            yield path, value
            pending += [
                ((*path, clip(name)[1:-1]), value[name])
                for name in reversed(value)
                if not _is_plural(name, value)
            ]
        elif isinstance(value, list):
            pending += [((*path, str(i)), item) for i, item in reversed([*enumerate(value)])]


def _is_plural(name: str, siblings: Mapping[str, Any]) -> bool:
    """`l1_managers` beside `l1_manager`: the same part, if there is only one (0.5.6)."""
    return name.endswith("s") and name[:-1] in siblings


def _is_flag(name: str, value: Any) -> bool:
    return name == _HEALTHY or (name.endswith(_ALIVE) and isinstance(value, bool))


def _shown(value: Any) -> str:
    return "false" if value is False else clip(value)
