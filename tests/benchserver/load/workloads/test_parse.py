"""The names of workloads: each makes its own, and any other text is one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import UsageError
from benchserver.load.workloads.parse import NAMES, parse_workload
from tests.benchserver.load.workloads.bound import terms
from tests.rules.documents import rows_under


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "--workload is empty: not a workload, expected one of unique, shared-prefix, "),
        ("mystery", "--workload mystery: not a workload, expected one of"),
        ("trace", "--workload trace: not a workload, expected one of unique,"),
        ("trace:", "--workload trace:: No such file or directory"),
        ("Unique", "--workload Unique: not a workload"),
        ("unique:3", "--workload unique:3: 3 is not known, expected unique alone"),
    ],
)
def test_what_is_no_workload_is_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_workload(text)
    assert words in str(caught.value)


@given(
    st.one_of(
        st.text(max_size=30),
        st.builds(
            "{}:{}".format, st.sampled_from(NAMES), st.text("0123456789.,=-naif", max_size=12)
        ),
    )
)
def test_any_text_is_a_workload_or_one_line(text: str) -> None:
    error = ""
    try:
        assert parse_workload(text).bind(terms(l1_bytes=1 << 20)).max_tokens > 0
    except UsageError as refused:
        error = str(refused)
    assert error.isprintable()


DOCUMENT = (Path(__file__).parents[4] / "docs/workloads.md").read_text(encoding="utf-8")


def documented_values() -> list[tuple[str, str, str, float, float]]:
    """Return workload, key, default and bounds of each row of its tables of values."""
    found = list[tuple[str, str, str, float, float]]()
    for section in DOCUMENT.split("\n## "):
        name = section.partition("\n")[0]
        for key, (_, default, bounds) in rows_under(section, "value", "meaning").items():
            low, _, high = bounds.partition(", ")
            found.append((name, key, default, float(low), float(high)))
    return found


def test_the_documents_name_values_of_two_workloads() -> None:
    assert {name for name, *_ in documented_values()} == {"prefix-tree", "chat"}


@pytest.mark.parametrize(("name", "key", "default", "low", "high"), documented_values())
def test_values_have_the_defaults_and_bounds_of_the_documents(
    name: str, key: str, default: str, low: float, high: float
) -> None:
    assert parse_workload(f"{name}:{key}={default}") == parse_workload(name)
    for inside in (low, high):
        assert parse_workload(f"{name}:{key}={inside:.15g}")
    for outside in (low - 1, high + 1):
        with pytest.raises(UsageError, match=f"{key} is .*, expected a .*number from"):
            parse_workload(f"{name}:{key}={outside:.15g}")


def test_the_documents_name_every_workload() -> None:
    names = rows_under(DOCUMENT, "workload", "what it is like")
    assert {name.partition(":")[0] for name in names} == set(NAMES)


def test_every_example_of_the_documents_is_a_workload() -> None:
    found = re.findall(r"--workload (\S+)", DOCUMENT)
    assert {name.partition(":")[0] for name in found} == set(NAMES)
    for example in found:
        if not example.startswith("trace:"):
            assert parse_workload(example).bind(terms(l1_bytes=1 << 20)).describe()
