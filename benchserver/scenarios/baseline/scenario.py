"""The baseline as a scenario: which sequences it runs, and what it leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from benchserver.check.content import SOURCE
from benchserver.check.digests import DIGESTS
from benchserver.check.dropped import DROPPED, DroppedAccount, all_dropped, dropped_of
from benchserver.check.judging import judge
from benchserver.check.transfers import STORE
from benchserver.check.verdict import Check, Finding
from benchserver.clock import NS_PER_S
from benchserver.errors import RESTARTS, FatalError
from benchserver.history import SequenceRecord
from benchserver.scenarios.baseline.checks import CHECKS, JUDGES, VISIBILITY, WARM_LOOKUP
from benchserver.scenarios.baseline.config import BaselineConfig
from benchserver.scenarios.baseline.plan import PROBES, SKIPPED_TOKENS, Probing
from benchserver.scenarios.baseline.probes import PARTIAL, PROBE_CHECKS, probes_made
from benchserver.scenarios.baseline.series import RATES, SERIES, count
from benchserver.scenarios.dropped import dropped_section
from benchserver.stage.stage import Crew, Stage
from benchserver.stage.traits import Omissions, Traits
from benchserver.tasks import gather_all

if TYPE_CHECKING:
    from benchserver.scenarios.baseline.passes import Setting
    from benchserver.scenarios.baseline.sequences import Sequences

_REMEMBERED = 16
"""How many past sequences of each client a wrong page can be traced to."""


class Baseline:
    """Every sequence once cold, once warm, every byte proven."""

    def __init__(self, config: BaselineConfig, *, owes_growth: bool = False) -> None:
        """`owes_growth`: a run that cannot tell yet whether anything grows is not proven."""
        self._config = config
        self._owes_growth = owes_growth
        self._turns: dict[int, Iterator[tuple[int, int]]] = {}
        """What each client has yet to do: it goes on there if the server is lost and comes back."""
        self._account: DroppedAccount | None = None
        self._began_ns: int | None = None

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
            clients=self._config.clients,
            at_once=self._config.clients,
            owes_growth=self._owes_growth,
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
        """Run one sequence after the other on each client, and conclude each."""
        model_name = stage.crews[0].engine.model_name
        counters = await stage.met.condition.counters(model_name)
        if self._account is None:
            self._account = DroppedAccount(counters)
            stage.book.add_section(partial(dropped_section, self._account))
        else:
            self._account.restarted(counters)
        account = self._account
        goes_on = False
        try:
            settings = settings_of(self._config, stage, account)
            await gather_all(self._play_client(setting) for setting in settings)
        except RESTARTS:
            goes_on = stage.survives
            raise
        finally:
            if self._config.max_dropped and not goes_on:
                stage.book.ledger.add([account.finding(self._config.max_dropped)])

    async def _play_client(self, setting: Setting) -> None:
        """Run the sequences of one client; what it cannot go on after ends the others too."""
        stage, sequences = setting.stage, sequences_of(self._config, setting.crew, setting.stage)
        if self._began_ns is None:
            self._began_ns = stage.clock.now_ns()
        began_ns, lasts_s = self._began_ns, self._config.duration_s
        client = setting.crew.number
        turns = self._turns.setdefault(client, enumerate(self._config.turns_of(client)))
        for number, seq in turns:
            if number:
                await stage.rest_ns(int(self._config.interval_s * NS_PER_S))
            if lasts_s is not None and stage.clock.now_ns() - began_ns >= lasts_s * NS_PER_S:
                return
            try:
                records, fatal = await run_sequence(sequences, setting, seq)
            except asyncio.CancelledError:
                if stage.survives and stage.connections.lost:  # another client heard of it first
                    stage.book.cut_short(f"seq={seq}")
                raise
            count(records[0], stage.measures)
            steps = [(record.label, step) for record in records for step in record.steps]
            await stage.conclude(
                records[0].label,
                [finding for record in records for finding in findings_on(record)],
                probes=[probe for record in records for probe in probes_made(record)],
                steps=() if setting.tells_at_once else steps,
                fatal=fatal,
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


def settings_of(config: BaselineConfig, stage: Stage, account: DroppedAccount) -> list[Setting]:
    """Return the setting of each client's sequences; what they share is that of one machine."""
    from collections import deque

    from benchserver.kv.owners import Candidate
    from benchserver.scenarios.baseline.passes import Setting
    from benchserver.scenarios.digests import digesters_on
    from benchserver.scenarios.proof import Prover

    clients = len(stage.crews)
    past = deque[Candidate](maxlen=_REMEMBERED * clients)
    return [
        Setting(
            stage=stage,
            crew=crew,
            config=config,
            prover=Prover(
                crew.workers,
                digester,
                stage.threads,
                sources=() if config.expect_warm else crew.engine.writers,
            ),
            past=past,
            account=account,
            tells_at_once=clients == 1,
        )
        for crew, digester in zip(stage.crews, digesters_on(stage), strict=True)
    ]


def sequences_of(config: BaselineConfig, crew: Crew, stage: Stage) -> Sequences:
    from benchserver.scenarios.baseline.sequences import Sequences

    return Sequences(
        seed=crew.engine.seed,
        geometry=crew.geometry,
        content_root=crew.content_root,
        probing=_probing(config, stage),
        blocks=lambda seq: tuple(
            crew.engine.block_plan(crew.geometry, turn=config.turn_of(seq), rank=worker.rank)
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
