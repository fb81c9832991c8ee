"""Rows of options, and what follows from a row alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchserver.options.kinds import ByField, Choice, Flag, Kind, Number, Text, Texts, Whole
from benchserver.options.option import (
    NotReplayed,
    Option,
    Replayed,
    Table,
    fields_of,
    option_called,
    options_in,
    variable_of,
)

NEVER = NotReplayed("a test replays nothing")


def option(name: str, kind: Kind | None = None, **changes: Any) -> Option:
    """Return a row with these changes."""
    return replace(Option(name=name, kind=kind or Text("X"), help="", replay=NEVER), **changes)


def test_names_that_follow_from_the_option() -> None:
    row = option("--num-tokens")
    assert (row.key, row.file_key, row.variable) == ("num_tokens", "num-tokens", "NUM_TOKENS")
    assert option("--as", variable_name="RELEASE").variable == "RELEASE"


@pytest.mark.parametrize(
    ("row", "key"),
    [
        (option("--a"), ""),
        (option("--a", field="x"), "x"),
        (option("--a", field="x", report_key="y"), "y"),
        (option("--a", field="x", secret=True), ""),
    ],
)
def test_the_key_in_a_report(row: Option, key: str) -> None:
    assert row.json_key == key


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (option("--a", default="x"), "x"),
        (option("--a", default=""), ""),
        (option("--a"), ""),
        (option("--a", default_text="drawn"), "drawn"),
        (option("--a", Number(0, 1), default=0.0), "0"),
        (option("--a", Whole(0, 1), default=0), "0"),
        (option("--a", Texts("X"), default=()), ""),
        (option("--a", Flag()), ""),
        (option("--a", default=ByField("mode", {"x": "y"})), ""),
        (option("--a", default="x", text_of=str.upper), "X"),
    ],
)
def test_what_the_help_says_of_a_default(row: Option, text: str) -> None:
    assert row.default_shown == text


def test_bounds_are_told_with_the_options_name() -> None:
    row = option("--end", Whole(0, 9))
    assert row.problem(10) == "--end 10 is out of range, expected 0 to 9"
    assert (row.problem(9), row.problem(None), option("--a").problem("x")) == ("", "", "")


SHARED = Table("Shared", (option("--url"), option("--token")), shared=True)
OWN = Table("Own", (option("--count"), option("--ca", shared=True)))


def test_variables_of_a_command_and_of_all() -> None:
    url, count, ca = SHARED.options[0], *OWN.options
    assert variable_of(url, SHARED) == variable_of(url, SHARED, "ping") == "BENCH_SERVER_URL"
    assert variable_of(count, OWN) == "BENCH_SERVER_COUNT"
    assert variable_of(count, OWN, "ping") == "BENCH_SERVER_PING_COUNT"
    assert variable_of(ca, OWN, "ping") == "BENCH_SERVER_CA"


def test_tables_are_read_in_order() -> None:
    tables = (OWN, SHARED)
    assert [row.name for row in options_in(tables)] == ["--count", "--ca", "--url", "--token"]
    assert option_called(tables, "--url") is SHARED.options[0]


ROWS = Table(
    "Rows",
    (
        option("--unit", field="unit", default=ByField("mode", {"cpu": "blocks", "gpu": "chunks"})),
        option("--mode", Choice(("gpu", "cpu")), field="mode", default="gpu"),
        option("--num", Whole(1, 9), field="num", default=5, given_field="num_given"),
        option("--off", Flag(gives=False), field="on"),
        option("--json"),
    ),
)


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, {"mode": "gpu", "unit": "chunks", "num": 5, "num_given": False, "on": True}),
        (
            {"mode": "cpu", "num": 5, "off": True, "json": "x", "unit": None},
            {"mode": "cpu", "unit": "blocks", "num": 5, "num_given": True, "on": False},
        ),
        (
            {"mode": "cpu", "unit": "chunks", "num": None, "off": False},
            {"mode": "cpu", "unit": "chunks", "num": 5, "num_given": False, "on": True},
        ),
    ],
)
def test_fields_of_a_configuration(given: dict[str, Any], fields: dict[str, Any]) -> None:
    assert fields_of((ROWS,), given) == fields


def test_a_place_is_for_replayed_options_alone() -> None:
    assert (Replayed().always, NEVER.why) == (False, "a test replays nothing")
