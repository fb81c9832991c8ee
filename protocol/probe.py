"""Which release is it?  Harmless questions in a safe order, for a server that does not say.

Each request is either answered without effect or refused for its number of frames, on every
release that it can still be; an id outside a release's range would end its RPC thread (0.5.5 and
before), and one of a neighbour could clear its cache.  So the order matters, and the next
question may be asked only once the last one was answered, or a generous time has passed: a slow
old server must not meet an id that was meant for a newer one.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from protocol.dialect import Dialect, OpRow
from protocol.dialects import V041, V042, V046, V047, V050, V053, V055, V056, V057
from protocol.errors import RemoteProtocolError
from protocol.fields import ANY, Field
from protocol.keys import CacheKey
from protocol.messages import VOID
from protocol.ops import Op
from protocol.values import is_int


class Silence:
    """The answer that did not come within its time."""


NO_ANSWER: Final = Silence()

PROBE_REQUEST = "bench-server-probe"
"""A request id that nobody uses: asking for its state finds nothing and leaves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request of the probe; an answer of any type, or none, is expected."""

    row: OpRow
    args: tuple[Any, ...] = ()

    @property
    def dialect(self) -> Dialect:
        """Return a dialect that knows this request alone, as `Op.NOOP`."""
        return Dialect(
            name="probe",
            releases=(),
            ops={Op.NOOP: self.row},
            key_fields=(),
            inline=V056.inline,
            http=V056.http,
            null_block_id=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Releases that the probe cannot tell apart, and how all of them can be spoken to.

    `dialect` None: they cannot, unless the user says which of `choices` it is; () : not at all.
    """

    releases: str
    dialect: Dialect | None = None
    choices: tuple[str, ...] = ()


Probe = Generator[Question, Any, Group]


def probe() -> Probe:
    """Yield questions, take answers (a value, VOID or NO_ANSWER), return the group.

    Raises RemoteProtocolError if the answers are those of no known release.
    """
    answer = yield _plain(8)
    if answer == "OK":
        return Group(releases="0.3.10 to 0.3.12")
    if is_int(answer):
        return Group(releases="0.3.14 to 0.3.15")
    _expect_silence(8, answer)

    answer = yield _plain(11)
    if answer == "OK":
        return Group(releases="0.4.1", dialect=V041)
    if answer is True:
        return Group(releases="0.4.2", dialect=V042)
    if is_int(answer):
        # Their LOOKUPs and registrations differ.
        return Group(releases="0.4.3 to 0.4.5", choices=("0.4.3", "0.4.4", "0.4.5"))
    _expect_silence(11, answer)

    answer = yield _plain(18)
    if answer is True:
        return Group(releases="0.4.7", dialect=V047)
    if is_int(answer):
        return Group(releases="0.5.0 to 0.5.2", dialect=V050)
    _expect_silence(18, answer)

    answer = yield _plain(21)
    if is_int(answer):
        return (yield from _since_053())
    _expect_silence(21, answer)

    answer = yield _plain(19)
    if answer == "OK":
        return Group(releases="0.4.6", dialect=V046)
    _expect_silence(19, answer)
    raise RemoteProtocolError("it answers no question that an LMCache MP server answers")


def _since_053() -> Probe:
    answer = yield _plain(32)
    if answer is NO_ANSWER:
        return Group(releases="0.5.3 to 0.5.4", dialect=V053)
    if not isinstance(answer, list):
        raise _surprise(32, answer)

    answer = yield Question(row=_row(11, Field("request_id", ANY)), args=(PROBE_REQUEST,))
    if answer == 0 and is_int(answer):
        return Group(releases="0.5.5", dialect=V055)
    _expect_silence(11, answer)

    for dialect in (V056, V057):
        # An empty range has no lock to free, and its answer proves the key's form.
        row = dialect.ops[Op.FREE_LOOKUP_LOCKS]
        left_out = tuple(field.default for field in row.payload[2:])
        answer = yield Question(row=row, args=(_EMPTY_RANGE, 1, *left_out))
        if answer is VOID:
            return Group(releases=dialect.name, dialect=dialect)
        _expect_silence(row.id, answer)
    raise RemoteProtocolError(
        f"it is newer than {V056.name}, but answers neither as {V056.name} nor as {V057.name}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The one question that tells whether a peer has the operation numbers of a dialect."""

    op: Op
    args: tuple[Any, ...]

    def fits(self, result: Any) -> bool:
        """Tell whether a well-formed result is that of the dialect's releases.

        GET_CHUNK_SIZE of 0.5.0 has the number of PING in 0.4.7.
        """
        if self.op is Op.PING:
            return result is True
        return result == "OK" if self.op is Op.NOOP else True


def confirmation(dialect: Dialect) -> Confirmation:
    """Return the question that must be answered before anything else is sent to a named release.

    A peer of other numbers could clear its cache at GET_CHUNK_SIZE, or end.  On every release this
    question is within the range of its numbers, and either does nothing or is refused for its
    frames.
    """
    waits = dialect.told_by is Op.WAIT_PREFETCH_STATUS
    return Confirmation(op=dialect.told_by, args=(PROBE_REQUEST, 0.0) if waits else ())


_EMPTY_RANGE = CacheKey(
    model_name=PROBE_REQUEST,
    world_size=1,
    worker_id=0,
    token_ids=(0,),
    start=0,
    end=0,
    request_id=PROBE_REQUEST,
)


def _row(number: int, *payload: Field) -> OpRow:
    return OpRow(id=number, payload=payload, result=ANY, pending=True)


def _plain(number: int) -> Question:
    return Question(row=_row(number))


def _expect_silence(number: int, answer: Any) -> None:
    if answer is not NO_ANSWER:
        raise _surprise(number, answer)


def _surprise(number: int, answer: Any) -> RemoteProtocolError:
    shown = "an empty reply" if answer is VOID else f"{type(answer).__name__} {str(answer)[:40]!a}"
    return RemoteProtocolError(
        f"its answer to operation {number}, {shown}, is not that of any release"
    )
