"""The probe against a model of every release, in which a wrong id clears a cache or kills."""

from dataclasses import dataclass
from typing import Any

import pytest

from protocol.dialect import Dialect, OpRow
from protocol.dialects import DIALECTS, dialect_of
from protocol.errors import RemoteProtocolError
from protocol.keys import CacheKey
from protocol.messages import VOID
from protocol.ops import Op
from protocol.probe import NO_ANSWER, Group, Question, confirmation, probe

HIGHEST_IDS = {
    "0.4.1": 19,
    "0.4.2": 20,
    "0.4.3": 22,
    "0.4.4": 22,
    "0.4.5": 22,
    "0.4.6": 27,
    "0.4.7": 32,
    "0.5.0": 36,
    "0.5.1": 36,
    "0.5.2": 36,
    "0.5.3": 40,
    "0.5.4": 40,
    "0.5.5": 33,
}
"""An operation beyond it ends the RPC thread; 0.5.6 and later ignore it."""

ANSWERS = {
    Op.QUERY_PREFETCH_LOOKUP_HITS: 0,
    Op.WAIT_PREFETCH_STATUS: 0,
    Op.GET_EXPERIMENTAL: ["kv_event_stream"],
    Op.NOOP: "OK",
    Op.PING: True,
    Op.GET_CHUNK_SIZE: 256,
    Op.FREE_LOOKUP_LOCKS: VOID,
}


@dataclass
class Server:
    """What a release does with a request, as far as its number and frames tell."""

    release: str

    def answer(self, question: Question) -> Any:
        number, count = question.row.id, len(question.row.payload)
        assert number <= HIGHEST_IDS.get(self.release, 10**9), "the RPC thread is dead"
        for op, row in dialect_of(self.release).ops.items():
            if row.id == number and len(row.payload) == count:
                if op is Op.FREE_LOOKUP_LOCKS and self.refuses_key(row, question):
                    return NO_ANSWER
                assert op in ANSWERS, f"{op} was sent to {self.release}"
                return ANSWERS[op]
        return NO_ANSWER

    def refuses_key(self, row: OpRow, question: Question) -> bool:
        if not isinstance(question.args[0], CacheKey):
            return True

        def names(key: Any) -> set[str]:
            return set(key.kind.to_wire(question.args[0]))

        return not names(row.payload[0]) <= names(question.row.payload[0])


def found(server: Server) -> Group:
    steps = probe()
    question = next(steps)
    while True:
        try:
            question = steps.send(server.answer(question))
        except StopIteration as end:
            group = end.value
            assert isinstance(group, Group)
            return group


@pytest.mark.parametrize(
    ("release", "releases"),
    [
        ("0.4.1", "0.4.1"),
        ("0.4.2", "0.4.2"),
        ("0.4.3", "0.4.3 to 0.4.5"),
        ("0.4.4", "0.4.3 to 0.4.5"),
        ("0.4.5", "0.4.3 to 0.4.5"),
        ("0.4.6", "0.4.6"),
        ("0.4.7", "0.4.7"),
        ("0.5.0", "0.5.0 to 0.5.2"),
        ("0.5.1", "0.5.0 to 0.5.2"),
        ("0.5.2", "0.5.0 to 0.5.2"),
        ("0.5.3", "0.5.3 to 0.5.4"),
        ("0.5.4", "0.5.3 to 0.5.4"),
        ("0.5.5", "0.5.5"),
        ("0.5.6", "0.5.6"),
        ("0.5.7rc2", "0.5.7"),
    ],
)
def test_every_release_is_found_without_harm(release: str, releases: str) -> None:
    group = found(Server(release))
    assert group.releases == releases
    if group.dialect is not None:
        # What is spoken has the numbers and frames of the real one.
        real, ours = dialect_of(release), group.dialect
        assert {op: row.id for op, row in ours.ops.items()} == {
            op: row.id for op, row in real.ops.items()
        }
        assert ours.key_fields == real.key_fields
    else:
        assert group.choices == ("0.4.3", "0.4.4", "0.4.5")
        assert release in group.choices


def test_every_release_that_has_a_row_is_modelled() -> None:
    newer = {"0.5.6", "0.5.7rc2"}
    assert {r for d in DIALECTS for r in d.releases} == {*HIGHEST_IDS, *newer}


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([NO_ANSWER] * 5, "answers no question that an LMCache MP server answers"),
        ([VOID], "its answer to operation 8, an empty reply, is not that of any release"),
        ([{"a": 1}], "its answer to operation 8, dict"),
        ([NO_ANSWER, 1.5], "its answer to operation 11, float '1.5', is not that of any release"),
        ([NO_ANSWER, NO_ANSWER, "OK"], "its answer to operation 18"),
        ([NO_ANSWER, NO_ANSWER, NO_ANSWER, "OK"], "its answer to operation 21"),
        ([NO_ANSWER, NO_ANSWER, NO_ANSWER, NO_ANSWER, 3], "its answer to operation 19"),
        ([NO_ANSWER, NO_ANSWER, NO_ANSWER, 256, 5], "its answer to operation 32"),
        ([NO_ANSWER, NO_ANSWER, NO_ANSWER, 256, [], False], "its answer to operation 11"),
        (
            [NO_ANSWER, NO_ANSWER, NO_ANSWER, 256, [], NO_ANSWER, NO_ANSWER, NO_ANSWER],
            "newer than 0.5.6, but answers neither as 0.5.6 nor as 0.5.7",
        ),
    ],
)
def test_a_stranger_is_told_apart(answers: list[Any], words: str) -> None:
    steps = probe()
    next(steps)
    for answer in answers[:-1]:
        steps.send(answer)
    with pytest.raises(RemoteProtocolError, match=words):
        steps.send(answers[-1])


@pytest.mark.parametrize(
    ("answer", "releases"), [("OK", "0.3.10 to 0.3.12"), (256, "0.3.14 to 0.3.15")]
)
def test_a_server_too_old_to_be_spoken_to_is_named(answer: Any, releases: str) -> None:
    steps = probe()
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(answer)
    assert end.value.value == Group(releases=releases, dialect=None)


def test_a_question_is_a_dialect_of_one_operation() -> None:
    question = next(probe())
    dialect: Dialect = question.dialect
    assert {op: row.id for op, row in dialect.ops.items()} == {Op.NOOP: 8}
    assert dialect.ops[Op.NOOP].pending


RELEASES = [release for dialect in DIALECTS for release in dialect.releases]


def numbers(release: str) -> tuple[int | None, ...]:
    """Return what tells generations of operation numbers apart."""
    ops = dialect_of(release).ops
    return tuple(ops[op].id if op in ops else None for op in (Op.GET_CHUNK_SIZE, Op.PING, Op.NOOP))


def confirms(named: str, server: Server) -> bool:
    """Ask a server of one release what confirms another, or the same."""
    dialect = dialect_of(named)
    question = confirmation(dialect)
    row = dialect.ops[question.op]
    answer = server.answer(Question(row=row, args=question.args))
    if answer is NO_ANSWER or row.result is None:
        return False
    try:
        return question.fits(row.result.from_wire(answer))
    except RemoteProtocolError:
        return False


@pytest.mark.parametrize("there", RELEASES)
@pytest.mark.parametrize("named", RELEASES)
def test_a_release_is_confirmed_without_harm_to_any_other(named: str, there: str) -> None:
    """The model fails the test for a CLEAR, an effect of any kind, or a number beyond its own."""
    assert confirms(named, Server(there)) is (numbers(named) == numbers(there))


def test_what_confirms_is_within_the_numbers_of_all_releases() -> None:
    ids = {confirmation(d).op: d.ops[confirmation(d).op].id for d in DIALECTS}
    assert max(d.ops[confirmation(d).op].id for d in DIALECTS) <= min(HIGHEST_IDS.values())
    assert Op.CLEAR not in ids
