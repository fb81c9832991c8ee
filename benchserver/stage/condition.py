"""What the server says of itself, in `/status` and `/metrics`: before, during and after a run.

Owns the state from before the run, and what is read again to compare with it.  A server whose HTTP
API does not answer is judged by what it does alone, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchserver.check.health import HEALTH, causes, explain, judge_health
from benchserver.check.judging import evaluated
from benchserver.check.residue import RESIDUE
from benchserver.check.verdict import Finding, Ledger, Verdict, unproven
from benchserver.client.http import API_ERRORS, HttpApi
from benchserver.clock import NS_PER_S, Clock
from benchserver.config.fits import check_against_l1
from benchserver.config.target import Target
from benchserver.errors import FatalError, one_line
from benchserver.geometry import Geometry
from benchserver.result import ServerAccount
from benchserver.stage.audit import audit_residue
from benchserver.tasks import OutOfTimeError, within
from protocol.counters import Counters
from protocol.httpapi import ServerStatus

_METRICS_WITHIN_S = 1.0
_CONFIG_WITHIN_S = 0.5
"""The end of a run that was interrupted has two seconds in all."""

_EXPLAIN_WITHIN_S = 2.0
"""A sequence that failed is not held up for longer."""

_LOOKS = 5
_LOOK_AGAIN_NS = NS_PER_S // 10
"""0.5.6 compares sizes of its allocator while others change them: what is not well stays so."""


class Condition:
    """One server's own account of itself during one run."""

    def __init__(self, target: Target, http: HttpApi, *, clock: Clock, ledger: Ledger) -> None:
        self._target = target
        self._http = http
        self._clock = clock
        self._ledger = ledger
        self._failures: dict[str, int] = {}
        self._judged_after = False
        self._unread = ""
        """Why /status was asked for in vain after the run."""
        self.before: ServerStatus | None = None
        """What /status said before anything was registered, if it said anything."""
        self.audited = False
        """Whether what stays was looked for after all was ended."""
        self.after: ServerStatus | None = None
        """What it said last, when the run was over."""
        self._configuration: Mapping[str, Any] | None = None
        self._unread_configuration: str | None = None
        """Why /config was asked for in vain; None: nobody asked."""

    async def look_before(
        self, chunk_tokens: int, geometry: Geometry | None, *, kv_ranks: int, at_once: int = 1
    ) -> None:
        """Read and judge the state before the run.

        Raises FatalError if it is that of another server than the one with this chunk size, or if
        `at_once` requests of this geometry do not fit into its L1 together.
        """
        target = self._target
        try:
            self.before = await self._http.status()
        except API_ERRORS as error:
            for check in (RESIDUE, HEALTH):
                if check not in self._ledger.tallies:
                    continue
                if target.needs_http:
                    text = f"/status before the run: {one_line(error)}"
                    self._ledger.add([unproven(check, text)])
                else:
                    self._ledger.skip(check, "--no-http, and /status does not answer")
            return
        if self.before.chunk_size != chunk_tokens:
            raise FatalError(
                f"{target.rpc_url} has chunk size {chunk_tokens}, {target.http_url} says "
                f"{self.before.chunk_size}: --rpc-url and --url are two different servers"
            )
        if geometry is not None:
            check_against_l1(
                geometry, kv_ranks=kv_ranks, l1_bytes=self.before.l1_bytes, at_once=at_once
            )
        self._failures = await self._count_failures()
        if not self.before.health.said:
            self._ledger.skip(HEALTH, "/status of this server says nothing about it")
            return
        await self._judge(self.before, "before")

    async def check_registered(self, ours: frozenset[int]) -> None:
        """Look for our registrations: --url must be the server of --rpc-url, or FatalError."""
        if self.before is None:
            return
        try:
            status = await self._http.status()
        except API_ERRORS:
            return  # the digests and the residue audit will ask again, and judge
        if ours - (status.handle_instances | status.engine_instances):
            raise FatalError(
                f"{self._target.http_url} does not list the workers that registered with "
                f"{self._target.rpc_url}: --rpc-url and --url are two different servers"
            )

    async def explain(self, findings: Sequence[Finding], ours: frozenset[int]) -> list[Finding]:
        """Add to the findings on a sequence what the server says that explains its failure."""
        wanted = any(f.verdict is Verdict.INVALID and f.check.explained for f in findings)
        if self.before is None or not wanted:
            return list(findings)
        try:
            found = await within(self._causes(ours), _EXPLAIN_WITHIN_S)
        except (*API_ERRORS, OutOfTimeError):
            return list(findings)
        return explain(findings, found)

    async def counters(self, model_name: str) -> Counters | None:
        """Return what /metrics counts of a model's chunks; None: it does not tell."""
        if self.before is None:
            return None
        try:
            return await within(self._http.counters(model_name), _METRICS_WITHIN_S)
        except (*API_ERRORS, OutOfTimeError):
            return None

    async def audit(self, ours: frozenset[int], *, registered: bool) -> None:
        """Judge what is left of ours; `registered`: our workers still are, and may be."""
        if self.before is None:
            return
        if RESIDUE in self._ledger.tallies:
            status = await audit_residue(
                self._http,
                self.before,
                ours,
                registered=registered,
                clock=self._clock,
                ledger=self._ledger,
            )
        else:
            status = await self.read()
        self.after = status
        if registered:
            return
        self.audited = True
        if status is None:
            self._unread = "its /status does not answer any more"
            return
        if self.before.health.said or status.health.said:
            await self._judge(status, "after")
            self._judged_after = True

    async def read_configuration(self) -> None:
        """Ask what the server was started with, for its account; a server without HTTP does not."""
        if self.before is None:
            return
        self._unread_configuration = ""
        try:
            self._configuration = await within(self._http.configuration(), _CONFIG_WITHIN_S)
        except API_ERRORS as error:
            self._unread_configuration = one_line(error)
        except OutOfTimeError:
            self._unread_configuration = f"/config did not answer within {_CONFIG_WITHIN_S:g} s"

    def account(self, why: str) -> ServerAccount:
        """Return what is known of the server by what it said; `why` it was not asked at the end."""
        if self.before is None:
            return ServerAccount(unread="/status did not answer before the run")
        unread = self._unread_configuration
        return ServerAccount(
            configuration=self._configuration,
            unread=why if unread is None else unread,
            l1_bytes=self.before.l1_bytes or None,
            l1_used_before=self._used(self.before),
            l1_used_after=self._used(self.after),
        )

    @staticmethod
    def _used(status: ServerStatus | None) -> int | None:
        """Return the bytes that lie in L1; a server that does not say how large it is says none."""
        return status.l1_used if status is not None and status.l1_bytes else None

    async def read(self) -> ServerStatus | None:
        """Return what /status says, or None if it does not answer."""
        try:
            return await self._http.status()
        except API_ERRORS:
            return None

    def explain_missing(self, why: str) -> None:
        """Say that the health after the run is not known, and why, if it should be."""
        if self.before is not None and self.before.health.said and not self._judged_after:
            text = f"the server's health after the run is unknown: {self._unread or why}"
            self._ledger.add([unproven(HEALTH, text)])

    async def _judge(self, status: ServerStatus, when: str) -> None:
        for _ in range(_LOOKS):
            if not status.health.bad:
                break
            await self._clock.sleep_ns(_LOOK_AGAIN_NS)
            read = await self.read()
            if read is None:
                break
            status = read
        look = partial(judge_health, status.health, when)
        self._ledger.add([evaluated(HEALTH, f"{when} the run", look)])

    async def _causes(self, ours: frozenset[int]) -> tuple[str, ...]:
        status = await self._http.status()
        now = await self._count_failures()
        since = {name: count - self._failures.get(name, 0) for name, count in now.items()}
        return causes(status, ours, since)

    async def _count_failures(self) -> dict[str, int]:
        try:
            return await within(self._http.failures(), _METRICS_WITHIN_S)
        except (*API_ERRORS, OutOfTimeError):
            return {}
