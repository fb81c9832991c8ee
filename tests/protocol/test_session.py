"""One connection: every way that a request leaves the table, each exactly once."""

from collections import Counter
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol import session as session_module
from protocol.dialects import V056
from protocol.errors import LocalProtocolError
from protocol.messages import (
    NO_UID,
    VOID,
    DuplicateReply,
    Event,
    LateReply,
    MalformedReply,
    Reply,
    UnknownReply,
)
from protocol.ops import Op
from protocol.session import MAX_PENDING, MAX_TOMBSTONES, ClientSession

PONG = (b"\x00", b"\x16", b"\xc3")


def ping(session: ClientSession, *, now_ns: int = 0) -> int:
    return session.request(Op.PING, (None,), now_ns=now_ns).uid


@pytest.fixture
def session() -> ClientSession:
    return ClientSession(V056)


def test_uids_count_from_zero(session: ClientSession) -> None:
    sent = [session.request(Op.NOOP, (), now_ns=0) for _ in range(129)]
    assert [outgoing.uid for outgoing in sent] == list(range(129))
    assert sent[0].frames == (b"\x00", b"\x18")
    assert sent[128].frames == (b"\xcc\x80", b"\x18")
    assert session.pending_count == 129


def test_a_reply_ends_its_request(session: ClientSession) -> None:
    ping(session, now_ns=10)
    event = session.receive(PONG, now_ns=35)
    assert event == Reply(uid=0, op=Op.PING, result=True, latency_ns=25)
    assert session.pending_count == 0


def test_replies_may_come_in_any_order(session: ClientSession) -> None:
    session.request(Op.NOOP, (), now_ns=0)
    session.request(Op.QUERY_PREFETCH_STATUS, ("r",), now_ns=1)
    session.request(Op.GET_CHUNK_SIZE, (), now_ns=2)
    events = [
        session.receive((b"\x02", b"\x15", b"\xcd\x01\x00"), now_ns=5),
        session.receive((b"\x00", b"\x18", b"\xa2OK"), now_ns=6),
        session.receive((b"\x01", b"\x09"), now_ns=7),
    ]
    assert events == [
        Reply(uid=2, op=Op.GET_CHUNK_SIZE, result=256, latency_ns=3),
        Reply(uid=0, op=Op.NOOP, result="OK", latency_ns=6),
        Reply(uid=1, op=Op.QUERY_PREFETCH_STATUS, result=VOID, latency_ns=6),
    ]


def test_a_second_answer_is_a_duplicate(session: ClientSession) -> None:
    ping(session)
    session.receive(PONG, now_ns=1)
    for now_ns in (2, 3):
        assert session.receive(PONG, now_ns=now_ns) == DuplicateReply(uid=0, op=Op.PING)


@pytest.mark.parametrize("uid_frame", [b"\x01", b"\xcf" + b"\xff" * 8])
def test_an_answer_to_nothing_is_unknown(session: ClientSession, uid_frame: bytes) -> None:
    ping(session)
    event = session.receive((uid_frame, b"\x16", b"\xc3"), now_ns=1)
    assert event == UnknownReply(uid=1 if uid_frame == b"\x01" else 2**64 - 1)
    assert session.pending_count == 1


def test_what_is_given_up_leaves_alone_and_the_rest_waits(session: ClientSession) -> None:
    for _ in range(4):
        ping(session)
    session.abandon(1, now_ns=50)
    assert session.pending_count == 3
    event = session.receive(PONG, now_ns=60)
    assert event == Reply(uid=0, op=Op.PING, result=True, latency_ns=60)


def test_the_second_answer_to_what_was_given_up_is_a_duplicate(session: ClientSession) -> None:
    ping(session)
    session.abandon(0, now_ns=120)
    assert session.receive(PONG, now_ns=150) == LateReply(uid=0, op=Op.PING, late_ns=30)
    assert session.receive(PONG, now_ns=160) == DuplicateReply(uid=0, op=Op.PING)


def test_an_answer_after_abandon_is_late(session: ClientSession) -> None:
    ping(session)
    session.abandon(0, now_ns=5)
    assert session.pending_count == 0
    assert session.receive(PONG, now_ns=9) == LateReply(uid=0, op=Op.PING, late_ns=4)


def test_an_answer_to_what_was_withdrawn_says_so(session: ClientSession) -> None:
    ping(session)
    session.abandon(0, now_ns=5, withdrawn=True)
    late = LateReply(uid=0, op=Op.PING, late_ns=4, withdrawn=True)
    assert session.receive(PONG, now_ns=9) == late


def test_abandon_does_nothing_to_what_has_ended_or_never_was(session: ClientSession) -> None:
    ping(session)
    session.receive(PONG, now_ns=1)
    session.abandon(0, now_ns=2)
    session.abandon(77, now_ns=2)
    assert session.receive(PONG, now_ns=3) == DuplicateReply(uid=0, op=Op.PING)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (
            (b"\x00", b"\x18", b"\xa2OK"),
            "the reply to ping (id 22) is for operation 24",
        ),
        (
            (b"\x00", b"\xa4ping", b"\xc3"),
            "the reply to ping (id 22) is for operation 'ping'",
        ),
        (
            (b"\x00", b"\xcb\x40\x36\x00\x00\x00\x00\x00\x00", b"\xc3"),
            "the reply to ping (id 22) is for operation 22.0",
        ),
        (
            (b"\x00", b"", b"\xc3"),
            "reply operation: 0 bytes starting b'' are not one msgpack document (ValueError)",
        ),
        ((b"\x00", b"\x16"), "ping: the reply lacks its result"),
        ((b"\x00", b"\x16", b"\xc3", b"\xc3"), "ping: the reply has 4 frames, expected 2 or 3"),
        ((b"\x00", b"\x16", b"\xc0"), "ping result: got None, expected a bool"),
        (
            (b"\x00", b"\x16", b"\xc1"),
            "ping result: 1 bytes starting b'\\xc1' are not one msgpack document (FormatError)",
        ),
        (
            (b"\x00", b"\x16", b"\x91" * 1000 + b"\xc0"),
            f"ping result: got {'[' * 57}..., expected a bool",
        ),
    ],
)
def test_a_malformed_answer_ends_its_request(
    session: ClientSession, frames: tuple[bytes, ...], reason: str
) -> None:
    ping(session)
    assert session.receive(frames, now_ns=1) == MalformedReply(uid=0, reason=reason)
    assert session.pending_count == 0
    assert session.receive(PONG, now_ns=2) == DuplicateReply(uid=0, op=Op.PING)


def test_a_result_where_none_belongs_is_malformed(session: ClientSession) -> None:
    session.request(Op.END_SESSION, ("r",), now_ns=0)
    event = session.receive((b"\x00", b"\x0d", b"\xc3"), now_ns=1)
    words = "end_session: the reply has a result, expected none"
    assert event == MalformedReply(uid=0, reason=words)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ((), "a reply has 2 or 3 frames, got 0"),
        ((b"\x00",), "a reply has 2 or 3 frames, got 1"),
        ((b"\x00" * 257, b"\x16"), "a reply's uid has 257 bytes"),
        ((b"\xd9\xfe" + b"u" * 254, b"\x16"), f"reply uid '{'u' * 56}... is not one of ours"),
        ((b"\xff", b"\x16", b"\xc3"), "reply uid -1 is not one of ours"),
        ((b"\xc2", b"\x16", b"\xc3"), "reply uid False is not one of ours"),
        ((b"\xa10", b"\x16", b"\xc3"), "reply uid '0' is not one of ours"),
        ((b"\xca\x00\x00\x00\x00", b"\x16", b"\xc3"), "reply uid 0.0 is not one of ours"),
        (
            (b"\x00\x00", b"\x16", b"\xc3"),
            "reply uid: 2 bytes starting b'\\x00\\x00' are not one msgpack document (ExtraData)",
        ),
    ],
)
def test_frames_that_name_no_request_end_none(
    session: ClientSession, frames: tuple[bytes, ...], reason: str
) -> None:
    ping(session)
    assert session.receive(frames, now_ns=1) == MalformedReply(uid=NO_UID, reason=reason)
    assert session.pending_count == 1


def test_a_request_that_cannot_be_encoded_takes_no_uid(session: ClientSession) -> None:
    with pytest.raises(LocalProtocolError):
        session.request(Op.PING, (object(),), now_ns=0)
    assert session.pending_count == 0
    assert ping(session) == 0


def test_a_full_table_takes_no_more_until_one_leaves(session: ClientSession) -> None:
    for _ in range(MAX_PENDING):
        ping(session)
    with pytest.raises(LocalProtocolError) as caught:
        ping(session)
    assert str(caught.value) == "1024 requests are waiting for an answer; ping is not sent"
    session.receive(PONG, now_ns=1)
    assert ping(session) == MAX_PENDING


def test_the_oldest_tombstone_is_forgotten_first(session: ClientSession) -> None:
    for uid in range(MAX_TOMBSTONES + 1):
        session.abandon(ping(session), now_ns=uid)
    assert session.receive(PONG, now_ns=1) == UnknownReply(uid=0)
    late = session.receive((b"\x01", b"\x16", b"\xc3"), now_ns=11)
    assert late == LateReply(uid=1, op=Op.PING, late_ns=10)


SMALL_PENDING, SMALL_TOMBSTONES = 3, 5
GOOD, BAD = (b"\xc3",), (b"\xc0",)


class SessionBesideItsModel(RuleBasedStateMachine):
    """The model: what is pending since when, and how each other uid has ended, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = mock.patch.multiple(
            session_module, MAX_PENDING=SMALL_PENDING, MAX_TOMBSTONES=SMALL_TOMBSTONES
        )
        self.patch.start()
        self.session = ClientSession(V056)
        self.now_ns = 0
        self.sent = 0
        self.pending: dict[int, int] = {}
        self.ended: dict[int, int | None] = {}
        self.exits: Counter[int] = Counter()

    def end(self, uid: int, given_up_ns: int | None) -> None:
        del self.pending[uid]
        self.exits[uid] += 1
        self.ended[uid] = given_up_ns
        if len(self.ended) > SMALL_TOMBSTONES:
            del self.ended[next(iter(self.ended))]

    @rule(step_ns=st.integers(0, 20))
    def time_passes(self, step_ns: int) -> None:
        self.now_ns += step_ns

    @rule()
    def request(self) -> None:
        if len(self.pending) == SMALL_PENDING:
            with pytest.raises(LocalProtocolError):
                ping(self.session, now_ns=self.now_ns)
            return
        uid = ping(self.session, now_ns=self.now_ns)
        assert uid == self.sent
        self.pending[uid] = self.now_ns
        self.sent += 1

    @precondition(lambda self: self.sent < 100)
    @rule(back=st.integers(-1, 12), body=st.sampled_from([GOOD, BAD, ()]))
    def answer(self, back: int, body: tuple[bytes, ...]) -> None:
        uid = max(self.sent - back, 0)
        expected = self.expected_event(uid, body)
        event = self.session.receive((bytes([uid]), b"\x16", *body), now_ns=self.now_ns)
        shown = MalformedReply(uid=uid, reason="") if isinstance(event, MalformedReply) else event
        assert shown == expected

    def expected_event(self, uid: int, body: tuple[bytes, ...]) -> Event:
        if uid in self.pending:
            latency_ns = self.now_ns - self.pending[uid]
            self.end(uid, None)
            if body == GOOD:
                return Reply(uid=uid, op=Op.PING, result=True, latency_ns=latency_ns)
            return MalformedReply(uid=uid, reason="")
        if uid not in self.ended:
            return UnknownReply(uid=uid)
        given_up_ns, self.ended[uid] = self.ended[uid], None
        if given_up_ns is None:
            return DuplicateReply(uid=uid, op=Op.PING)
        return LateReply(uid=uid, op=Op.PING, late_ns=self.now_ns - given_up_ns)

    @rule(back=st.integers(-1, 12))
    def abandon(self, back: int) -> None:
        uid = max(self.sent - back, 0)
        self.session.abandon(uid, now_ns=self.now_ns)
        if uid in self.pending:
            self.end(uid, self.now_ns)

    @invariant()
    def the_table_holds_what_has_not_left(self) -> None:
        assert self.session.pending_count == len(self.pending) == self.sent - self.exits.total()

    def teardown(self) -> None:
        try:
            for uid in list(self.pending):
                self.session.abandon(uid, now_ns=self.now_ns)
                self.end(uid, self.now_ns)
            assert self.session.pending_count == 0
            assert self.exits == Counter(range(self.sent))
        finally:
            self.patch.stop()


TestSessionBesideItsModel: Any = SessionBesideItsModel.TestCase
TestSessionBesideItsModel.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
