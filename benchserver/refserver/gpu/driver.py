"""Allocations of other processes, opened by the CUDA driver's IPC handles; ctypes, no torch.

The driver opens a handle once in a process; `OpenHandles` counts who uses it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchserver.refserver.refusal import RefusalError
from protocol.handles import MEMORY_HANDLE_BYTES

LIBRARY = "libcuda.so.1"
_LAZY_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    """CUipcMemHandle, which the driver takes by value."""

    _fields_ = [("reserved", ctypes.c_ubyte * MEMORY_HANDLE_BYTES)]


class OpenHandles:
    """The driver handles that are open; any thread may call.

    Raises RefusalError if the driver refuses: memory that is gone, a process of another container.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[int, bytes], tuple[int, int]] = {}
        """Address and number of users, by device and handle."""

    def open(self, ordinal: int, handle: bytes) -> int:
        """Return the address of an allocation; each call needs a `close`."""
        with self._lock:
            pointer, users = self._open.get((ordinal, handle), (0, 0))
            if not users:
                pointer = _open(ordinal, handle)
            self._open[ordinal, handle] = pointer, users + 1
            return pointer

    def close(self, ordinal: int, handle: bytes) -> None:
        """End one use; the last one unmaps the allocation."""
        with self._lock:
            pointer, users = self._open.pop((ordinal, handle))
            if users > 1:
                self._open[ordinal, handle] = pointer, users - 1
                return
            with _context_of(ordinal):
                _call("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))


def bytes_behind(ordinal: int, pointer: int) -> int:
    """Return how many bytes of an allocation begin at an address; 0: the driver does not say."""
    base, size = ctypes.c_uint64(0), ctypes.c_size_t(0)
    try:
        with _context_of(ordinal):
            arguments = ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)
            _call("cuMemGetAddressRange_v2", *arguments)
    except RefusalError:
        return 0
    return max(0, base.value + size.value - pointer)


def _open(ordinal: int, handle: bytes) -> int:
    pointer = ctypes.c_uint64(0)
    arguments = _Handle.from_buffer_copy(handle), ctypes.c_uint(_LAZY_PEER_ACCESS)
    with _context_of(ordinal):
        _call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), *arguments)
    return pointer.value


@contextmanager
def _context_of(ordinal: int) -> Iterator[None]:
    """Make a device's primary context, which is torch's, current in this thread."""
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
        raise RefusalError(f"{name}: {LIBRARY} is not usable ({error})") from error
    code = function(*arguments)
    if code:
        raise RefusalError(f"{name}: {_text_of(library, code)}")


def _text_of(library: Any, code: int) -> str:
    text = ctypes.c_char_p()
    if library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text)) or text.value is None:
        return f"error {code}"
    return f"{text.value.decode('ascii', 'replace')} ({code})"
