"""Residue: what of ours stays, told apart from what is others'."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.check.residue import RESIDUE, Residue, judge_residue, residue_of
from benchserver.check.verdict import failed, passed
from protocol.httpapi import ServerStatus

CLEAN: dict[str, Any] = {
    "registrations": (),
    "sessions": 0,
    "read_locks": 0,
    "write_locks": 0,
    "foreign": 0,
}


def status(
    *,
    sessions: int = 0,
    read: int = 0,
    write: int = 0,
    handle: tuple[int, ...] = (),
    engine: tuple[int, ...] = (),
) -> ServerStatus:
    return ServerStatus(
        chunk_size=256,
        active_sessions=sessions,
        read_locked=read,
        write_locked=write,
        handle_instances=frozenset(handle),
        engine_instances=frozenset(engine),
    )


OURS = frozenset({10, 11})


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        (status(), status(), {}),
        (status(sessions=4, read=5, write=6), status(sessions=4, read=5, write=6), {}),
        # Others' sessions and locks may end meanwhile; that is no debt of theirs to us.
        (status(sessions=4, read=5, write=6), status(), {}),
        (status(sessions=1), status(sessions=3), {"sessions": 2}),
        (status(read=1), status(read=2), {"read_locks": 1}),
        (status(write=0), status(write=7), {"write_locks": 7}),
        (status(), status(handle=(11, 10)), {"registrations": (10, 11)}),
        (status(), status(handle=(11,), engine=(10,)), {"registrations": (10, 11)}),
        (status(handle=(5,)), status(handle=(5, 6), engine=(7,)), {"foreign": 3}),
        (status(), status(handle=(5, 10)), {"registrations": (10,), "foreign": 1}),
    ],
)
def test_what_stays(before: ServerStatus, after: ServerStatus, left: dict[str, Any]) -> None:
    assert residue_of(before, after, OURS) == Residue(**{**CLEAN, **left})


def test_while_our_workers_are_registered_they_are_no_residue() -> None:
    after = status(sessions=1, read=2, write=3, handle=(5, 10), engine=(11,))
    assert residue_of(status(), after, OURS, registered=True) == Residue(
        registrations=(), sessions=1, read_locks=2, write_locks=3, foreign=1
    )


@pytest.mark.parametrize(
    ("left", "clean"),
    [
        ({}, True),
        ({"foreign": 3}, True),
        ({"registrations": (1,)}, False),
        ({"sessions": 1}, False),
        ({"read_locks": 1}, False),
        ({"write_locks": 1}, False),
    ],
)
def test_clean(left: dict[str, Any], clean: bool) -> None:
    assert Residue(**{**CLEAN, **left}).clean is clean


@pytest.mark.parametrize(
    ("left", "text"),
    [
        ({"registrations": (10, 11)}, "registrations of instance 10, 11"),
        ({"sessions": 2}, "2 sessions more than before the run"),
        ({"read_locks": 3}, "3 read-locked objects more than before the run"),
        ({"write_locks": 4}, "4 write-locked objects more than before the run"),
        (
            {"registrations": (10,), "sessions": 1, "read_locks": 2},
            "registrations of instance 10; 1 sessions more than before the run; 2 read-locked "
            "objects more than before the run",
        ),
        # With others there, only what carries our name is ours.
        ({"registrations": (10,), "sessions": 1, "foreign": 1}, "registrations of instance 10"),
    ],
)
def test_residue_that_fails(left: dict[str, Any], text: str) -> None:
    expected = failed(RESIDUE, f"the server still holds {text} (/status)")
    assert judge_residue(Residue(**{**CLEAN, **left})) == expected


@pytest.mark.parametrize(
    "left", [{}, {"foreign": 1}, {"foreign": 1, "sessions": 2, "read_locks": 3, "write_locks": 4}]
)
def test_residue_that_passes(left: dict[str, Any]) -> None:
    assert judge_residue(Residue(**{**CLEAN, **left})) == passed(RESIDUE)
