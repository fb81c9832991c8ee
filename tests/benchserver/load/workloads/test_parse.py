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


def test_every_example_of_the_documents_is_a_workload() -> None:
    text = (Path(__file__).parents[4] / "docs/workloads.md").read_text(encoding="utf-8")
    found = re.findall(r"--workload (\S+)", text)
    assert {name.partition(":")[0] for name in found} == set(NAMES)
    for example in found:
        if not example.startswith("trace:"):
            assert parse_workload(example).bind(terms(l1_bytes=1 << 20)).describe()
