"""The process of the library in its parts: lanes, calls, what it reaches."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest

from benchserver.refserver.tiers.mooncake.client import (
    NO_ROOM_TRIES,
    PEER,
    Lanes,
    Memory,
    OpenError,
    exist,
    reach,
    read,
    write,
)
from benchserver.refserver.tiers.mooncake.codes import ABSENT, INVALID, NO_ROOM
from tests.oddpeers import closed

pytestmark = pytest.mark.usefixtures("leak_free")

WITHIN_S = 20.0
CALL = {"name": "n", "nbytes": 10}


class Store:
    """Answers with what it was given, one after the other."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []

    def get_into(self, *args: Any) -> int:
        return self._answer("get_into", *args)

    def get_size(self, *args: Any) -> int:
        return self._answer("get_size", *args)

    def upsert_from(self, *args: Any) -> int:
        return self._answer("upsert_from", *args)

    def batch_is_exist(self, names: list[str]) -> list[int]:
        return [self._answer("exist", name) for name in names]

    def _answer(self, *asked: Any) -> int:
        self.asked.append(asked)
        return self.answers.pop(0)


def test_names_are_asked_for_in_order() -> None:
    store = Store(1, 0, ABSENT)
    assert exist(store, {"names": ["a", "b", "c"]}) == [1, 0, ABSENT]
    assert [name for _, name in store.asked] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("answers", "result"),
    [
        ((10,), 10),
        ((7,), 7),
        ((ABSENT,), ABSENT),
        ((INVALID, 11), 11),  # too large for its reader: its size tells
        ((INVALID, ABSENT), ABSENT),
        ((INVALID, 10), INVALID),  # it would fit: something else is wrong
        ((INVALID, -900), INVALID),
    ],
)
def test_a_read_tells_size_or_code(answers: tuple[int, ...], result: int) -> None:
    store = Store(*answers)
    assert read(store, CALL, 4096) == result
    assert store.asked[0] == ("get_into", "n", 4096, 10)
    assert not store.answers


def test_a_write_waits_for_room_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    assert write(Store(NO_ROOM, NO_ROOM, 0), CALL, 0) == 0
    assert len(pauses) == 2
    assert write(Store(-900), CALL, 0) == -900
    assert len(pauses) == 2
    full = Store(*[NO_ROOM] * NO_ROOM_TRIES)
    assert write(full, CALL, 0) == NO_ROOM
    assert not full.answers


def test_work_of_one_name_is_done_in_order_and_the_lanes_end_after_it() -> None:
    lanes, done = Lanes(3), list[int]()
    for number in range(100):
        lanes.put("one name", lambda number=number: done.append(number))  # type: ignore[misc]
    assert lanes.end(WITHIN_S)
    assert done == list(range(100))


def test_a_lane_that_is_stuck_is_told() -> None:
    lanes, go_on = Lanes(1), threading.Event()

    def wait() -> None:
        go_on.wait(WITHIN_S)

    lanes.put("", wait)
    assert not lanes.end(0)
    go_on.set()
    assert lanes.end(WITHIN_S)


def test_a_part_of_the_memory_has_its_address_and_no_other_has_one() -> None:
    descriptor = os.memfd_create("bench-server-test", os.MFD_CLOEXEC)
    os.truncate(descriptor, 8192)
    memory = Memory(descriptor)
    os.close(descriptor)
    assert memory.nbytes == 8192
    assert memory.at(0, 8192) == memory.address
    assert memory.at(8192, 0) == memory.address + 8192
    for offset, nbytes in ((-1, 1), (8192, 1), (0, 8193), (10, -1)):
        with pytest.raises(ValueError, match=f"{nbytes} bytes at {offset}, the memory has 8192"):
            memory.at(offset, nbytes)


def test_who_listens_is_reached_and_who_does_not_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert reach("the master", f"127.0.0.1:{listener.getsockname()[1]}") == "127.0.0.1"
    with closed() as port, pytest.raises(OpenError, match=r"refused; is it running\?$") as caught:
        reach("the master", f"127.0.0.1:{port}")
    assert caught.value.missing == PEER
    assert str(caught.value).startswith(f"the master at 127.0.0.1:{port}: ")
