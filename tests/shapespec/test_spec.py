"""The values: what may exist, what they derive, and how a SpecError reads."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapespec.dtypes import DTYPES, DType
from shapespec.spec import GroupSpec, ShapeSpec, SpecError

FP16 = DTYPES["float16"]
GROUP = GroupSpec(
    kv_size=2, num_blocks=1024, block_size=16, num_heads=8, head_size=128, dtype=FP16, layers=32
)
MLA = replace(GROUP, kv_size=1, num_heads=1, head_size=576, dtype=DTYPES["bfloat16"], layers=5)


def test_canonical_text() -> None:
    assert GROUP.text == "(2,1024,16,8,128):float16:32"
    spec = ShapeSpec(groups=(GROUP, MLA))
    assert spec.text == "(2,1024,16,8,128):float16:32;(1,1024,16,1,576):bfloat16:5"


def test_properties_of_a_mixed_spec() -> None:
    spec = ShapeSpec(groups=(GROUP, MLA))
    assert (spec.num_layers, spec.num_blocks, spec.block_size) == (37, 1024, 16)
    assert [group.is_mla for group in spec.groups] == [False, True]


@pytest.mark.parametrize(
    ("groups", "is_mla"), [((GROUP,), False), ((MLA,), True), ((GROUP, MLA), True)]
)
def test_a_spec_is_mla_when_any_group_is(groups: tuple[GroupSpec, ...], is_mla: bool) -> None:
    assert ShapeSpec(groups=groups).is_mla is is_mla


@pytest.mark.parametrize(
    ("attribute", "maximum", "label"),
    [
        ("kv_size", 2, "kv_size"),
        ("num_blocks", 2147483647, "NB"),
        ("block_size", 2147483647, "BS"),
        ("num_heads", 2147483647, "NH"),
        ("head_size", 2147483647, "HS"),
        ("layers", 4096, "layers"),
    ],
)
def test_every_number_has_a_range(attribute: str, maximum: int, label: str) -> None:
    for value in (1, maximum):
        assert getattr(replace(GROUP, **{attribute: value}), attribute) == value  # type: ignore[arg-type]
    wrong: tuple[object, ...] = (0, -1, maximum + 1, True, 1.0, "1")
    for refused in wrong:
        with pytest.raises(ValueError) as caught:
            replace(GROUP, **{attribute: refused})  # type: ignore[arg-type]
        expected = f"got {refused!r}, expected an integer from 1 to {maximum} ({label})"
        assert str(caught.value) == f"group spec: {expected}"


@pytest.mark.parametrize(
    "dtype",
    [
        DType(name="float8", item_bytes=1),
        DType(name="float16", item_bytes=4),
        "float16",
    ],
)
def test_the_dtype_must_be_a_supported_one(dtype: DType) -> None:
    with pytest.raises(ValueError, match="expected a value of DTYPES"):
        replace(GROUP, dtype=dtype)


@pytest.mark.parametrize("groups", [(), [], [GROUP]])
def test_groups_must_be_a_tuple_of_some(groups: tuple[GroupSpec, ...]) -> None:
    with pytest.raises(ValueError, match="expected a tuple of groups"):
        ShapeSpec(groups=groups)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            (GROUP, replace(GROUP, num_blocks=512)),
            "shape spec, group 2: got '(2,512,16,8,128):float16:32', "
            "expected NB 1024 as in the first group",
        ),
        (
            (GROUP, GROUP, replace(GROUP, block_size=32)),
            "shape spec, group 3: got '(2,1024,32,8,128):float16:32', "
            "expected BS 16 as in the first group",
        ),
        (
            (replace(GROUP, layers=4096), replace(GROUP, layers=1)),
            "shape spec, group 2: got '(2,1024,16,8,128):float16:1', "
            "expected at most 4096 layers in all groups",
        ),
        (
            (replace(GROUP, layers=1),) * 65,
            "shape spec, group 65: got '(2,1024,16,8,128):float16:1', expected at most 64 groups",
        ),
    ],
)
def test_rules_between_groups(groups: tuple[GroupSpec, ...], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        ShapeSpec(groups=groups)
    assert str(caught.value) == message


def test_the_limits_themselves_are_allowed() -> None:
    assert ShapeSpec(groups=(replace(GROUP, layers=64),) * 64).num_layers == 4096


def test_values_are_frozen_hashable_and_picklable() -> None:
    spec = ShapeSpec(groups=(GROUP, MLA))
    for twin in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert twin == spec
        assert hash(twin) == hash(spec)
    with pytest.raises(FrozenInstanceError):
        spec.groups = ()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        GROUP.layers = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0", "'0'"),
        ("", "the end of the text"),
        ("a\nb\r\x1b[31m\u2028", r"'a\nb\r\x1b[31m\u2028'"),
        ("\uff12", r"'\uff12'"),
        ("\ud800", r"'\ud800'"),
        ("it's", '"it\'s"'),
        ("x" * 60, "'" + "x" * 60 + "'"),
        ("x" * 61, "'" + "x" * 60 + "'..."),
    ],
)
def test_an_error_shows_odd_text_on_one_line(text: str, shown: str) -> None:
    error = SpecError(9, text, "a digit")
    assert str(error) == f"shape spec, column 9: got {shown}, expected a digit"
    assert (error.column, error.text, error.expected) == (9, text, "a digit")
    assert isinstance(error, ValueError)


@given(st.text(), st.integers(min_value=1))
def test_an_error_is_one_short_ascii_line(text: str, column: int) -> None:
    message = str(SpecError(column, text, "a digit"))
    assert message.isascii()
    assert message.isprintable()
    assert len(message.splitlines()) == 1


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(SpecError(3, "x", "y")))
    assert (error.column, error.text, error.expected) == (3, "x", "y")
