"""The baseline as a scenario: which sequences it runs, and what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchserver.check.content import SOURCE
from benchserver.check.digests import DIGESTS
from benchserver.check.judging import judge
from benchserver.check.transfers import STORE
from benchserver.check.verdict import Check
from benchserver.clock import NS_PER_S
from benchserver.config import RunConfig
from benchserver.options.baseline import MAX_SEQUENCES
from benchserver.scenarios.baseline.checks import CHECKS, JUDGES, VISIBILITY, WARM_LOOKUP
from benchserver.scenarios.baseline.plan import PROBES, SKIPPED_TOKENS, Probing
from benchserver.scenarios.baseline.probes import PARTIAL, PROBE_CHECKS, probes_made
from benchserver.scenarios.baseline.series import RATES, SERIES, count
from benchserver.stage.stage import Stage
from benchserver.stage.traits import Omissions, Traits

if TYPE_CHECKING:
    from benchserver.scenarios.baseline.passes import Baseline


class Gate:
    """Every sequence once cold, once warm, every byte proven."""

    def __init__(self, config: RunConfig) -> None:
        self._start = config.start
        self._end = MAX_SEQUENCES if config.end is None else config.end

    @property
    def traits(self) -> Traits:
        """Return what is known of it before anything is sent."""
        return Traits(
            name="baseline",
            unit="sequence",
            checks=CHECKS,
            probes=PROBES,
            series=SERIES,
            rates=RATES,
            turns=range(self._start, self._end),
        )

    def omissions(self, stage: Stage) -> Omissions:
        """Return the checks and probes that this run leaves out, and why."""
        probing = _probing(stage)
        checks: dict[Check, str] = {}
        if probing.leaves_out_digests:
            checks[DIGESTS] = "left out: those of overwritten sources"
        checks |= _skipped(stage)
        probes = {probe: probing.why_never(probe) for probe in PROBES}
        for probe, never in probes.items():
            if never and probe in PROBE_CHECKS:
                checks[PROBE_CHECKS[probe]] = never
        every = stage.config.partial_every
        if every > 1 and not probes[SKIPPED_TOKENS]:
            checks[PARTIAL] = (
                f"the first, and 0, {every}, {2 * every}, ...; --partial-retrieve-every {every}"
            )
        return Omissions(checks=checks, probes=probes)

    async def play(self, stage: Stage) -> None:
        """Run one sequence after the other, and conclude each."""
        baseline = _baseline(stage)
        for seq in range(self._start, self._end):
            if seq > self._start:
                await stage.clock.sleep_ns(int(stage.config.interval_s * NS_PER_S))
            records, fatal = await baseline.run_sequence(seq)
            count(records[0], stage.measures)
            await stage.conclude(
                records[0].label,
                [finding for record in records for finding in judge(record, JUDGES)],
                probes=[probe for record in records for probe in probes_made(record)],
                over=fatal is not None,
            )
            if fatal is not None:
                raise fatal


def _baseline(stage: Stage) -> Baseline:
    # Loaded here: the first call does not wait for numpy.
    from benchserver.scenarios.baseline.passes import Baseline

    crew = stage.crew
    return Baseline(
        stage.config,
        chunk_tokens=crew.geometry.chunk_tokens,
        nonce=stage.nonce,
        workers=crew.workers,
        desk=crew.desk,
        keys=crew.keys,
        http=stage.met.http,
        cross_check=crew.cross_check,
        probing=_probing(stage),
        content_root=crew.content_root,
        clock=stage.clock,
        executor=stage.threads,
        emit=stage.emit,
        alive=stage.met.alive,
        finishing=stage.finishing,
    )


def _probing(stage: Stage) -> Probing:
    config, geometry = stage.config, stage.crew.geometry
    return Probing(
        start=config.start,
        end=config.end,
        chunks=geometry.chunks,
        blocks=geometry.blocks,
        transport=stage.server.transport,
        expect_warm=config.expect_warm,
        partial_every=config.partial_every,
        partial_skip=config.partial_skip,
    )


def _skipped(stage: Stage) -> dict[Check, str]:
    """Return the checks that the options leave out."""
    skipped: dict[Check, str] = {}
    if not stage.config.cross_check:
        skipped[DIGESTS] = "--no-http"
    elif not stage.crew.cross_check:
        skipped[DIGESTS] = "the server's digest API covers lmcache_driven workers alone"
    if stage.config.expect_warm:
        for check in (STORE, VISIBILITY, WARM_LOOKUP, SOURCE):
            skipped[check] = "--expect-warm stores nothing"
    return skipped
