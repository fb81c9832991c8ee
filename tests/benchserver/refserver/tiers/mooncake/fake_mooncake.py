"""Stands for `mooncake.store`: a store in the process that imports it, which can be told to fail.

FAKE_MOONCAKE says how; see `fake_store` in test_mooncake.py, which installs a copy of this file.
The return values are those of 0.3.13.post1.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

WRONG = os.environ.get("FAKE_MOONCAKE", "")

if WRONG == "no library":
    raise ImportError("libibverbs.so.1: cannot open shared object file: No such file or directory")


class MooncakeDistributedStore:
    """Objects in a dict."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def setup(self, *settings: object) -> int:
        if WRONG == "setup hangs":
            time.sleep(60)
        if WRONG == "setup crashes":
            print("E1129 the last words", file=sys.stderr, flush=True)
            signal.raise_signal(signal.SIGSEGV)  # of this very thread: not a step further
        if WRONG == "setup fails":
            print("E1129 no segment\nI1129 bye", file=sys.stderr, flush=True)
            return -1
        return 0

    def register_buffer(self, address: int, nbytes: int) -> int:
        return -600 if WRONG == "no registration" else 0

    def batch_is_exist(self, names: list[str]) -> list[int]:
        if WRONG == "no master":
            return [-900] * len(names)
        return [int(name in self._objects) for name in names]

    def get_size(self, name: str) -> int:
        return len(self._objects[name]) if name in self._objects else -704

    def get_into(self, name: str, address: int, nbytes: int) -> int:
        if WRONG == "read crashes":
            signal.raise_signal(signal.SIGSEGV)  # of this very thread: not a step further
        if WRONG == "read raises":
            raise TypeError("no such overload")
        if WRONG == "read hangs":
            time.sleep(60)
        if WRONG in ("-703", "-707", "-800", "-12345"):
            return int(WRONG)
        if name not in self._objects:
            return -704
        data = bytearray(self._objects[name])
        if len(data) > nbytes:
            return -600
        if WRONG.startswith("flip "):
            data[int(WRONG[5:])] ^= 1
        if WRONG.startswith("cut "):
            del data[int(WRONG[4:]) :]
        ctypes.memmove(address, bytes(data), len(data))
        return len(data)

    def upsert_from(self, name: str, address: int, nbytes: int) -> int:
        if WRONG == "full":
            return -200
        self._objects[name] = ctypes.string_at(address, nbytes)
        return 0

    def close(self) -> int:
        if WRONG == "close hangs":
            time.sleep(60)
        return 0
