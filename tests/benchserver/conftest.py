"""What several tests build alike: pools, configurations, hand-written histories and results."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

import pytest
from hypothesis import settings

from benchserver import tasks
from benchserver.check.run import new_ledger
from benchserver.check.verdict import passed
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig
from benchserver.config.target import Target
from benchserver.config.watch import Watch
from benchserver.history import (
    DigestRecord,
    EndRecord,
    EvidenceRecord,
    LookupRecord,
    Outcome,
    PartialRecord,
    Probe,
    SequenceRecord,
    SourceRecord,
    Step,
    TransferRecord,
)
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import place_tensors
from benchserver.options.engine import TransferChoice
from benchserver.result import RunResult, ServerFacts
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.scenarios.baseline.config import BaselineConfig
from benchserver.scenarios.baseline.options import TABLES
from benchserver.scenarios.baseline.plan import (
    OTHER_TENANTS,
    PROBES,
    SHORTER_RANGE,
    SKIPPED_TOKENS,
    Pass,
)
from benchserver.shmnames import segment_name
from benchserver.stats.measures import Measures
from shapespec import parse_shape_spec

# Cores are shared: how long one example takes says nothing.
settings.register_profile("bench-server", deadline=None, print_blob=True)
settings.load_profile("bench-server")

P = TypeVar("P")

ROOT = bytes(range(16))


@pytest.fixture
def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a timer that a busy machine fires late say nothing of this process."""
    monkeypatch.setattr(tasks, "_LATE_S", 60.0)


@contextlib.contextmanager
def _open_pool(
    text: str,
    *,
    content_rank: int = 0,
    ranks: int = 1,
    blocks_per_chunk: int = 2,
    root: bytes = ROOT,
    cancel: threading.Event | None = None,
) -> Iterator[tuple[HostPool, SharedSegment]]:
    spec = parse_shape_spec(text)
    segment = SharedSegment(place_tensors(spec)[1], threading.Event())
    pool = HostPool(
        segment,
        PoolContent(
            spec=spec,
            patterns=group_patterns(root, spec, blocks_per_chunk),
            rank=content_rank,
            ranks=ranks,
        ),
        shm_name=segment_name("00ff", 0),
        cancel=threading.Event() if cancel is None else cancel,
    )
    try:
        yield pool, segment
    finally:
        pool.close()


@pytest.fixture(scope="session")
def open_pool() -> Callable[..., AbstractContextManager[tuple[HostPool, SharedSegment]]]:
    """Return a context manager that makes a pool of a shape spec, with its segment."""
    return _open_pool


def _make_config(**changes: Any) -> RunConfig:
    fields: dict[str, Any] = {
        "rpc_url": "tcp://localhost:5555",
        "http_url": "http://localhost:8080",
        "transfer": TransferChoice.AUTO,
        "spec": parse_shape_spec("(2,1024,16,8,128):float16:32"),
        "num_tokens": 512,
        "num_tokens_given": True,
        "start": 0,
        "end": 2,
        "duration_s": None,
        "growth_bounds": "",
        "max_failures": None,
        "keep_going": False,
        "reconnect": False,
        "reconnect_within_s": 60.0,
        "stall_after_s": None,
        "growth_every_s": 5.0,
        "interval_s": 0.5,
        "tp_size": 1,
        "model_name": "bench-server",
        "seed": 7,
        "cache_salt": "",
        "expect_warm": False,
        "needs_http": True,
        "partial_every": 10,
        "partial_skip": "blocks",
        "require_transport": "",
        "server_release": "",
        "http_token": "",
        "http_ca": "",
        "timeout_s": 10.0,
        "visible_within_s": 2.0,
        "max_dropped": 0.0,
        "concurrency": 1,
        "wait_ready_s": 0.0,
        "mode": "cpu",
        "cuda_ipc": "torch",
        "own_server": False,
    }
    unknown = set(changes) - set(fields)
    assert not unknown, unknown
    if isinstance(changes.get("spec"), str):
        changes["spec"] = parse_shape_spec(changes["spec"])
    values = {**fields, **changes}

    def part(kind: type[P]) -> P:
        names = [field.name for field in dataclasses.fields(cast(Any, kind))]
        return kind(**{name: values[name] for name in names})

    return RunConfig(
        tables=TABLES,
        target=part(Target),
        engine=part(Engine),
        own=part(BaselineConfig),
        watch=part(Watch),
    )


@pytest.fixture(scope="session")
def make_config() -> Callable[..., RunConfig]:
    """Return a maker of the default configuration with changes; `spec` may be a text."""
    return _make_config


@pytest.fixture(scope="session")
def make_engine() -> Callable[..., Engine]:
    """Return a maker of that configuration's engine."""

    def make(**changes: Any) -> Engine:
        engine = _make_config(**changes).engine
        assert engine is not None
        return engine

    return make


MATCH = Evidence(kind=EvidenceKind.MATCH, pages=4, checked_bytes=4096)


def _lookup(which: Pass, hits: int, latency_ns: int) -> LookupRecord:
    return LookupRecord(
        which=which,
        outcome=Outcome.OK,
        hits=hits,
        expected=hits,
        total=2,
        began_ns=0,
        ended_ns=latency_ns,
    )


def _transfers(
    name: str, ranks: tuple[int, ...], latency_ns: int, skip_tokens: int = 0
) -> list[Step]:
    return [
        TransferRecord(
            name=name,
            rank=rank,
            outcome=Outcome.OK,
            chunks=2,
            total=2,
            nbytes=1_000_000,
            began_ns=0,
            ended_ns=latency_ns,
            replied_ns=latency_ns,
            skip_tokens=skip_tokens,
        )
        for rank in ranks
    ]


def _partial(ranks: tuple[int, ...]) -> list[Step]:
    seen = [
        PartialRecord(rank=rank, skip_tokens=40, skipped=MATCH, restored=MATCH, canaries=MATCH)
        for rank in ranks
    ]
    moved = _transfers("RETRIEVE", ranks, 700_000, skip_tokens=40)
    return [_lookup(Pass.PARTIAL, 2, 290_000), *moved, _end("partial"), *seen]


def _digests(leg: str, ranks: tuple[int, ...]) -> list[Step]:
    sums = ("0" * 32, "1" * 32)
    return [
        DigestRecord(rank=rank, leg=leg, outcome=Outcome.OK, ours=sums, server=sums)
        for rank in ranks
    ]


def _end(request_id: str) -> EndRecord:
    return EndRecord(
        name="END_SESSION", request_id=request_id, outcome=Outcome.OK, began_ns=0, ended_ns=90_000
    )


def _good_sequence(
    *,
    seq: int = 3,
    expect_warm: bool = False,
    cross_check: bool = True,
    probes: frozenset[Probe] = frozenset(),
    overwritten: bool = False,
    mla: bool = False,
) -> SequenceRecord:
    """Write the history of two ranks and two chunks in which everything went well."""
    readers = (0, 1)
    writers = (0,) if mla else readers
    cold: list[Step] = [_lookup(Pass.COLD, 2 if expect_warm else 0, 250_000)]
    if not expect_warm:
        cold += [*_transfers("STORE", writers, 2_000_000), _end("cold")]
        cold += [_lookup(Pass.WARM, 2, 310_000)]
    proof: list[Step] = [
        EvidenceRecord(rank=rank, content=MATCH, canaries=MATCH) for rank in readers
    ]
    if not expect_warm:
        proof += [SourceRecord(rank=rank, content=MATCH) for rank in writers]
    if cross_check:
        proof += [] if expect_warm or overwritten else _digests("source", writers)
        proof += _digests("destination", readers)
    if SKIPPED_TOKENS in probes:
        proof += _partial(readers)
    if OTHER_TENANTS in probes:
        proof += [_lookup(Pass.SALT, 0, 200_000), _lookup(Pass.MODEL, 0, 200_000)]
    if SHORTER_RANGE in probes:
        proof.append(_lookup(Pass.BOUNDS, 1, 200_000))
    return SequenceRecord(
        seq=seq,
        expect_warm=expect_warm,
        cross_check=cross_check,
        probes=probes,
        overwritten=overwritten,
        writers=writers,
        readers=readers,
        steps=(*cold, *_transfers("RETRIEVE", readers, 1_000_000), _end("warm"), *proof),
        began_ns=0,
        ended_ns=12_000_000,
    )


@pytest.fixture(scope="session")
def good_sequence() -> Callable[..., SequenceRecord]:
    """Return a maker of flawless histories."""
    return _good_sequence


def _good_result(**changes: Any) -> RunResult:
    """Return the result of a run in which every check passed once."""
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add(passed(check) for check in ledger.tallies)
    ledger.add_probes(PROBES)
    fields: dict[str, Any] = {
        "config": _make_config(),
        "server": ServerFacts(
            rpc_url="tcp://localhost:5555",
            http_url="http://localhost:8080",
            version="0.5.6-g3e11e108",
            release="0.5.6",
            chunk_tokens=256,
            transfer_mode="lmcache_driven",
            transport="handle",
        ),
        "ledger": ledger,
        "measures": Measures(),
        "sequences_ok": 2,
        "sequences_failed": 0,
        "sequences_unproven": 0,
        "interrupted": False,
        "wall_ns": 1_234_000_000,
    }
    return RunResult(**{**fields, **changes})


@pytest.fixture(scope="session")
def good_result() -> Callable[..., RunResult]:
    """Return a maker of the result of a flawless run, with changes."""
    return _good_result
