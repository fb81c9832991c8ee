"""torch and the CUDA devices as this server needs them: loading, names, pinned memory, errors."""

from __future__ import annotations

import atexit
import functools
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchserver.errors import one_line
from benchserver.refserver.arena import Bytes
from benchserver.refserver.refusal import RefusalError

_PORTABLE = 1
"""cudaHostRegisterPortable: pinned for all devices."""

_SHOWN_CHARS = 200
_SHM_DIR = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A visible device: its number in this process, and how much memory it has."""

    ordinal: int
    total_bytes: int


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn what torch raises into a RefusalError of one line.

    A wrong handle, no memory and an illegal access are all RuntimeErrors; numbers that its C++
    cannot hold, and a torch whose functions take other arguments, raise the other types.
    """
    try:
        yield
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise RefusalError(f"{what}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return what torch says first; the lines after it are advice on debugging torch."""
    lines = str(error).strip().splitlines()
    return one_line(lines[0] if lines else type(error).__name__, _SHOWN_CHARS)


def visible_devices() -> Mapping[str, Device]:
    """Load torch and return the devices by uuid, as torch writes it in lower case.

    RefusalError if there is no torch, or no device that it can use.
    """
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library of it cannot be loaded
        raise RefusalError(
            f"GPU clients need PyTorch in this server ({reason_of(error)}); "
            "pip install 'bench-server[gpu]'"
        ) from error
    if torch.version.cuda is None:
        raise RefusalError(
            f"GPU clients need a PyTorch with CUDA, this one ({torch.__version__}) has none; "
            "install a CUDA build of torch"
        )
    with warnings.catch_warnings(), refusing("CUDA cannot be used"):
        warnings.simplefilter("ignore")  # the error below says it in one line
        if not torch.cuda.is_available():
            raise RefusalError(
                "GPU clients need a CUDA device, and none is visible; see nvidia-smi and "
                "CUDA_VISIBLE_DEVICES"
            )
        torch.cuda.init()
        return {
            str(properties.uuid).lower(): Device(
                ordinal=ordinal, total_bytes=properties.total_memory
            )
            for ordinal in range(torch.cuda.device_count())
            for properties in [torch.cuda.get_device_properties(ordinal)]
        }


def pin(memory: Bytes) -> str:
    """Pin host memory for copies to and from all devices; return "" or why it cannot be."""
    import torch

    try:
        with torch.cuda.device(0):
            torch.zeros(1, device="cuda:0")  # there must be a context
            cudart: Any = torch.cuda.cudart()
            code = cudart.cudaHostRegister(memory.ctypes.data, memory.nbytes, _PORTABLE)
            if code == cudart.cudaError.success:
                return ""
            reason = f"cudaHostRegister: error {getattr(code, 'value', code)}"
    except RuntimeError as error:
        reason = reason_of(error)
    with suppress(RuntimeError):
        torch.zeros(1, device="cuda:0")  # takes the error, which CUDA reports to the next call too
    return reason


def unpin(memory: Bytes) -> None:
    """Undo `pin`; no copy may be under way."""
    import torch

    # A device in an error state refuses; the process's end undoes it then.
    with suppress(RuntimeError):
        torch.cuda.cudart().cudaHostUnregister(memory.ctypes.data)


@functools.cache
def remove_events_at_exit() -> None:
    """Let the file in which the CUDA driver keeps our events for others go with this process.

    The driver leaves it for good, even after an orderly end (measured with driver 580); and not
    before the end: every new client opens it by name.
    """
    atexit.register(_remove_events_of, os.getpid())


def _remove_events_of(pid: int) -> None:
    if os.getpid() != pid:
        return  # a child of it
    for path in _SHM_DIR.glob(f"cuda.shm.*.{pid:x}.*"):
        with suppress(OSError):
            path.unlink()


def give_back_unused() -> None:
    """Let go of memory that nobody uses any more: other processes', and what torch keeps."""
    import torch

    # A device in an error state refuses; the process's end frees it then.
    with suppress(RuntimeError):
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
