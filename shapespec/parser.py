"""Text to `ShapeSpec`.

Owns the grammar and the columns of its errors.  Limits and rules are not its own: it asks `spec`
for both, so that a text and a directly built value are held to the same.

    spec   = group { ";" group } [ ";" ]
    group  = "(" kv_size "," NB "," BS "," NH "," HS ")" ":" dtype ":" layers
    number = "1".."9" { "0".."9" }         ASCII only: no sign, underscore, leading zero
    dtype  = a name of DTYPES in any case
    blanks (space, tab) may surround every token

Works in one pass.  A token is one mark of `( ) , : ;` or the longest run of anything else up to
a mark or a blank: so `1.5`, `+2` or a stray line break is one token, refused and shown whole.
The grammar needs no token of lookahead beyond the next, and nothing nests, so a loop serves where
a recursive parser would have recursed.  Real servers accept a wider and stranger language (layers
of 0, empty groups, `2_0`); what we send them is the canonical text, which all of them read.
"""

import re
from typing import NamedTuple

from shapespec.dtypes import DTYPES, DType
from shapespec.spec import DIMENSIONS, LAYERS, Field, GroupSpec, ShapeSpec, SpecError, find_conflict

MAX_TEXT_CHARS = 8192
"""Twice the longest canonical text (64 groups of 61 characters), which leaves room for blanks."""

_TOKEN = re.compile(r"[(),:;]|[^(),:; \t]+")
_PLAIN_NUMBER = re.compile(r"0|[1-9][0-9]*")  # "0" is well-formed, and then out of range
_MAX_DIGITS = 10  # of 2**31 - 1; int() itself refuses thousands of digits with another error


class _Token(NamedTuple):
    text: str  # empty only for the token that stands for the end of the text
    column: int

    def error(self, expected: str) -> SpecError:
        return SpecError(self.column, self.text, expected)


class _ParsedGroup(NamedTuple):
    spec: GroupSpec
    source: _Token  # the group's whole text at its column, for errors between groups


class _Reader:
    """A text and the position of its next token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [_Token(m.group(), m.start() + 1) for m in _TOKEN.finditer(text)]
        self._tokens.append(_Token("", len(text) + 1))
        self._next = 0

    @property
    def head(self) -> _Token:
        return self._tokens[self._next]

    @property
    def at_end(self) -> bool:
        return not self.head.text

    def take(self) -> _Token:
        """Return the next token and step over it; the end is never stepped over."""
        token = self.head
        if not self.at_end:
            self._next += 1
        return token

    def expect(self, mark: str, place: str) -> _Token:
        token = self.take()
        if token.text != mark:
            raise token.error(f"'{mark}' {place}")
        return token

    def since(self, start: _Token) -> _Token:
        """Return everything from `start` to the last token taken, as one token."""
        last = self._tokens[self._next - 1]
        end = last.column - 1 + len(last.text)
        return _Token(self._text[start.column - 1 : end], start.column)


def parse_shape_spec(text: str) -> ShapeSpec:
    """Read `(kv_size,NB,BS,NH,HS):dtype:layers[;...]`.

    Raises SpecError, and nothing else, for any other text.
    """
    if len(text) > MAX_TEXT_CHARS:
        excess = _Token(text[MAX_TEXT_CHARS:], MAX_TEXT_CHARS + 1)
        raise excess.error(f"at most {MAX_TEXT_CHARS} characters")
    parsed = _read_groups(_Reader(text))
    groups = tuple(group.spec for group in parsed)
    conflict = find_conflict(groups)
    if conflict is not None:
        raise parsed[conflict.index].source.error(conflict.expected)
    return ShapeSpec(groups=groups)


def _read_groups(reader: _Reader) -> list[_ParsedGroup]:
    groups = [_read_group(reader)]
    while not reader.at_end:
        reader.expect(";", "or the end of the text after layers")
        if reader.at_end:
            break
        groups.append(_read_group(reader))
    return groups


def _read_group(reader: _Reader) -> _ParsedGroup:
    start = reader.expect("(", "to open a group (kv_size,NB,BS,NH,HS):dtype:layers")
    kv_size, num_blocks, block_size, num_heads, head_size = _read_dimensions(reader)
    reader.expect(":", "before the dtype")
    dtype = _read_dtype(reader)
    reader.expect(":", "before layers")
    layers = _read_number(reader, LAYERS)
    spec = GroupSpec(
        kv_size=kv_size,
        num_blocks=num_blocks,
        block_size=block_size,
        num_heads=num_heads,
        head_size=head_size,
        dtype=dtype,
        layers=layers,
    )
    return _ParsedGroup(spec, reader.since(start))


def _read_dimensions(reader: _Reader) -> list[int]:
    numbers = []
    for field in DIMENSIONS:
        numbers.append(_read_number(reader, field))
        mark = ")" if field is DIMENSIONS[-1] else ","
        reader.expect(mark, f"after {field.label}")
    return numbers


def _read_number(reader: _Reader, field: Field) -> int:
    token = reader.take()
    if not _PLAIN_NUMBER.fullmatch(token.text):
        raise token.error(f"{field.expectation}, in digits without a sign or leading zero")
    if len(token.text) > _MAX_DIGITS or not field.allows(int(token.text)):
        raise token.error(field.expectation)
    return int(token.text)


def _read_dtype(reader: _Reader) -> DType:
    token = reader.take()
    dtype = DTYPES.get(token.text.lower())
    if dtype is None:
        raise token.error(f"a dtype: {', '.join(DTYPES)}")
    return dtype
