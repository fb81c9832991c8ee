"""A stack machine that reads pickles of one kind, and can make nothing but plain values.

It makes integers, text, byte views, booleans, None, tuples, lists, dicts and tokens for
allow-listed names, driven by a table of opcodes: an opcode without a row is refused.  Nothing is
imported and nothing is called but what a `Grammar` maps a name to.  `protocol.inline.reading` and
`protocol.wrappers` say which streams it is meant for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protocol.errors import RemoteProtocolError

_MAX_TEXT_BYTES = 256
"""The longest legal text is the name of a shared-memory segment."""

_MAX_INT_BYTES = 16
"""torch's magic number takes 10 bytes, an int64 at most 9."""


@dataclass(frozen=True, slots=True)
class Global:
    """A name in the stream: a token to compare, never something to import."""

    module: str
    name: str


def _shown(value: object) -> str:
    """Return a short description that never walks into containers, which a peer can make huge."""
    if isinstance(value, memoryview):
        return f"{value.nbytes} bytes"
    if value is None or isinstance(value, (int, str, Global)):
        return repr(value)[:80]
    return f"a {type(value).__name__}"


def refusal(
    place: str, got: object, expected: str, *, subject: str = "inline tensor list"
) -> RemoteProtocolError:
    """Return the error for a value that is not what it should be."""
    return RemoteProtocolError(f"{subject}: {place}: got {_shown(got)}, expected {expected}")


@dataclass(slots=True, eq=False)
class Instance:
    """An object of an allow-listed class: a name and the state that BUILD gave it."""

    kind: Global
    state: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """What one layer of the stream may name, call and refer to, and how large it may grow.

    `classes` are the names of which the stream may describe instances; none is ever made.
    """

    names: frozenset[Global]
    calls: Mapping[Global, Callable[[tuple[object, ...]], object]]
    persistent: Callable[[object], object]
    max_opcodes: int
    max_stack: int
    max_memo: int
    classes: frozenset[Global] = frozenset()
    subject: str = "inline tensor list"


class _Machine:
    """The state of one pickle being read: a cursor, a stack with marks, and a memo."""

    __slots__ = ("grammar", "marks", "memo", "position", "stack", "stream")

    def __init__(self, stream: memoryview, grammar: Grammar) -> None:
        self.stream = stream
        self.grammar = grammar
        self.position = 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def refusal(self, got: object, expected: str) -> RemoteProtocolError:
        place = f"before byte {self.position}"
        return refusal(place, got, expected, subject=self.grammar.subject)

    def take(self, count: int) -> memoryview:
        end = self.position + count
        if end > self.stream.nbytes:
            left = self.stream.nbytes - self.position
            raise self.refusal(f"{left} bytes to the end", f"{count} more bytes")
        taken = self.stream[self.position : end]
        self.position = end
        return taken

    def unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def push(self, value: object) -> None:
        if len(self.stack) >= self.grammar.max_stack:
            raise self.refusal(value, f"at most {self.grammar.max_stack} values on the stack")
        self.stack.append(value)

    def push_mark(self) -> None:
        if len(self.marks) >= self.grammar.max_stack:
            raise self.refusal("MARK", f"at most {self.grammar.max_stack} open marks")
        self.marks.append(len(self.stack))

    def top(self) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise self.refusal("an empty stack", "a value to use")
        return self.stack[-1]

    def pop(self) -> object:
        value = self.top()
        self.stack.pop()
        return value

    def pop_to_mark(self) -> list[object]:
        if not self.marks:
            raise self.refusal("no open mark", "a MARK before its closing opcode")
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def remember(self, index: int) -> None:
        self.memo[index] = self.top()
        if len(self.memo) > self.grammar.max_memo:
            raise self.refusal(index, f"at most {self.grammar.max_memo} memo entries")

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise self.refusal(index, "the index of a memo entry")
        self.push(self.memo[index])

    def push_name(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise self.refusal(module if isinstance(name, str) else name, "a name as text")
        found = Global(module, name)
        if found not in self.grammar.names and found not in self.grammar.classes:
            raise self.refusal(found, "a name from the allow-list")
        self.push(found)


def _proto(machine: _Machine) -> None:
    version = machine.unsigned(1)
    # torch writes the blob as 2, LMCache the list as 4; 5 is Python 3.14's default and differs
    # in opcodes that tensors do not need.
    if not 2 <= version <= 5:
        raise machine.refusal(version, "pickle protocol 2 to 5")


def _frame(machine: _Machine) -> None:
    size = machine.unsigned(8)
    if size > machine.stream.nbytes - machine.position:
        raise machine.refusal(size, "a frame that ends within the stream")


def _long1(machine: _Machine) -> None:
    width = machine.unsigned(1)
    if width > _MAX_INT_BYTES:
        raise machine.refusal(width, f"an integer of at most {_MAX_INT_BYTES} bytes")
    machine.push(int.from_bytes(machine.take(width), "little", signed=True))


def _decoded(machine: _Machine, raw: memoryview) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise machine.refusal(raw, "UTF-8 text") from error


def _push_text(machine: _Machine, size: int) -> None:
    if size > _MAX_TEXT_BYTES:
        raise machine.refusal(size, f"text of at most {_MAX_TEXT_BYTES} bytes")
    machine.push(_decoded(machine, machine.take(size)))


def _take_line(machine: _Machine) -> str:
    ahead = machine.stream[machine.position : machine.position + _MAX_TEXT_BYTES + 1]
    size = bytes(ahead).find(b"\n")
    if size < 0:
        raise machine.refusal(ahead, f"a line of at most {_MAX_TEXT_BYTES} bytes")
    return _decoded(machine, machine.take(size + 1)[:size])


def _global(machine: _Machine) -> None:
    module = _take_line(machine)
    machine.push_name(module, _take_line(machine))


def _stack_name(machine: _Machine) -> None:
    name = machine.pop()
    machine.push_name(machine.pop(), name)


def _push_tuple(machine: _Machine, count: int) -> None:
    values = [machine.pop() for _ in range(count)]
    machine.push(tuple(reversed(values)))


def _top_list(machine: _Machine) -> list[object]:
    target = machine.top()
    if not isinstance(target, list):
        raise machine.refusal(target, "a list to append to")
    return target


def _append(machine: _Machine) -> None:
    value = machine.pop()
    _top_list(machine).append(value)


def _appends(machine: _Machine) -> None:
    values = machine.pop_to_mark()
    _top_list(machine).extend(values)


def _set_items(machine: _Machine) -> None:
    values = machine.pop_to_mark()
    target = machine.top()
    if not isinstance(target, dict) or len(values) % 2:
        raise machine.refusal(target, "a dict and an even number of keys and values")
    for key, value in zip(values[::2], values[1::2], strict=True):
        if not isinstance(key, str):
            raise machine.refusal(key, "text as dict key")
        target[key] = value


def _reduce(machine: _Machine) -> None:
    arguments = machine.pop()
    callee = machine.pop()
    call = machine.grammar.calls.get(callee) if isinstance(callee, Global) else None
    if call is None or not isinstance(arguments, tuple):
        raise machine.refusal(callee, "an allow-listed function with a tuple of arguments")
    machine.push(call(arguments))


def _new_object(machine: _Machine) -> None:
    arguments = machine.pop()
    kind = machine.pop()
    if kind not in machine.grammar.classes or not isinstance(kind, Global) or arguments != ():
        raise machine.refusal(kind, "an allow-listed class without arguments")
    machine.push(Instance(kind))


def _build(machine: _Machine) -> None:
    state = machine.pop()
    target = machine.top()
    if not isinstance(target, Instance) or target.state is not None or not isinstance(state, dict):
        raise machine.refusal(target, "a new instance, and its state as a dict")
    target.state = state


def _persistent_id(machine: _Machine) -> None:
    machine.push(machine.grammar.persistent(machine.pop()))


_STOP = ord(".")
# Opcodes that these streams do not need (OBJ, INST, NEWOBJ_EX, EXT*, LONG4, POP, DUP, ...)
# have no row, and a missing row is the refusal.
_HANDLERS: Mapping[int, Callable[[_Machine], None]] = {
    0x80: _proto,
    0x95: _frame,
    ord("("): _Machine.push_mark,
    ord("]"): lambda machine: machine.push([]),
    ord(")"): lambda machine: machine.push(()),
    ord("}"): lambda machine: machine.push({}),
    ord("N"): lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    ord("K"): lambda machine: machine.push(machine.unsigned(1)),
    ord("M"): lambda machine: machine.push(machine.unsigned(2)),
    ord("J"): lambda machine: machine.push(int.from_bytes(machine.take(4), "little", signed=True)),
    0x8A: _long1,
    ord("C"): lambda machine: machine.push(machine.take(machine.unsigned(1))),
    ord("B"): lambda machine: machine.push(machine.take(machine.unsigned(4))),
    0x8E: lambda machine: machine.push(machine.take(machine.unsigned(8))),
    0x8C: lambda machine: _push_text(machine, machine.unsigned(1)),
    ord("X"): lambda machine: _push_text(machine, machine.unsigned(4)),
    0x94: lambda machine: machine.remember(len(machine.memo)),
    ord("q"): lambda machine: machine.remember(machine.unsigned(1)),
    ord("r"): lambda machine: machine.remember(machine.unsigned(4)),
    ord("h"): lambda machine: machine.recall(machine.unsigned(1)),
    ord("j"): lambda machine: machine.recall(machine.unsigned(4)),
    ord("t"): lambda machine: machine.push(tuple(machine.pop_to_mark())),
    0x85: lambda machine: _push_tuple(machine, 1),
    0x86: lambda machine: _push_tuple(machine, 2),
    0x87: lambda machine: _push_tuple(machine, 3),
    ord("a"): _append,
    ord("e"): _appends,
    ord("u"): _set_items,
    ord("c"): _global,
    0x93: _stack_name,
    ord("R"): _reduce,
    0x81: _new_object,
    ord("b"): _build,
    ord("Q"): _persistent_id,
}


def read_pickle(stream: memoryview, grammar: Grammar) -> tuple[object, memoryview]:
    """Return the value of the pickle at the start of `stream`, and what follows its STOP."""
    machine = _Machine(stream, grammar)
    for _ in range(grammar.max_opcodes):
        opcode = machine.unsigned(1)
        if opcode == _STOP:
            value = machine.pop()
            if machine.stack or machine.marks:
                raise machine.refusal("STOP", "one value on the stack at the end")
            return value, stream[machine.position :]
        handler = _HANDLERS.get(opcode)
        if handler is None:
            raise machine.refusal(f"opcode {opcode:#04x}", "an opcode that these streams need")
        handler(machine)
    raise machine.refusal("no STOP", f"at most {grammar.max_opcodes} opcodes")


def short_int(value: int) -> bytes:
    """Return the shortest opcode for a count: BININT1, BININT2, BININT or LONG1."""
    if value < 1 << 8:
        return b"K" + value.to_bytes(1, "little")
    if value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if value < 1 << 31:
        return b"J" + value.to_bytes(4, "little")
    width = value.bit_length() // 8 + 1  # one bit more than the value: LONG1 is signed
    return b"\x8a" + width.to_bytes(1, "little") + value.to_bytes(width, "little")
