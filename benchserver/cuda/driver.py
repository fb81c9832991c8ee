"""Calls of the CUDA driver by ctypes: devices, where an allocation lies, and its IPC handles.

Knows no torch.  What works on memory needs a device's context current in the calling thread: torch
makes it so on the client's side, `context_of` anywhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from protocol.handles import MEMORY_HANDLE_BYTES

LIBRARY = "libcuda.so.1"
_LAZY_PEER_ACCESS = 1


class DriverError(Exception):
    """The driver is not there, or refused; the text says which function said what."""


class _Handle(ctypes.Structure):
    """CUipcMemHandle, which the driver takes by value."""

    _fields_ = [("reserved", ctypes.c_ubyte * MEMORY_HANDLE_BYTES)]


def count_devices() -> int:
    """Return how many devices there are; starts the driver, which may take seconds.

    Raises DriverError.
    """
    count = ctypes.c_int(0)
    _call("cuInit", ctypes.c_uint(0))
    _call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def address_range(pointer: int) -> tuple[int, int]:
    """Return where the allocation begins that a device address lies in, and its size.

    Raises DriverError.
    """
    base, size = ctypes.c_uint64(0), ctypes.c_size_t(0)
    _call(
        "cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)
    )
    return base.value, size.value


def memory_handle(base: int) -> bytes:
    """Return the IPC handle (64 bytes) of the allocation that begins there; raises DriverError."""
    handle = (ctypes.c_ubyte * MEMORY_HANDLE_BYTES)()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(base))
    return bytes(handle)


def open_memory(handle: bytes) -> int:
    """Map another process's allocation, and return its address; raises DriverError.

    The driver opens a handle once in a process.
    """
    pointer = ctypes.c_uint64(0)
    arguments = _Handle.from_buffer_copy(handle), ctypes.c_uint(_LAZY_PEER_ACCESS)
    _call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), *arguments)
    return pointer.value


def close_memory(pointer: int) -> None:
    """Unmap what `open_memory` has mapped; raises DriverError."""
    _call("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))


@contextmanager
def context_of(ordinal: int) -> Iterator[None]:
    """Make a device's primary context, which is torch's, current in this thread.

    Raises DriverError.
    """
    device, context = ctypes.c_int(0), ctypes.c_void_p()
    _call("cuInit", ctypes.c_uint(0))
    _call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        _call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    finally:
        _call("cuDevicePrimaryCtxRelease_v2", device)


def _call(name: str, *arguments: Any) -> None:
    try:
        library = ctypes.CDLL(LIBRARY)
        function = getattr(library, name)
    except (OSError, AttributeError) as error:
        raise DriverError(f"{name}: {LIBRARY} is not usable ({error})") from error
    code: int = function(*arguments)
    if code:
        raise DriverError(f"{name}: {_text_of(library, code)}")


def _text_of(library: Any, code: int) -> str:
    text = ctypes.c_char_p()
    if library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text)) or text.value is None:
        return f"error {code}"
    return f"{text.value.decode('ascii', 'replace')} ({code})"
