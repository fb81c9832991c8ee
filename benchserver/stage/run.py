"""One run from first contact to residue audit, with a clean end at any moment.

Owns the order of things and their cleaning up.  The work runs as one task: it ends by itself, by
a fatal error, or because the user asked it to stop; after each of these the server and this
machine are left as they were found, within a bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchserver.check.content import SOURCE
from benchserver.check.digests import DIGESTS
from benchserver.check.judging import judge
from benchserver.check.replies import REPLIES, judge_event
from benchserver.check.run import RUN, new_ledger
from benchserver.check.transfers import STORE
from benchserver.check.transport import judge_transport
from benchserver.check.verdict import (
    Verdict,
    failed,
    passed,
    unproven,
    worst,
)
from benchserver.client import discovery
from benchserver.client.connection import CallFailedError, Connection, Connector
from benchserver.client.http import API_ERRORS, HttpApi
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import LookupDesk
from benchserver.client.names import in_url
from benchserver.client.zmq import ZmqConnector
from benchserver.clock import NS_PER_S, Clock
from benchserver.config import (
    RunConfig,
    check_config,
    check_geometry,
    with_whole_chunk,
)
from benchserver.errors import (
    FatalError,
    ServerGoneError,
    ServerSilentError,
    WorkCancelledError,
    one_line,
)
from benchserver.kv.placement import RankDevice
from benchserver.limits import shortage
from benchserver.reporter import Reporter
from benchserver.result import RunResult, ServerFacts
from benchserver.scenarios.baseline.checks import CHECKS, JUDGES, VISIBILITY, WARM_LOOKUP
from benchserver.scenarios.baseline.plan import PROBES, SKIPPED_TOKENS, Probing
from benchserver.scenarios.baseline.probes import PARTIAL, PROBE_CHECKS, probes_made
from benchserver.scenarios.baseline.series import RATES, SERIES, count
from benchserver.stage.alive import NEVER_NS, AliveCheck
from benchserver.stage.audit import explain_missing
from benchserver.stage.condition import Condition
from benchserver.stage.leaving import Leaving, Opened
from benchserver.stats.measures import Measures
from benchserver.tasks import Threads, cancel_and_wait, run_beside, wait_first
from protocol.dialect import Dialect
from protocol.messages import Event, LateReply
from protocol.ops import Op

if TYPE_CHECKING:
    from benchserver.scenarios.baseline.passes import Baseline
    from benchserver.stage.heartbeat import Heartbeat
    from benchserver.stage.workforce import Workforce

_HOST_THREADS = 4
_GPU_THREADS = 16
"""With the KV in GPU memory, cores have nothing to do but MD5: half a GB/s a thread."""

_NONCE_BYTES = 5
"""Forty bits, so that instance ids, which hold it and the rank, stay exact in JSON."""

_CLEAN_UP_S = 20.0
"""Cleaning up after a run that was not interrupted: a few calls, and the residue audit."""

_INTERRUPTED_CLEAN_UP_S = 2.0
"""After Ctrl-C everything must be over within 3 s, whatever the server does."""

_CLOSE_S = 2.0
_INTERRUPTED_CLOSE_S = 0.3
"""How long pools may take to give their memory back: a device may never answer."""


def _threads(config: RunConfig) -> int:
    """Return how many worker threads a run needs; on GPUs each rank waits in one for events."""
    if config.mode == "cpu":
        return min(_HOST_THREADS, os.cpu_count() or 1)
    return max(min(_GPU_THREADS, os.cpu_count() or 1), config.tp_size + 1)


class Run:
    """One run; call `execute` once."""

    def __init__(
        self,
        config: RunConfig,
        reporter: Reporter,
        *,
        clock: Clock,
        stop: asyncio.Event,
        cancel: threading.Event,
    ) -> None:
        """`stop` asks for a clean end; `cancel` is shared with the worker threads."""
        self._config = config
        self._reporter = reporter
        self._clock = clock
        self._stop = stop
        self._cancel = cancel
        self._server = ServerFacts(rpc_url=config.rpc_url, http_url=config.http_url)
        self._ledger = new_ledger(CHECKS, PROBES)
        self._measures = Measures(SERIES, RATES)
        self._counts = dict.fromkeys(Verdict, 0)
        self._nonce = os.urandom(_NONCE_BYTES)
        self._connector: Connector | None = None
        self.threads = Threads(_threads(config))
        """They may be at work still when the run has ended."""
        self._http: HttpApi | None = None
        self._rpcs: list[Connection] = []
        self._workforce: Workforce | None = None
        self._desk: LookupDesk | None = None
        self._scenario: Baseline | None = None
        self._condition: Condition | None = None
        self._server_gone = False
        self._server_silent = False
        self._devices: tuple[RankDevice, ...] = ()

    async def execute(self) -> RunResult:
        """Run to the end and return the result.

        Raises UsageError if the request turns out to be impossible; all other errors become
        findings.
        """
        check_config(self._config)
        started_ns = self._clock.now_ns()
        work = asyncio.ensure_future(self._work())
        stopper = asyncio.ensure_future(self._stop.wait())
        interrupted = False
        error: BaseException | None = None
        try:
            await asyncio.wait({work, stopper}, return_when=asyncio.FIRST_COMPLETED)
            interrupted = self._stop.is_set()
            if interrupted:
                self._cancel.set()
            if work.done() and not work.cancelled():
                error = work.exception()
                self._server_gone = isinstance(error, ServerGoneError)
                self._server_silent = isinstance(error, ServerSilentError)
        finally:
            await cancel_and_wait([work, stopper])
            await self._clean_up(interrupted)
        if interrupted and isinstance(error, WorkCancelledError):
            error = None  # a thread heard of it before the loop did
        self._judge_end(error)
        return RunResult(
            config=self._config,
            server=self._server,
            devices=self._devices,
            ledger=self._ledger,
            measures=self._measures,
            sequences_ok=self._counts[Verdict.VALID],
            sequences_failed=self._counts[Verdict.INVALID],
            sequences_unproven=self._counts[Verdict.UNKNOWN],
            interrupted=interrupted,
            wall_ns=self._clock.now_ns() - started_ns,
        )

    def _judge_end(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, FatalError):
            text = shortage(error)
            if not text:
                raise error
            error = FatalError(text)
        if error is not None:
            verdict = unproven if isinstance(error, ServerSilentError) else failed
            self._ledger.add([verdict(RUN, one_line(error))])
        elif not sum(self._counts.values()):
            self._ledger.add([unproven(RUN, "no sequence was finished: nothing is proven")])
        else:
            self._ledger.add([passed(RUN)])
        lost = sum(rpc.standing.lost for rpc in self._rpcs)
        if lost:
            self._ledger.add([failed(REPLIES, f"{lost} connections to the server were lost")])
        if not self._ledger.tallies[REPLIES].failed:
            self._ledger.add([passed(REPLIES)])

    async def _work(self) -> None:
        dialect = await self._meet_server()
        await self._first_call(dialect)
        force = await self._set_up_workers(dialect)
        if self._condition is not None:
            await self._condition.check_registered(force.instances)
        finding = judge_transport(self._config.require_transport, force.transports)
        self._ledger.add([finding])
        if finding.verdict is not Verdict.VALID:
            raise FatalError(finding.text)
        self._scenario = self._make_scenario(force)
        if not dialect.pings_name_instances:
            await self._run_sequences(self._scenario)
            return
        heartbeat = self._heartbeat(force)
        await heartbeat.beat()
        await run_beside(self._run_sequences(self._scenario), heartbeat.run())

    def _heartbeat(self, force: Workforce) -> Heartbeat:
        from benchserver.stage.heartbeat import Heartbeat, interval_ns

        def missed(rank: int, text: str) -> None:
            self._ledger.add([unproven(REPLIES, f"rank={rank}: {text}")])

        before = None if self._condition is None else self._condition.before
        reap_timeout_s = 0.0 if before is None else before.reap_timeout_s
        return Heartbeat(
            force.workers,
            every_ns=interval_ns(reap_timeout_s),
            clock=self._clock,
            missed=missed,
        )

    @property
    def _instances(self) -> frozenset[int]:
        return frozenset() if self._workforce is None else self._workforce.instances

    def release_segments(self) -> None:
        """Take our names out of /dev/shm and free the memory, at once."""
        if self._workforce is not None:
            self._workforce.release()

    # First contact

    async def _meet_server(self) -> Dialect:
        """Reach the server and learn its release."""
        config, parts = self._config, urlsplit(self._config.rpc_url)
        self._reporter.note(
            f"Connecting to LMCache MP Server at {config.rpc_url} (mode={config.mode}) ..."
        )
        host, port = parts.hostname or "", parts.port or 0
        address = await discovery.reach(
            host,
            port,
            clock=self._clock,
            wait_s=config.wait_ready_s,
            timeout_s=config.timeout_s,
        )
        self._connector = ZmqConnector(
            config.rpc_url,
            clock=self._clock,
            timeout_ns=int(config.timeout_s * NS_PER_S),
            address=f"tcp://{in_url(address)}:{port}",
        )
        self._http = HttpApi(
            config.http_url,
            timeout_s=config.timeout_s,
            token=config.http_token,
            ca=config.http_ca,
        )
        try:
            wait_s = config.wait_ready_s if config.cross_check else 0.0
            self._server.version = await discovery.read_version(
                self._http, clock=self._clock, wait_s=wait_s
            )
        except API_ERRORS as error:
            self._reporter.note(f"Server version unknown: {one_line(error)}")
        dialect = await discovery.choose_dialect(
            config,
            self._server.version,
            lambda question: self._new_rpc(question, rank=0),
            self._reporter.note,
        )
        self._http.routes = dialect.http
        self._server.release = config.server_release or dialect.name
        self._reporter.note(
            f"Server version = {self._server.version or 'unknown'}, spoken to as "
            f"{self._server.release}, seed = {config.seed}"
        )
        return dialect

    async def _first_call(self, dialect: Dialect) -> None:
        """GET_CHUNK_SIZE, and whatever can be checked once it is known.

        Of a wrong release it could be CLEAR: first the release is confirmed, unless it was found
        out by questions anyway.
        """
        rpc = self._open_rpc(dialect, rank=0)
        if self._config.server_release or discovery.dialect_of_version(self._server.version):
            await discovery.confirm_release(
                rpc,
                self._config,
                self._server.version,
                lambda question: self._new_rpc(question, rank=0),
                self._reporter.note,
            )
        try:
            reply = await rpc.call(Op.GET_CHUNK_SIZE)
        except CallFailedError as error:
            raise FatalError(
                f"{self._config.rpc_url} is reachable, but {error}; it is no LMCache MP server of "
                f"release {self._server.release}, or its RPC thread is dead"
            ) from error
        chunk_tokens = int(reply.result)
        if not 0 < chunk_tokens <= 1 << 24:
            raise FatalError(f"GET_CHUNK_SIZE answered {chunk_tokens}, expected a positive size")
        self._server.chunk_tokens = chunk_tokens
        self._reporter.note(f"Server chunk_size = {chunk_tokens}")
        self._reporter.note(f"Resolved KV shape spec: {self._config.spec.text}")
        asked = self._config.num_tokens
        self._config = with_whole_chunk(self._config, chunk_tokens)
        if self._config.num_tokens != asked:
            self._reporter.note(
                f"--num-tokens = {chunk_tokens}, one chunk: the default of {asked} holds none"
            )
        check_geometry(self._config.geometry(chunk_tokens))
        assert self._http is not None
        self._condition = Condition(
            self._config, self._http, clock=self._clock, ledger=self._ledger
        )
        await self._condition.look_before(chunk_tokens)

    async def _served_mode(self) -> str:
        """Return the server's transfer mode, or "" if it does not say."""
        assert self._http is not None
        with contextlib.suppress(*API_ERRORS):
            return await self._http.transfer_mode()
        return ""

    # Workers

    def _open_rpc(self, dialect: Dialect, rank: int) -> Connection:
        """Open a connection that lives as long as the run."""
        rpc = self._new_rpc(dialect, rank)
        self._rpcs.append(rpc)
        return rpc

    def _new_rpc(self, dialect: Dialect, rank: int) -> Connection:
        def observe(event: Event) -> None:
            if isinstance(event, LateReply) and event.withdrawn:
                return  # we were told to stop, and the server could not know
            alive_ns = NEVER_NS if self._scenario is None else self._scenario.alive.answered_ns
            now_ns = self._clock.now_ns()
            self._ledger.add([judge_event(event, rank, now_ns=now_ns, alive_ns=alive_ns)])

        assert self._connector is not None
        return self._connector.open(dialect, observe)

    async def _set_up_workers(self, dialect: Dialect) -> Workforce:
        # Loaded here: the first call does not wait for numpy.
        from benchserver.shmnames import sweep_stale
        from benchserver.stage.workforce import Workforce

        served, groups = await self._served_mode(), len(self._config.spec.groups)
        spec = self._config.spec
        discovery.check_groups(dialect, spec.text, {group.is_mla for group in spec.groups})
        choice = discovery.choose_transfer(
            self._config.transfer, served, groups, dialect, gpu=self._config.mode == "gpu"
        )
        discovery.check_slots(choice, self._config.geometry(self._server.chunk_tokens).chunks)
        for name in sweep_stale():
            self._reporter.note(f"Removed {name}, left by a bench-server that was killed")
        self._workforce = force = Workforce(
            self._config,
            choice=choice,
            served=served,
            chunk_tokens=self._server.chunk_tokens,
            nonce=self._nonce,
            clock=self._clock,
            executor=self.threads,
            cancel=self._cancel,
        )
        await force.build(lambda rank: self._open_rpc(dialect, rank) if rank else self._rpcs[0])
        self._server.transfer_mode = choice.value
        self._note_devices(force)
        await self._register(force)
        self._server.transport = ", ".join(sorted(force.transports))
        count = self._config.tp_size
        self._reporter.note(
            f"Transfer mode = {choice.value} over {self._server.transport}, "
            f"{count} {'workers' if count > 1 else 'worker'}"
        )
        return force

    async def _register(self, force: Workforce) -> None:
        """Register all workers; a server that answers nothing else either may only be stopped."""
        from benchserver.stage.workforce import UnregisteredError

        try:
            await force.register()
        except UnregisteredError as error:
            await AliveCheck(self._rpcs[0], self._http, self._clock).ask(error.seen)
            raise

    def _note_devices(self, force: Workforce) -> None:
        self._devices = tuple(force.devices)
        for device in self._devices:
            self._reporter.note(
                f"KV pool of rank {device.rank} on cuda:{device.number}, {device.name}, "
                f"{device.uuid}"
            )
        if force.slow_kernels:
            self._reporter.note(
                "Content is written and compared by torch, not by Triton, outside of all "
                f"latencies: {force.slow_kernels}"
            )

    # The scenario

    def _make_keys(self) -> KeyMaker:
        config = self._config
        return KeyMaker(
            model_name=config.model_name,
            world_size=config.world_size,
            cache_salt=config.cache_salt,
            readers=config.readers_per_object,
        )

    def _make_scenario(self, force: Workforce) -> Baseline:
        from benchserver.kv.pattern import content_seed
        from benchserver.scenarios.baseline.passes import Baseline

        config, keys = self._config, self._make_keys()
        cross_check = config.cross_check and self._server.transport == "handle"
        self._desk = LookupDesk(
            self._rpcs[0],
            keys,
            kv_ranks=[worker.kv_rank for worker in force.workers],
            tp_size=config.tp_size,
            chunk_tokens=self._server.chunk_tokens,
            clock=self._clock,
            timeout_ns=int(config.timeout_s * NS_PER_S),
        )
        return Baseline(
            config,
            chunk_tokens=self._server.chunk_tokens,
            nonce=self._nonce.hex(),
            workers=force.workers,
            desk=self._desk,
            keys=keys,
            http=self._http,
            cross_check=cross_check,
            probing=self._probing(cross_check),
            content_root=content_seed(config.seed, config.cache_salt),
            clock=self._clock,
            executor=self.threads,
            emit=self._reporter.step,
        )

    def _probing(self, cross_check: bool) -> Probing:
        """Return what decides the probes, and tell the ledger what cannot be looked at."""
        config, geometry = self._config, self._config.geometry(self._server.chunk_tokens)
        probing = Probing(
            start=config.start,
            end=config.end,
            chunks=geometry.chunks,
            blocks=geometry.blocks,
            transport=self._server.transport,
            expect_warm=config.expect_warm,
            partial_every=config.partial_every,
            partial_skip=config.partial_skip,
        )
        if probing.leaves_out_digests:
            self._ledger.skip(DIGESTS, "left out: those of overwritten sources")
        self._skip_checks(cross_check)
        for probe in PROBES:
            never = probing.why_never(probe)
            self._ledger.rule_out(probe, never)
            if never and probe in PROBE_CHECKS:
                self._ledger.skip(PROBE_CHECKS[probe], never)
        every = config.partial_every
        if every > 1 and not probing.why_never(SKIPPED_TOKENS):
            which = f"the first, and 0, {every}, {2 * every}, ...; --partial-retrieve-every {every}"
            self._ledger.skip(PARTIAL, which)
        return probing

    def _skip_checks(self, cross_check: bool) -> None:
        if not self._config.cross_check:
            self._ledger.skip(DIGESTS, "--no-http")
        elif not cross_check:
            reason = "the server's digest API covers lmcache_driven workers alone"
            self._ledger.skip(DIGESTS, reason)
        if self._config.expect_warm:
            for check in (STORE, VISIBILITY, WARM_LOOKUP, SOURCE):
                self._ledger.skip(check, "--expect-warm stores nothing")

    async def _run_sequences(self, scenario: Baseline) -> None:
        seq = self._config.start
        while self._config.end is None or seq < self._config.end:
            if seq > self._config.start:
                await self._clock.sleep_ns(int(self._config.interval_s * NS_PER_S))
            records, fatal = await scenario.run_sequence(seq)
            findings = [finding for record in records for finding in judge(record, JUDGES)]
            if fatal is None and self._condition is not None:
                findings = await self._condition.explain(findings, self._instances)
            self._ledger.add(findings)
            for record in records:
                self._ledger.add_probes(probes_made(record))
            count(records[0], self._measures)
            self._counts[worst(findings)] += 1
            self._reporter.sequence(records[0], findings)
            if fatal is not None:
                raise fatal
            if any(rpc.standing.lost for rpc in self._rpcs):
                raise FatalError(
                    f"the connection to {self._config.rpc_url} was lost during seq={seq}: a "
                    "server that came back does not know our registrations"
                )
            seq += 1

    # The end

    async def _clean_up(self, interrupted: bool) -> None:
        """Leave the server and this machine as they were found; never takes longer than said."""
        await self._within_budget(self._clean_server(interrupted))
        why = "cleaning up took too long"
        if self._server_gone or self._server_silent:
            why = "the server was gone" if self._server_gone else "the server did not answer"
        explain_missing(self._ledger, registered=self._workforce is not None, why=why)
        if self._condition is not None:
            self._condition.explain_missing(why)
        if self._workforce is not None:
            await self._workforce.close(_INTERRUPTED_CLOSE_S if self._stop.is_set() else _CLOSE_S)
        if self._connector is not None:
            await self._connector.close()
        if self._http is not None:
            await self._http.close()
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def _within_budget(self, cleaning: Coroutine[Any, Any, None]) -> None:
        """Clean up as long as there is time, which is less once the user asks us to stop."""
        task = asyncio.ensure_future(cleaning)
        stopper = asyncio.ensure_future(self._stop.wait())
        try:
            await wait_first((task, stopper), _CLEAN_UP_S)
            if not task.done() and stopper.done():
                await asyncio.wait({task}, timeout=_INTERRUPTED_CLEAN_UP_S)
            if task.done():
                task.result()
        finally:
            await cancel_and_wait([task, stopper])

    async def _clean_server(self, interrupted: bool) -> None:
        if self._server_gone:
            return
        opened = Opened(
            rpcs=self._rpcs,
            scenario=self._scenario,
            desk=self._desk,
            workforce=self._workforce,
        )
        leaving = Leaving(
            opened,
            audit=self._audit,
            clock=self._clock,
            ledger=self._ledger,
            silent=self._server_silent,
            interrupted=interrupted,
        )
        await leaving.leave()
        self._server_silent = leaving.silent

    async def _audit(self, registered: bool) -> None:
        if self._condition is not None:
            await self._condition.audit(self._instances, registered=registered)
