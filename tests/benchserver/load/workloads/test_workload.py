"""What every workload must hold, over all of them."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.load.workloads.parse import NAMES, parse_workload
from benchserver.load.workloads.workload import Terms
from tests.benchserver.load.workloads.bound import TRACE, holds, terms

TEXTS = (
    "unique",
    "shared-prefix:75",
    "prefix-tree",
    "prefix-tree:branching=2,depth=9,zipf=0,own=0",
    "chat",
    "chat:turns=3,users=5,system=0,think=0",
    "churn:2",
    "churn:0.5,l1=8KiB",
    TRACE,
)
"""One of each kind."""

ON_TERMS = st.builds(
    terms,
    seed=st.integers(0, 2**63 - 1),
    num_tokens=st.integers(1, 500),
    in_flight=st.integers(1, 20),
    l1_bytes=st.integers(1024, 1 << 20),
)


def test_one_of_each_kind_is_looked_at() -> None:
    assert {text.partition(":")[0] for text in TEXTS} == set(NAMES)


@given(st.sampled_from(TEXTS), ON_TERMS)
def test_every_workload_holds_what_all_promise(text: str, on: Terms) -> None:
    assert holds(text, on)


@pytest.mark.parametrize("text", TEXTS)
def test_another_process_asks_the_same(text: str) -> None:
    on = terms(l1_bytes=1 << 16)
    code = (
        "import itertools\n"
        "from benchserver.load.workloads.parse import parse_workload\n"
        "from benchserver.load.workloads.workload import Terms\n"
        f"made = parse_workload({text!r}).bind({on!r}).requests()\n"
        "print(list(itertools.islice(made, 30)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    made = itertools.islice(parse_workload(text).bind(on).requests(), 30)
    assert ran.stdout.strip() == str(list(made))
