"""The rules that the source must keep: size, imports, names, tests, documents.

Each rule is a function of a source tree in tests/rules/, where its own tests plant an offence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from benchserver.check.run import STAGE_CHECKS
from benchserver.refserver.faults.settings import PARAMS
from benchserver.refserver.faults.table import FAULTS
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.scenarios.ping.checks import CHECKS as PING_CHECKS
from benchserver.section import RECORD_KEYS, REPORT_KEYS
from tests.rules import exceptions
from tests.rules.documents import rows_under, wrong_places
from tests.rules.imports import file_graph, rings, room_graph
from tests.rules.names import (
    asked_kinds,
    dead_names,
    loop_starts,
    nameless_modules,
    untested_modules,
)
from tests.rules.sizes import Measured, long_functions, long_modules, wide_interfaces
from tests.rules.source import Source, read_source
from tests.unmirrored import UNMIRRORED

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def source() -> Source:
    return read_source(ROOT)


def unexpected(found: Iterable[str], expected: Iterable[str]) -> list[str]:
    """Return what breaks a rule and is not expected to, and what is expected to and does not."""
    broken, known = set(found), set(expected)
    return [
        *sorted(broken - known),
        *(
            f"{place} keeps the rule now: remove it from the list"
            for place in sorted(known - broken)
        ),
    ]


def grown(found: Measured, expected: Measured) -> list[str]:
    """Return what `unexpected` does, and what is larger than expected."""
    larger = {place for place, size in found.items() if size > expected.get(place, size)}
    return [
        *(f"{line}{_size(found, line)}" for line in unexpected(found, expected)),
        *(f"{place} grew from {expected[place]} to {found[place]}" for place in sorted(larger)),
    ]


def _size(found: Measured, place: str) -> str:
    return f": {found[place]}" if place in found else ""


def test_lists_of_exceptions_only_shrink() -> None:
    assert unexpected(["a", "b"], ["a", "b"]) == []
    assert unexpected(["a", "b"], ["b"]) == ["a"]
    assert unexpected(["b"], ["a", "b"]) == ["a keeps the rule now: remove it from the list"]
    assert grown({"a": 5}, {"a": 5}) == grown({"a": 4}, {"a": 5}) == []
    assert grown({"a": 6}, {"a": 5}) == ["a grew from 5 to 6"]
    assert grown({"a": 6}, {}) == ["a: 6"]
    assert grown({}, {"a": 5}) == ["a keeps the rule now: remove it from the list"]


def test_the_tree_that_is_read_is_this_one(source: Source) -> None:
    assert {"tests/test_rules.py", "benchserver/errors.py", "scripts/measure"} <= set(
        source.by_place
    )
    assert len(source.product) > 150


def test_functions_have_70_lines_at_most(source: Source) -> None:
    assert grown(long_functions(source), exceptions.LONG_FUNCTIONS) == []


def test_modules_have_400_lines_at_most_and_500_beside_the_product(source: Source) -> None:
    assert grown(long_modules(source), exceptions.LONG_MODULES) == []


def test_interfaces_have_five_methods_at_most(source: Source) -> None:
    assert grown(wide_interfaces(source), exceptions.WIDE_INTERFACES) == []


def test_no_ring_of_imports_between_files(source: Source) -> None:
    assert unexpected(rings(file_graph(source)), exceptions.RINGS) == []


def test_no_ring_of_imports_between_rooms(source: Source) -> None:
    assert unexpected(rings(room_graph(source)), exceptions.ROOM_RINGS) == []


def test_no_module_is_called_utils_or_the_like(source: Source) -> None:
    assert nameless_modules(source) == []


def test_every_module_has_tests_in_the_file_of_its_name(source: Source) -> None:
    assert unexpected(untested_modules(source), [*UNMIRRORED, *exceptions.UNTESTED]) == []


def test_no_name_without_a_user(source: Source) -> None:
    known = [*exceptions.USED_ELSEWHERE, *exceptions.DEAD_NAMES]
    assert unexpected(dead_names(source), known) == []


def test_nobody_asks_which_implementation_of_an_interface_it_has(source: Source) -> None:
    assert unexpected(asked_kinds(source), exceptions.ASKED_KINDS) == []


def test_loops_are_started_by_pytest_asyncio(source: Source) -> None:
    found = loop_starts(source)
    assert not exceptions.LOOPS.keys() - found.keys()
    rest = {place: times for place, times in found.items() if place not in exceptions.LOOPS}
    assert grown(rest, exceptions.LOOPS_STARTED) == []


@pytest.mark.parametrize("reasons", [UNMIRRORED, exceptions.USED_ELSEWHERE, exceptions.LOOPS])
def test_every_exception_has_its_reason(reasons: Mapping[str, str]) -> None:
    assert all(len(reason) > 10 and "\n" not in reason for reason in reasons.values())


def test_the_architecture_names_every_module_and_no_other(source: Source) -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert unexpected(wrong_places(source, text), exceptions.WRONG_PLACES) == []


def rows_of_documents(*header: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of all tables in README and docs/ that have such a header."""
    rows = dict[str, tuple[str, ...]]()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        rows |= rows_under(path.read_text(encoding="utf-8"), *header)
    return rows


def test_the_documents_name_every_check_and_its_meaning() -> None:
    rows = rows_of_documents("check", "passes if")
    checks = (*CHECKS, *PING_CHECKS, *STAGE_CHECKS)
    assert rows == {check.name: (check.meaning,) for check in checks}


def test_the_documents_name_every_fault_with_its_arguments() -> None:
    rows = rows_of_documents("fault", "meaning", "arguments and defaults", "harmless")
    assert rows == {
        name: (
            fault.meaning,
            fault.form.partition(":")[2],
            "harmless" if fault.harmless else "",
        )
        for name, fault in FAULTS.items()
    }


def test_the_documents_name_what_a_fault_may_be_told() -> None:
    rows = rows_of_documents("argument", "value")
    assert rows == {param.name: (param.expected,) for param in PARAMS.values()}


def test_the_documents_name_every_key_of_a_json_report() -> None:
    assert rows_of_documents("key", "what it holds").keys() == REPORT_KEYS | RECORD_KEYS


def test_contributing_names_every_script() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = rows_under(text, "script", "what it does")
    there = {path.name for path in (ROOT / "scripts").iterdir() if path.is_file()}
    assert named.keys() == {f"scripts/{name}" for name in there - {"lib"}}
