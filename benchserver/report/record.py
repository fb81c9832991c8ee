"""The record of a run, for JSON: how it was asked for, by what software, against which server.

With the environment beside it, another person can tell whether two runs may be compared.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchserver.config.engine import Engine
from benchserver.environment.memory import ServerMemory
from benchserver.environment.reading import not_known
from benchserver.result import RunResult, ServerAccount
from benchserver.section import Section
from protocol.secrets import words_without_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line knows of a run: its words, and when it began (UTC)."""

    words: Sequence[str]
    began_at: str
    load_average: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read when the run was over: versions, the machine, memory; or why it was not."""

    software: Mapping[str, Any]
    machine: Mapping[str, Any]
    own_peak_bytes: int | None
    server_memory: ServerMemory


def record_sections(result: RunResult, asked: Asked, readings: Readings) -> tuple[Section, ...]:
    """Return the sections `run` and `environment`; they have no lines."""
    return (
        Section(key="run", title="", lines=(), document=_run_document(result, asked, readings)),
        Section(key="environment", title="", lines=(), document=readings.machine),
    )


def _run_document(result: RunResult, asked: Asked, readings: Readings) -> dict[str, Any]:
    stamp = asked.began_at.partition(".")[0].translate({ord(char): None for char in "-:"})
    own = readings.own_peak_bytes
    return {
        "id": f"{stamp}-{result.nonce or 'not-begun'}",
        "started_at": asked.began_at,
        "command_line": shlex.join(words_without_secrets(asked.words)),
        "software": readings.software,
        "engine": _engine_document(result),
        "server": _server_document(result),
        "memory": {
            "own_peak_bytes": not_known("/proc does not say") if own is None else own,
            "server": _memory_document(readings.server_memory),
        },
    }


def _engine_document(result: RunResult) -> dict[str, Any] | None:
    """Return what the engine that was played is like; None for a run without workers."""
    engine, chunk_tokens = result.config.engine, result.server.chunk_tokens
    if engine is None:
        return None
    return {
        "seed": engine.seed,
        "model_name": engine.model_name,
        "tp_size": engine.tp_size,
        "mla": engine.is_mla,
        "dtypes": sorted({group.dtype.name for group in engine.spec.groups}),
        "block_size": engine.spec.block_size,
        "chunk_tokens": chunk_tokens or not_known("no server was met"),
        "chunk_bytes_per_rank": _chunk_bytes(engine, chunk_tokens),
    }


def _chunk_bytes(engine: Engine, chunk_tokens: int) -> int | str:
    if not chunk_tokens:
        return not_known("no server was met")
    return engine.geometry(chunk_tokens).chunk_bytes


def _server_document(result: RunResult) -> dict[str, Any]:
    account, server = result.account, result.server
    return {
        "version": server.version or not_known("it does not say"),
        "release": server.release or not_known("no server was met"),
        "configuration": _or_why(account.configuration, account),
        "l1_bytes": _or_why(account.l1_bytes, account),
        "l1_used_before_bytes": _or_why(account.l1_used_before, account),
        "l1_used_after_bytes": _or_why(account.l1_used_after, account),
        "cache": _cache(account),
    }


def _or_why(value: Any, account: ServerAccount) -> Any:
    if value is not None:
        return value
    return not_known(account.unread or "/status does not say")


def _cache(account: ServerAccount) -> str:
    """Say whether the run began with an empty L1."""
    used = account.l1_used_before
    if used is None:
        return not_known(account.unread or "/status does not say")
    return "warm" if used else "cold"


def _memory_document(seen: ServerMemory) -> dict[str, Any] | str:
    if seen.unseen:
        return not_known(seen.unseen)
    return {"pid": seen.pid, "name": seen.name, "peak_bytes": seen.peak_bytes}
