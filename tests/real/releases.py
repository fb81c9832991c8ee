"""The releases of the real LMCache server that tests and scripts start, one row each.

Owns what differs between their command lines; all of them take the other options that we use,
answer `/healthcheck`, and say their release on `/version`. Every row was seen on a server of that
release, on CPU. Knows no process and no path, and needs the standard library alone: run as a
program it prints the names, oldest first, for `scripts/lib`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LMCACHE_DRIVEN = "lmcache_driven"
ENGINE_DRIVEN = "engine_driven"
BOTH = "auto"

_GPU_OR_NOT = {LMCACHE_DRIVEN: "gpu", ENGINE_DRIVEN: "non_gpu"}
_DRIVEN = {LMCACHE_DRIVEN: LMCACHE_DRIVEN, ENGINE_DRIVEN: ENGINE_DRIVEN, BOTH: BOTH}


class NotOfferedError(Exception):
    """A release cannot be started as asked; the text says what it offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """How the server of one release is told what it serves."""

    name: str
    mode_option: str
    mode_words: Mapping[str, str]
    """Its word for each of our modes; what it cannot serve is not in it."""
    has_pool: bool
    """Whether `--shm-name` exists. Where it does, "" means: no pool."""
    widest_on_cpu: str
    """The mode that serves the most on CPU. 0.4.6 starts in each, but maps no CPU memory."""
    bench_words: Mapping[str, str]
    """The word of its own `lmcache bench server` for each of our modes on CPU; that of 0.4.6 has
    none, and needs a GPU."""
    bench_inline: bool = False
    """Whether that bench can store without a shared pool: up to 0.5.5 its COMMIT_STORE then
    brings no data."""

    def mode_options(self, mode: str, pool: str) -> tuple[str, ...]:
        """Return the options to serve `mode`, with a pool of that name ("" for none).

        Raises NotOfferedError if this release has no such mode, or no pool.
        """
        if mode not in self.mode_words:
            raise NotOfferedError(
                f"lmcache {self.name} serves {' or '.join(self.mode_words)}, not {mode}"
            )
        options = (self.mode_option, self.mode_words[mode])
        if self.has_pool:
            return (*options, "--shm-name", pool)  # said always: up to 0.5.3 a pool is the default
        if pool:
            raise NotOfferedError(f"lmcache {self.name} has no shared-memory pool")
        return options


def _since_050(name: str, *, bench_inline: bool = False) -> Release:
    return Release(
        name=name,
        mode_option="--supported-transfer-mode",
        mode_words=_DRIVEN,
        has_pool=True,
        widest_on_cpu=BOTH,
        bench_words={LMCACHE_DRIVEN: LMCACHE_DRIVEN, ENGINE_DRIVEN: ENGINE_DRIVEN},
        bench_inline=bench_inline,
    )


RELEASES: tuple[Release, ...] = (
    Release(
        name="0.4.6",
        mode_option="--transfer-mode",
        mode_words=_GPU_OR_NOT,
        has_pool=False,
        widest_on_cpu=ENGINE_DRIVEN,
        bench_words={},
    ),
    Release(
        name="0.4.7",
        mode_option="--supported-transfer-mode",
        mode_words={**_GPU_OR_NOT, BOTH: BOTH},
        has_pool=True,
        widest_on_cpu=BOTH,
        bench_words={LMCACHE_DRIVEN: "handle", ENGINE_DRIVEN: "data"},
    ),
    _since_050("0.5.0"),
    _since_050("0.5.1"),
    _since_050("0.5.2"),
    _since_050("0.5.3"),
    _since_050("0.5.4"),
    _since_050("0.5.5"),
    _since_050("0.5.6", bench_inline=True),
    _since_050("0.5.7rc2", bench_inline=True),
)


def release_named(name: str) -> Release:
    """Return the row of a release; LookupError, naming all of them, for one that has none."""
    for release in RELEASES:
        if release.name == name:
            return release
    known = ", ".join(release.name for release in RELEASES)
    raise LookupError(
        f"{name!r} is not a release that can be started here, expected one of {known}"
    )


if __name__ == "__main__":
    for row in RELEASES:
        print(row.name)
