"""torch and the CUDA devices as this server needs them: loading, names, pinned memory, errors."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from benchserver.cuda.reason import reason_of
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.arena import Bytes

_PORTABLE = 1
"""cudaHostRegisterPortable: pinned for all devices."""


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


def visible_devices() -> Mapping[str, Device]:
    """Load torch and return the devices by uuid, as torch writes it in lower case.

    RefusalError if there is no torch, or no device that it can use, for whatever reason.
    """
    try:
        import torch

        version, cuda_version = torch.__version__, torch.version.cuda
    except BaseException as error:
        # A broken torch, or another module of that name, may raise anything, SystemExit too.
        raise RefusalError(
            f"GPU clients need PyTorch in this server ({_kind_of(error)}{reason_of(error)}); "
            "pip install 'bench-server[gpu]'"
        ) from error
    if cuda_version is None:
        raise RefusalError(
            f"GPU clients need a PyTorch with CUDA, this one ({version}) has none; "
            "install a CUDA build of torch"
        )
    try:
        return _devices()
    except RefusalError:
        raise
    except Exception as error:
        raise RefusalError(
            f"CUDA cannot be used: {_kind_of(error, RuntimeError)}{reason_of(error)}"
        ) from error


def _kind_of(error: BaseException, *plain: type[Exception]) -> str:
    """Return the type of an error, except for those whose text says all."""
    plain = plain or (ImportError, OSError)  # OSError: a library of torch's cannot be loaded
    return "" if isinstance(error, plain) or not str(error) else f"{type(error).__name__}: "


def _devices() -> Mapping[str, Device]:
    import torch

    with warnings.catch_warnings():
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


def drop_frames(error: BaseException | None) -> None:
    """Let go of what the functions held that an error ended.

    A tensor that an error keeps is freed wherever that is dropped; that must not be on the event
    loop, for it may wait.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


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


def give_back_unused() -> None:
    """Let go of memory that nobody uses any more: other processes', and what torch keeps.

    May wait for all streams.
    """
    import torch

    # A device in an error state refuses; the process's end frees it then.
    with suppress(RuntimeError):
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
