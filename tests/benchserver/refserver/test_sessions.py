"""Sessions, their hashes, and lookup results that are given out once."""

from __future__ import annotations

from benchserver.refserver.sessions import MAX_SESSIONS, NO_RESULT, SESSION_TTL_NS, Sessions
from benchserver.refserver.store.hashing import ROOT, chain


def test_a_session_extends_its_hashes_and_ignores_other_tokens() -> None:
    session = Sessions().open("r", 0)
    tokens = list(range(8))
    whole = list(chain(tokens, chunk_size=2, start=0, root=ROOT))
    assert session.chain_to(tokens, 4, 2) == whole[:2]
    assert session.chain_to(tokens, 8, 2) == whole
    assert session.chain_to([9] * 8, 8, 2) == whole
    assert session.chain_to([9] * 8, 2, 2) == whole[:1]


def test_a_result_is_consumed_by_the_first_question() -> None:
    sessions = Sessions()
    sessions.put_result("r", 3, 0)
    assert sessions.result_count == 1
    assert sessions.take_result("r", 0) == 3
    assert sessions.open("r", 0).hits == 3
    assert sessions.take_result("r", 0) == NO_RESULT
    assert sessions.take_result("unknown", 0) == NO_RESULT


def test_sessions_and_results_expire_by_age() -> None:
    sessions = Sessions()
    sessions.open("old", 0)
    sessions.put_result("old", 1, 0)
    sessions.open("young", 1)
    sessions.expire(SESSION_TTL_NS)
    assert (sessions.count, sessions.result_count) == (1, 0)
    assert sessions.end("young") is not None
    assert sessions.end("young") is None


def test_the_oldest_session_makes_room() -> None:
    sessions = Sessions()
    for number in range(MAX_SESSIONS + 1):
        sessions.open(str(number), 0)
    assert sessions.count == MAX_SESSIONS
    assert sessions.end("0") is None


def test_another_age_limit() -> None:
    sessions = Sessions(ttl_ns=5)
    sessions.open("r", 0)
    sessions.put_result("r", 1, 0)
    sessions.expire(4)
    assert (sessions.count, sessions.result_count) == (1, 1)
    sessions.expire(5)
    assert (sessions.count, sessions.result_count) == (0, 0)
