"""Which transfer mode to register with, and what a release or an answer cannot carry: pure."""

from __future__ import annotations

from benchserver.errors import FatalError, one_line
from benchserver.options.engine import TransferChoice
from protocol.bounds import MAX_SLOTS
from protocol.dialect import Dialect
from protocol.dialects import V056

_SERVED = {"gpu": "lmcache_driven", "non_gpu": "engine_driven"}
"""How 0.4.6 and 0.4.7 call the modes."""

_ENGINE_SERVED = ("", "auto", TransferChoice.ENGINE_DRIVEN.value)
"""What a server says, if anything, that may serve engine_driven."""


def check_groups(dialect: Dialect, spec: str, kinds: set[bool]) -> None:
    """Refuse a spec of MLA and classical groups where a server cannot register both."""
    if len(kinds) > 1 and not dialect.mixed_groups:
        raise FatalError(
            f"release {dialect.name} cannot register MLA layers beside others, as {spec} has "
            "(0.5.1 and later can); use a spec of one kind, or a newer server"
        )


def check_slots(choice: TransferChoice, chunks: int) -> None:
    """Refuse sequences of more chunks than one answer of engine_driven is read with."""
    if choice is TransferChoice.ENGINE_DRIVEN and chunks > MAX_SLOTS:
        raise FatalError(
            f"a sequence has {chunks} chunks, and engine_driven transfer takes at most {MAX_SLOTS} "
            "at a time; lower --num-tokens, or give the server a larger --chunk-size"
        )


def choose_transfer(
    asked: TransferChoice, served: str, groups: int, dialect: Dialect = V056, *, gpu: bool = False
) -> TransferChoice:
    """Return the mode to register with; `served` is the server's mode, or "" if it is not known.

    `gpu`: the KV tensors are in CUDA memory.  Raises FatalError, naming the server's flag, if it
    does not serve what was asked for.
    """
    served = _SERVED.get(served, served)
    maps = dialect.maps_cuda if gpu else dialect.maps_cpu
    if not (maps or dialect.engine_driven):
        raise FatalError(_unmapped(dialect, gpu, "use a newer server"))
    if asked is TransferChoice.AUTO:
        if maps and served != TransferChoice.ENGINE_DRIVEN.value:
            return TransferChoice.LMCACHE_DRIVEN
        if gpu and not maps and (groups > 1 or served not in _ENGINE_SERVED):
            raise FatalError(_unmapped(dialect, gpu, "use a newer server, or --mode cpu"))
        if groups > 1:
            raise FatalError(
                f"the server serves engine_driven alone, which carries one KV layer group, and "
                f"the shape spec has {groups}; start it with --supported-transfer-mode auto"
            )
        return TransferChoice.ENGINE_DRIVEN
    if asked is TransferChoice.LMCACHE_DRIVEN and not maps:
        remedy = "use --transfer-mode engine_driven"
        raise FatalError(f"--transfer-mode {asked.value}, but {_unmapped(dialect, gpu, remedy)}")
    if served in ("", "auto", asked.value):
        return asked
    raise FatalError(
        f"--transfer-mode {asked.value}, but the server serves {one_line(served, 40)}; start it "
        f"with --supported-transfer-mode auto (or {asked.value})"
    )


def _unmapped(dialect: Dialect, gpu: bool, remedy: str) -> str:
    """Return why a server of this release cannot map our tensors, and what to do."""
    if gpu:
        return (
            f"release {dialect.name} takes CUDA memory described in a pickle of its own classes, "
            f"which bench-server does not write (0.5.6 and later take plain data); {remedy}"
        )
    if not dialect.engine_driven:
        return (
            f"release {dialect.name} has no transfer mode for KV tensors of a CPU (0.4.6 and later "
            f"have); {remedy}"
        )
    return f"release {dialect.name} cannot map KV tensors of a CPU (0.4.7 and later can); {remedy}"
