"""The grammar: accepted and refused texts by literal table, everything else by hypothesis."""

import re
from collections.abc import Callable
from itertools import cycle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shapespec.dtypes import DTYPES
from shapespec.parser import MAX_TEXT_CHARS, parse_shape_spec
from shapespec.spec import GroupSpec, ShapeSpec, SpecError

Row = tuple[int, int, int, int, int, str, int]

DEFAULT: Row = (2, 1024, 16, 8, 128, "float16", 32)


def rows(spec: ShapeSpec) -> list[Row]:
    return [
        (
            g.kv_size,
            g.num_blocks,
            g.block_size,
            g.num_heads,
            g.head_size,
            g.dtype.name,
            g.layers,
        )
        for g in spec.groups
    ]


ACCEPTED: list[tuple[str, list[Row]]] = [
    ("(2,1024,16,8,128):float16:32", [DEFAULT]),
    ("(2,1024,16,8,128):FLOAT16:32", [DEFAULT]),
    ("(2,1024,16,8,128):Float16:32;", [DEFAULT]),
    ("(2,1024,16,8,128):float16:32 ;\t ", [DEFAULT]),
    (" ( 2 ,\t1024 , 16 , 8 , 128 ) : float16 : 32 ", [DEFAULT]),
    ("(1,1,1,1,1):int8:1", [(1, 1, 1, 1, 1, "int8", 1)]),
    ("(1,1,1,1,1):float8_e4m3fn:1", [(1, 1, 1, 1, 1, "float8_e4m3fn", 1)]),
    ("(1,1,1,1,1):FLOAT8_E5M2:1", [(1, 1, 1, 1, 1, "float8_e5m2", 1)]),
    ("(1,64,16,1,576):BFloat16:61", [(1, 64, 16, 1, 576, "bfloat16", 61)]),
    ("(2,8,4,2,64):float32:1", [(2, 8, 4, 2, 64, "float32", 1)]),
    ("(2,8,4,2,64):uint8:4096", [(2, 8, 4, 2, 64, "uint8", 4096)]),
    (
        "(2,2147483647,2147483647,2147483647,2147483647):int8:1",
        [(2, 2147483647, 2147483647, 2147483647, 2147483647, "int8", 1)],
    ),
    (
        "(2,64,16,8,128):float16:2 ; (1,64,16,1,576):uint8:3;",
        [(2, 64, 16, 8, 128, "float16", 2), (1, 64, 16, 1, 576, "uint8", 3)],
    ),
    (
        "(2,64,16,8,128):float16:2;(2,64,16,8,128):float16:2",
        [(2, 64, 16, 8, 128, "float16", 2), (2, 64, 16, 8, 128, "float16", 2)],
    ),
]


@pytest.mark.parametrize(("text", "expected"), ACCEPTED)
def test_accepted(text: str, expected: list[Row]) -> None:
    assert rows(parse_shape_spec(text)) == expected


ONE = "(2,64,16,8,128):int8:1"
OPEN = "'(' to open a group (kv_size,NB,BS,NH,HS):dtype:layers"
DIGITS = ", in digits without a sign or leading zero"
NB = "an integer from 1 to 2147483647 (NB)"
BS = "an integer from 1 to 2147483647 (BS)"
HS = "an integer from 1 to 2147483647 (HS)"
KV = "an integer from 1 to 2 (kv_size)"
LAYERS = "an integer from 1 to 4096 (layers)"
DTYPE = "a dtype: float16, bfloat16, float32, uint8, int8, float8_e4m3fn, float8_e5m2"
AFTER = "';' or the end of the text after layers"

REJECTED = [
    # nothing, or no group where one must be
    ("", 1, "", OPEN),
    (" \t", 3, "", OPEN),
    (";", 1, ";", OPEN),
    (";" + ONE, 1, ";", OPEN),
    (ONE + ";;", 24, ";", OPEN),
    (ONE + "; ;" + ONE, 25, ";", OPEN),
    ("2,64,16,8,128:int8:1", 1, "2", OPEN),
    ("[2,64,16,8,128]:int8:1", 1, "[2", OPEN),
    # numbers out of range
    ("(2,1024,0,8,128):float16:32", 9, "0", BS),
    ("(0,64,16,8,128):int8:1", 2, "0", KV),
    ("(3,64,16,8,128):int8:1", 2, "3", KV),
    ("(2,64,16,8,2147483648):int8:1", 12, "2147483648", HS),
    ("(2," + "9" * 5000 + ",16,8,128):int8:1", 4, "9" * 5000, NB),
    ("(2,64,16,8,128):int8:0", 22, "0", LAYERS),
    ("(2,64,16,8,128):int8:4097", 22, "4097", LAYERS),
    # no plain ASCII decimal
    ("(2,064,16,8,128):int8:1", 4, "064", NB + DIGITS),
    ("(2,00,16,8,128):int8:1", 4, "00", NB + DIGITS),
    ("(2,-64,16,8,128):int8:1", 4, "-64", NB + DIGITS),
    ("(2,+64,16,8,128):int8:1", 4, "+64", NB + DIGITS),
    ("(2,6_4,16,8,128):int8:1", 4, "6_4", NB + DIGITS),
    ("(2,0x40,16,8,128):int8:1", 4, "0x40", NB + DIGITS),
    ("(2,64.0,16,8,128):int8:1", 4, "64.0", NB + DIGITS),
    ("(2,1e3,16,8,128):int8:1", 4, "1e3", NB + DIGITS),
    ("(2,６４,16,8,128):int8:1", 4, "６４", NB + DIGITS),
    ("(2,6４,16,8,128):int8:1", 4, "6４", NB + DIGITS),
    ("(2,²,16,8,128):int8:1", 4, "²", NB + DIGITS),
    ("(2,٣,16,8,128):int8:1", 4, "٣", NB + DIGITS),
    ("(2,,16,8,128):int8:1", 4, ",", NB + DIGITS),
    ("(2,64,16,8,128):int8:-1", 22, "-1", LAYERS + DIGITS),
    ("(2,64,16,8,128):int8:1.5", 22, "1.5", LAYERS + DIGITS),
    ("(2,64,16,8,128):int8:", 22, "", LAYERS + DIGITS),
    ("(2,64,16,8,128):int8:;", 22, ";", LAYERS + DIGITS),
    ("(", 2, "", KV + DIGITS),
    # four numbers, six, a trailing comma, nesting
    ("(2,64,16,8):int8:1", 11, ")", "',' after NH"),
    ("(2,64,16,8,128,1):int8:1", 15, ",", "')' after HS"),
    ("(2,64,16,8,128,):int8:1", 15, ",", "')' after HS"),
    ("()", 2, ")", KV + DIGITS),
    ("((2,64,16,8,128)):int8:1", 2, "(", KV + DIGITS),
    ("(2,64,16,8,128)):int8:1", 16, ")", "':' before the dtype"),
    ("(2 64,16,8,128):int8:1", 4, "64", "',' after kv_size"),
    ("(2,6 4,16,8,128):int8:1", 6, "4", "',' after NB"),
    ("(2,64;16,8,128):int8:1", 6, ";", "',' after NB"),
    ("(2,64,16", 9, "", "',' after BS"),
    # dtype
    ("(2,64,16,8,128)", 16, "", "':' before the dtype"),
    ("(2,64,16,8,128)int8:1", 16, "int8", "':' before the dtype"),
    ("(2,64,16,8,128)::1", 17, ":", DTYPE),
    ("(2,64,16,8,128):half:1", 17, "half", DTYPE),
    ("(2,64,16,8,128):fp16:1", 17, "fp16", DTYPE),
    ("(2,64,16,8,128):float8_e4m3:1", 17, "float8_e4m3", DTYPE),
    ("(2,64,16,8,128):int８:1", 17, "int８", DTYPE),
    ("(2,64,16,8,128):float 16:1", 17, "float", DTYPE),
    ("(2,64,16,8,128):int8", 21, "", "':' before layers"),
    ("(2,64,16,8,128):int8 1", 22, "1", "':' before layers"),
    # more after layers
    (ONE + ":1", 23, ":", AFTER),
    (ONE + ",", 23, ",", AFTER),
    (ONE + " x", 24, "x", AFTER),
    (ONE + " 1", 24, "1", AFTER),
    (ONE + "," + ONE, 23, ",", AFTER),
    (ONE + ONE, 23, "(", AFTER),
    # line breaks and other spaces are no blanks
    ("\n" + ONE, 1, "\n", OPEN),
    (ONE + "\n", 22, "1\n", LAYERS + DIGITS),
    (ONE + ";\n" + ONE, 24, "\n", OPEN),
    ("(2,\n64,16,8,128):int8:1", 4, "\n64", NB + DIGITS),
    ("(2,\u00a064,16,8,128):int8:1", 4, "\u00a064", NB + DIGITS),
    (ONE + "\x00", 22, "1\x00", LAYERS + DIGITS),
    # between groups
    (
        ONE + " ; ( 2,32,16,8,128):int8 : 1 ;",
        26,
        "( 2,32,16,8,128):int8 : 1",
        "NB 64 as in the first group",
    ),
    (
        ONE + ";" + ONE + ";(2,64,8,8,128):int8:1",
        47,
        "(2,64,8,8,128):int8:1",
        "BS 16 as in the first group",
    ),
    (
        "(2,64,16,8,128):int8:4000;(2,64,16,8,128):int8:97",
        27,
        "(2,64,16,8,128):int8:97",
        "at most 4096 layers in all groups",
    ),
    (";".join([ONE] * 65), 64 * 23 + 1, ONE, "at most 64 groups"),
    (ONE + " " * 8171, 8193, " ", "at most 8192 characters"),
]


@pytest.mark.parametrize(("text", "column", "offending", "expected"), REJECTED)
def test_rejected(text: str, column: int, offending: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_shape_spec(text)
    error = caught.value
    assert (error.column, error.text, error.expected) == (column, offending, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "(2,1024,0,8,128):float16:32",
            "shape spec, column 9: got '0', expected an integer from 1 to 2147483647 (BS)",
        ),
        (
            "(2,64,16,8,128):int8",
            "shape spec, column 21: got the end of the text, expected ':' before layers",
        ),
        (
            "(2,64,16,8,128):int8:1;(2,32,16,8,128):int8:1",
            "shape spec, column 24: got '(2,32,16,8,128):int8:1', "
            "expected NB 64 as in the first group",
        ),
        (
            "(2,64,16,8,128):int8:1\n",
            r"shape spec, column 22: got '1\n', "
            "expected an integer from 1 to 4096 (layers), in digits without a sign or leading zero",
        ),
    ],
)
def test_messages_in_full(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_shape_spec(text)
    assert str(caught.value) == message


def test_the_longest_allowed_texts() -> None:
    assert len(rows(parse_shape_spec(";".join([ONE] * 64)))) == 64
    assert len(rows(parse_shape_spec(ONE + " " * 8170))) == 1


def check_total(text: str) -> None:
    """Either a spec, or a SpecError that points into the text with one line; nothing else."""
    outcome = spec_or_error(text)
    if isinstance(outcome, ShapeSpec):
        assert parse_shape_spec(outcome.text) == outcome
        return
    assert 1 <= outcome.column <= len(text) + 1
    assert text.startswith(outcome.text, outcome.column - 1)
    assert str(outcome).isprintable()
    assert str(outcome).isascii()
    assert len(str(outcome)) < 1000


def spec_or_error(text: str) -> ShapeSpec | SpecError:
    try:
        return parse_shape_spec(text)
    except SpecError as error:
        return error


@given(st.text())
@example("(2," + "9" * 5000)
@example("x" * (MAX_TEXT_CHARS + 1))
@example("(" * MAX_TEXT_CHARS)
@example("\ud800")
def test_any_text_gives_a_spec_or_a_spec_error(text: str) -> None:
    check_total(text)


FRAGMENTS = ["(", ")", ",", ":", ";", " ", "\t", "\n", "1", "2", "0", "-", "int8", ONE]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join))
def test_any_shuffle_of_the_grammar_gives_a_spec_or_a_spec_error(text: str) -> None:
    check_total(text)


@given(
    st.sampled_from([text for text, _ in ACCEPTED]),
    st.integers(min_value=0, max_value=70),
    st.integers(min_value=0, max_value=2),
    st.text(max_size=2),
)
def test_any_small_edit_gives_a_spec_or_a_spec_error(
    text: str, start: int, removed: int, inserted: str
) -> None:
    check_total(text[:start] + inserted + text[start + removed :])


SIZES = st.integers(min_value=1, max_value=2**31 - 1)


@st.composite
def shape_specs(draw: st.DrawFn) -> ShapeSpec:
    num_blocks, block_size = draw(SIZES), draw(SIZES)
    group = st.builds(
        GroupSpec,
        kv_size=st.integers(min_value=1, max_value=2),
        num_blocks=st.just(num_blocks),
        block_size=st.just(block_size),
        num_heads=SIZES,
        head_size=SIZES,
        dtype=st.sampled_from(list(DTYPES.values())),
        layers=st.integers(min_value=1, max_value=512),  # eight groups reach the 4096
    )
    return ShapeSpec(groups=tuple(draw(st.lists(group, min_size=1, max_size=8))))


@given(shape_specs())
def test_canonical_text_parses_back_to_the_value(spec: ShapeSpec) -> None:
    assert parse_shape_spec(spec.text) == spec


RESPELL = [str.lower, str.upper, str.capitalize]
BLANKS = st.text(alphabet=" \t", max_size=3)


@given(
    shape_specs(),
    st.lists(st.tuples(BLANKS, st.sampled_from(RESPELL)), min_size=1, max_size=20),
    st.sampled_from(["", ";"]),
)
def test_blanks_case_and_a_last_semicolon_change_nothing(
    spec: ShapeSpec, styles: list[tuple[str, Callable[[str], str]]], last: str
) -> None:
    words = [*re.findall(r"\w+|\W", spec.text), last, ""]
    text = "".join(
        blanks + respell(word)
        for word, (blanks, respell) in zip(words, cycle(styles), strict=False)
    )
    assert parse_shape_spec(text) == spec
