"""The baseline as a scenario: which sequences it runs, and what it leaves out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchserver.check.content import SOURCE
from benchserver.check.digests import DIGESTS
from benchserver.check.dropped import DROPPED, DroppedAccount, all_dropped, dropped_of
from benchserver.check.judging import judge
from benchserver.check.transfers import STORE
from benchserver.check.verdict import Check, Finding
from benchserver.clock import NS_PER_S
from benchserver.errors import FatalError
from benchserver.history import SequenceRecord
from benchserver.scenarios.baseline.checks import CHECKS, JUDGES, VISIBILITY, WARM_LOOKUP
from benchserver.scenarios.baseline.config import BaselineConfig
from benchserver.scenarios.baseline.plan import PROBES, SKIPPED_TOKENS, Probing
from benchserver.scenarios.baseline.probes import PARTIAL, PROBE_CHECKS, probes_made
from benchserver.scenarios.baseline.series import RATES, SERIES, count
from benchserver.scenarios.dropped import dropped_section
from benchserver.stage.stage import Stage
from benchserver.stage.traits import Omissions, Traits

if TYPE_CHECKING:
    from benchserver.scenarios.baseline.passes import Setting
    from benchserver.scenarios.baseline.sequences import Sequences

_REMEMBERED = 16
"""How many past sequences a wrong page can be traced to."""


class Baseline:
    """Every sequence once cold, once warm, every byte proven."""

    def __init__(self, config: BaselineConfig) -> None:
        self._config = config

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
            turns=self._config.turns,
        )

    def omissions(self, stage: Stage) -> Omissions:
        """Return the checks and probes that this run leaves out, and why."""
        probing, every = _probing(self._config, stage), self._config.partial_every
        checks: dict[Check, str] = {}
        if probing.leaves_out_digests:
            checks[DIGESTS] = "left out: those of overwritten sources"
        checks |= _skipped(self._config, stage)
        probes = {probe: probing.why_never(probe) for probe in PROBES}
        for probe, never in probes.items():
            if never and probe in PROBE_CHECKS:
                checks[PROBE_CHECKS[probe]] = never
        if every > 1 and not probes[SKIPPED_TOKENS]:
            checks[PARTIAL] = (
                f"the first, and 0, {every}, {2 * every}, ...; --partial-retrieve-every {every}"
            )
        return Omissions(checks=checks, probes=probes)

    async def play(self, stage: Stage) -> None:
        """Run one sequence after the other, and conclude each."""
        model_name = stage.crews[0].engine.model_name
        account = DroppedAccount(await stage.met.condition.counters(model_name))
        stage.book.add_section(partial(dropped_section, account))
        try:
            await self._play(stage, account)
        finally:
            if self._config.max_dropped:
                stage.book.ledger.add([account.finding(self._config.max_dropped)])

    async def _play(self, stage: Stage, account: DroppedAccount) -> None:
        sequences = sequences_of(self._config, stage)
        setting = setting_of(self._config, stage, account)
        for seq in self._config.turns:
            if seq > self._config.start:
                await stage.clock.sleep_ns(int(self._config.interval_s * NS_PER_S))
            records, fatal = await run_sequence(sequences, setting, seq)
            count(records[0], stage.measures)
            await stage.conclude(
                records[0].label,
                [finding for record in records for finding in findings_on(record)],
                probes=[probe for record in records for probe in probes_made(record)],
                over=fatal is not None,
            )
            if fatal is not None:
                raise fatal


def findings_on(record: SequenceRecord) -> list[Finding]:
    """Return every finding on a sequence; one that may be dropped owes nothing after that."""
    found, lost = judge(record, JUDGES), dropped_of(record)
    if lost is not None and lost.allowed and all_dropped(record):
        return [finding for finding in found if not finding.follows]
    return found


async def run_sequence(
    sequences: Sequences, setting: Setting, seq: int
) -> tuple[list[SequenceRecord], FatalError | None]:
    """Run one sequence to its end, or to the point where it could not go on.

    Returns the record of the sequence, and that of a request that goes with it, if one does.
    """
    # Loaded here: the first call does not wait for numpy.
    from benchserver.scenarios.baseline.passes import Passes

    record, fatal = await Passes(setting, sequences.plan(seq)).run()
    if fatal is not None or not sequences.probing.needs_equal_chunks(seq):
        return [record], fatal
    aside, fatal = await Passes(setting, sequences.plan_aside(seq)).run()
    return [record, aside], fatal


def setting_of(config: BaselineConfig, stage: Stage, account: DroppedAccount) -> Setting:
    from collections import deque

    from benchserver.scenarios.baseline.passes import Setting
    from benchserver.scenarios.proof import Prover

    (crew,) = stage.crews
    prover = Prover(
        crew.workers,
        stage.met.http if crew.cross_check else None,
        stage.threads,
        sources=() if config.expect_warm else crew.engine.writers,
        geometry=crew.geometry,
    )
    return Setting(
        stage=stage,
        crew=crew,
        config=config,
        prover=prover,
        past=deque(maxlen=_REMEMBERED),
        account=account,
    )


def sequences_of(config: BaselineConfig, stage: Stage) -> Sequences:
    from benchserver.scenarios.baseline.sequences import Sequences

    (crew,) = stage.crews
    return Sequences(
        seed=crew.engine.seed,
        geometry=crew.geometry,
        content_root=crew.content_root,
        probing=_probing(config, stage),
        blocks=lambda turn: tuple(
            crew.engine.block_plan(crew.geometry, turn=turn, rank=worker.rank)
            for worker in crew.workers
        ),
    )


def _probing(config: BaselineConfig, stage: Stage) -> Probing:
    geometry = stage.crews[0].geometry
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


def _skipped(config: BaselineConfig, stage: Stage) -> dict[Check, str]:
    """Return the checks that the options leave out."""
    skipped: dict[Check, str] = {}
    if not stage.target.needs_http:
        skipped[DIGESTS] = "--no-http"
    elif not stage.crews[0].cross_check:
        skipped[DIGESTS] = "the server's digest API covers lmcache_driven workers alone"
    if config.expect_warm:
        for check in (STORE, DROPPED, VISIBILITY, WARM_LOOKUP, SOURCE):
            skipped[check] = "--expect-warm stores nothing"
    return skipped
