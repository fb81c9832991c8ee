"""The engine that a run plays: its ranks, their KV memory, its keys."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace

from benchserver.errors import UsageError
from benchserver.geometry import Geometry
from benchserver.kv.blocks import BlockPlan, lease_plan
from benchserver.kv.placement import CudaIpc
from benchserver.options.engine import Mode, TransferChoice
from protocol.keys import model_name_problem, salt_problem
from shapespec import ShapeSpec

_NO_PART_OF_A_LINE = ("Cc", "Zl", "Zp")
"""Unicode's control characters, and its separators of lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine of `tp_size` ranks, each with a pool of the shape `spec`."""

    mode: Mode
    cuda_ipc: CudaIpc
    transfer: TransferChoice
    require_transport: str
    spec: ShapeSpec
    num_tokens: int
    num_tokens_given: bool
    """False: nobody asked for this number, and a server with larger chunks changes it."""
    tp_size: int
    model_name: str
    cache_salt: str
    seed: int

    @property
    def is_mla(self) -> bool:
        """Tell whether all ranks share one KV: every group is MLA (kv_size 1)."""
        return all(group.is_mla for group in self.spec.groups)

    @property
    def world_size(self) -> int:
        """Return the world size in keys: MLA ranks share the objects of one."""
        return 1 if self.is_mla else self.tp_size

    @property
    def writers(self) -> tuple[int, ...]:
        """Return the ranks that STORE."""
        return (0,) if self.is_mla else tuple(range(self.tp_size))

    def geometry(self, chunk_tokens: int) -> Geometry:
        """Return how a sequence divides on a server with chunks of that size."""
        return Geometry(spec=self.spec, chunk_tokens=chunk_tokens, num_tokens=self.num_tokens)

    def block_plan(
        self, geometry: Geometry, *, turn: int, rank: int, lease: int = 0, leases: int = 1
    ) -> BlockPlan:
        """Return the blocks that a rank uses for one sequence of whole chunks.

        They lie in one of so many leases of its pool.
        """
        return lease_plan(
            num_blocks=self.spec.num_blocks,
            request_blocks=geometry.blocks,
            seed=self.seed,
            turn=turn,
            rank=rank,
            lease=lease,
            leases=leases,
        )

    @property
    def readers_per_object(self) -> int:
        """Return how many workers RETRIEVE each object (`num_kv_readers`)."""
        return self.tp_size if self.is_mla else 1

    def check(self) -> None:
        """Raise UsageError for anything that cannot work."""
        for option, problem in (
            ("--model-name", model_name_problem(self.model_name) or _control(self.model_name)),
            ("--cache-salt", salt_problem(self.cache_salt) or _control(self.cache_salt)),
        ):
            if problem:
                raise UsageError(f"{option}: {problem}")
        if self.transfer is TransferChoice.ENGINE_DRIVEN and len(self.spec.groups) > 1:
            raise UsageError(
                f"--transfer-mode engine_driven carries one KV layer group, the shape spec has "
                f"{len(self.spec.groups)}; use lmcache_driven"
            )
        _check_transport(self)
        if self.cuda_ipc == "driver" and self.transfer is TransferChoice.ENGINE_DRIVEN:
            raise UsageError(
                "--cuda-ipc driver has no effect with --transfer-mode engine_driven, in which no "
                "server maps our memory"
            )
        if self.num_tokens_given and self.num_tokens < self.spec.block_size:
            raise UsageError(
                f"--num-tokens {self.num_tokens} is less than one block of "
                f"{self.spec.block_size} tokens"
            )


def _control(text: str) -> str:
    """Say that a text would not stay in its line of a report or a log, or ""."""
    bad = sorted({char for char in text if unicodedata.category(char) in _NO_PART_OF_A_LINE})
    shown = " ".join(map(ascii, bad[:4]))
    return f"a name must hold no control character, this one has {shown}" if bad else ""


def _check_transport(engine: Engine) -> None:
    """Refuse a transport that the transfer mode never takes."""
    handle = engine.require_transport == "handle"
    mode = engine.transfer
    if mode is TransferChoice.AUTO or not engine.require_transport:
        return
    if handle != (mode is TransferChoice.LMCACHE_DRIVEN):
        raise UsageError(
            f"--require-transport {engine.require_transport} cannot come with --transfer-mode "
            f"{mode.value}: handle goes with lmcache_driven, shm and inline with engine_driven"
        )


def with_whole_chunk(engine: Engine, chunk_tokens: int) -> Engine:
    """Return an engine with sequences of one chunk, if no number was asked for that holds one."""
    if engine.num_tokens_given or chunk_tokens <= engine.num_tokens:
        return engine
    return replace(engine, num_tokens=chunk_tokens, num_tokens_given=True)
