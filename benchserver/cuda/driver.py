"""The CUDA driver's own view of an allocation, by ctypes: where it begins, and its IPC handle.

For `--cuda-ipc driver`.  Knows no torch: the caller makes the device's context current in the
calling thread first.
"""

from __future__ import annotations

import ctypes
from typing import Any

from protocol.handles import MEMORY_HANDLE_BYTES

_LIBRARY = "libcuda.so.1"


class DriverError(Exception):
    """The driver is not there, or refused; the text says which function said what."""


def allocation_base(pointer: int) -> int:
    """Return where the allocation begins that a device address lies in; raises DriverError."""
    base, size = ctypes.c_uint64(0), ctypes.c_size_t(0)
    _call(
        "cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)
    )
    return base.value


def memory_handle(base: int) -> bytes:
    """Return the IPC handle (64 bytes) of the allocation that begins there; raises DriverError."""
    handle = (ctypes.c_ubyte * MEMORY_HANDLE_BYTES)()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(base))
    return bytes(handle)


def _call(name: str, *arguments: Any) -> None:
    try:
        library = ctypes.CDLL(_LIBRARY)
        function = getattr(library, name)
    except (OSError, AttributeError) as error:
        raise DriverError(f"{name}: {_LIBRARY} is not usable") from error
    code: int = function(*arguments)
    if code:
        raise DriverError(f"{name}: {_error_text(library, code)}")


def _error_text(library: Any, code: int) -> str:
    text = ctypes.c_char_p()
    if library.cuGetErrorString(code, ctypes.byref(text)) != 0 or text.value is None:
        return f"error {code}"
    return f"{text.value.decode('ascii', 'replace')} ({code})"
