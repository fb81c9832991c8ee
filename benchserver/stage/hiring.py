"""From a server that was met to crews: workers with memory, registered and looked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from benchserver.check.judging import evaluated
from benchserver.check.transport import TRANSPORT, judge_transport
from benchserver.check.verdict import Ledger, Verdict
from benchserver.client.choice import check_groups, check_slots, choose_transfer
from benchserver.client.http import API_ERRORS
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import LookupDesk
from benchserver.clock import NS_PER_S, Clock
from benchserver.config.engine import Engine
from benchserver.config.target import Target
from benchserver.errors import FatalError
from benchserver.geometry import Geometry
from benchserver.result import ServerFacts
from benchserver.stage.meeting import Met
from benchserver.stage.opened import Opened
from benchserver.stage.stage import Crew
from benchserver.stage.traits import Traits
from benchserver.tasks import Threads

if TYPE_CHECKING:
    from benchserver.client.worker import Worker
    from benchserver.options.engine import TransferChoice
    from benchserver.stage.pools import Pools
    from benchserver.stage.workforce import Workforce


class Hiring:
    """Sets up the clients of one run; call `hire` once."""

    def __init__(
        self,
        target: Target,
        engine: Engine,
        opened: Opened,
        *,
        server: ServerFacts,
        ledger: Ledger,
        nonce: bytes,
        clock: Clock,
        threads: Threads,
        make_pools: Callable[[Geometry], Pools],
        note: Callable[[str], None],
    ) -> None:
        """What becomes known is written into `server`, what is opened into `opened`."""
        self._target = target
        self._engine = engine
        self._opened = opened
        self._server = server
        self._ledger = ledger
        self._nonce = nonce
        self._clock = clock
        self._threads = threads
        self._make_pools = make_pools
        self._note = note

    async def hire(self, met: Met, geometry: Geometry, traits: Traits) -> tuple[Crew, ...]:
        """Allocate and register the workers of all clients; raises FatalError or UsageError.

        The blocks of the scenario's first turns are written once, before anything is registered.
        """
        force = await self._build(met, geometry, traits)
        return await self._crews(force, met, geometry, traits)

    async def hire_again(self, met: Met, geometry: Geometry, traits: Traits) -> tuple[Crew, ...]:
        """Register the same workers, with their memory, with a server that was met again."""
        force = self._opened.workforce
        assert force is not None, "it is the second time"
        connections, first = self._opened.connections, iter([met.connection])
        await force.renew(
            lambda place: next(first, None) or connections.open(met.dialect, place),
            traits.turns,
            traits.in_flight,
        )
        return await self._crews(force, met, geometry, traits)

    async def _crews(
        self, force: Workforce, met: Met, geometry: Geometry, traits: Traits
    ) -> tuple[Crew, ...]:
        await self._register(force, met)
        await met.condition.check_registered(force.instances)
        look = partial(judge_transport, self._engine.require_transport, force.transports)
        finding = evaluated(TRANSPORT, "after registration", look)
        self._ledger.add([finding])
        if finding.verdict is not Verdict.VALID:
            raise FatalError(finding.text)
        size = self._engine.tp_size
        return tuple(
            self._crew(number, tuple(force.workers[number * size : (number + 1) * size]), geometry)
            for number in range(traits.clients)
        )

    def _crew(self, number: int, workers: tuple[Worker, ...], geometry: Geometry) -> Crew:
        # Loaded here: the first call does not wait for numpy.
        from benchserver.kv.pattern import content_seed

        engine, keys = self._engine, self._keys()
        desk = LookupDesk(
            workers[0].rpc,
            keys,
            kv_ranks=[worker.kv_rank for worker in workers],
            tp_size=engine.tp_size,
            chunk_tokens=geometry.chunk_tokens,
            clock=self._clock,
            timeout_ns=int(self._target.timeout_s * NS_PER_S),
        )
        self._opened.desks.append(desk)
        return Crew(
            number=number,
            engine=engine,
            geometry=geometry,
            workers=workers,
            desk=desk,
            keys=keys,
            cross_check=self._target.needs_http and self._server.transport == "handle",
            content_root=content_seed(engine.seed, engine.cache_salt),
        )

    async def _build(self, met: Met, geometry: Geometry, traits: Traits) -> Workforce:
        from benchserver.shmnames import sweep_stale
        from benchserver.stage.workforce import Workforce

        choice, served = await self._choose(met, geometry)
        for name in sweep_stale():
            self._note(f"Removed {name}, left by a bench-server that was killed")
        self._opened.workforce = force = Workforce(
            self._engine,
            clients=traits.clients,
            timeout_s=self._target.timeout_s,
            choice=choice,
            served=served,
            geometry=geometry,
            nonce=self._nonce,
            clock=self._clock,
            executor=self._threads,
            pools=self._make_pools(geometry),
        )
        connections = self._opened.connections
        first = iter([met.connection])
        await force.build(
            lambda place: next(first, None) or connections.open(met.dialect, place),
            traits.turns,
            traits.in_flight,
        )
        self._server.transfer_mode = choice.value
        self._note_devices(force)
        return force

    async def _choose(self, met: Met, geometry: Geometry) -> tuple[TransferChoice, str]:
        """Return the transfer mode, and which the server says that it serves ("": unsaid)."""
        engine, spec, served = self._engine, self._engine.spec, ""
        with contextlib.suppress(*API_ERRORS):
            served = await met.http.transfer_mode()
        check_groups(met.dialect, spec.text, {group.is_mla for group in spec.groups})
        choice = choose_transfer(
            engine.transfer, served, len(spec.groups), met.dialect, gpu=engine.mode == "gpu"
        )
        check_slots(choice, geometry.chunks)
        return choice, served

    async def _register(self, force: Workforce, met: Met) -> None:
        """Register all workers; a server that answers nothing else either may only be stopped."""
        from benchserver.stage.workforce import UnregisteredError

        try:
            await force.register()
        except UnregisteredError as error:
            await met.alive.ask(error.seen)
            raise
        server, count = self._server, len(force.workers)
        server.transport = ", ".join(sorted(force.transports))
        clients = count // self._engine.tp_size
        self._note(
            f"Transfer mode = {server.transfer_mode} over {server.transport}, "
            f"{count} {'workers' if count > 1 else 'worker'}"
            + (f" of {clients} clients" if clients > 1 else "")
        )

    def _note_devices(self, force: Workforce) -> None:
        for device, worker in zip(force.devices, force.workers, strict=False):
            name = worker.place.replace("=", " ")
            self._note(f"KV pool of {name} on cuda:{device.number}, {device.name}, {device.uuid}")
        if force.slow_kernels:
            self._note(
                "Content is written and compared by torch, not by Triton, outside of all "
                f"latencies: {force.slow_kernels}"
            )

    def _keys(self) -> KeyMaker:
        engine = self._engine
        return KeyMaker(
            model_name=engine.model_name,
            world_size=engine.world_size,
            cache_salt=engine.cache_salt,
            readers=engine.readers_per_object,
        )
