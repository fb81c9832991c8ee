"""Names that say nothing, are not tested, or are not used."""

from __future__ import annotations

import pytest

from tests.rules.conftest import Plant
from tests.rules.names import (
    asked_kinds,
    dead_names,
    loop_starts,
    mirror_of,
    nameless_modules,
    untested_modules,
)


def test_a_good_tree_has_no_offence(plant: Plant) -> None:
    source = plant({})
    for rule in (nameless_modules, untested_modules, dead_names, asked_kinds):
        assert rule(source) == []
    assert loop_starts(source) == {}


@pytest.mark.parametrize(
    "place",
    [
        "benchserver/utils.py",
        "benchserver/kv/helpers.py",
        "protocol/common.py",
        "tests/manager.py",
        "benchserver/base_client.py",
        "benchserver/client_utils.py",
        "benchserver/common/client.py",
        "benchserver/pool_base.py",
    ],
)
def test_names_that_say_nothing(plant: Plant, place: str) -> None:
    assert nameless_modules(plant({place: "", "benchserver/baseline.py": ""})) == [place]


def test_where_tests_belong() -> None:
    assert mirror_of("protocol/wire.py") == "tests/protocol/test_wire.py"
    assert mirror_of("benchserver/kv/gpu/pool.py") == "tests/benchserver/kv/gpu/test_pool.py"
    assert mirror_of("benchserver/__main__.py") == "tests/benchserver/test_main.py"


@pytest.mark.parametrize(
    ("beside", "offends"),
    [
        ({}, True),
        ({"tests/benchserver/test_kv_pool.py": "def test_a(): ...\n"}, True),
        ({"tests/benchserver/kv/test_pool.py": "def check(): ...\n"}, True),
        ({"tests/benchserver/kv/test_pool.py": "def test_a(): ...\n"}, False),
        (
            {"tests/benchserver/kv/test_pool.py": "class TestA:\n  async def test_a(s): ...\n"},
            False,
        ),
    ],
)
def test_a_module_without_mirror_of_its_name(
    plant: Plant, beside: dict[str, str], offends: bool
) -> None:
    source = plant({"benchserver/kv/pool.py": "", "benchserver/kv/__init__.py": "", **beside})
    assert untested_modules(source) == (["benchserver/kv/pool.py"] if offends else [])


def test_a_package_that_defines_something_needs_tests_as_well(plant: Plant) -> None:
    source = plant({"benchserver/kv/__init__.py": "from protocol import wire\nclass A: ...\n"})
    assert untested_modules(source) == ["benchserver/kv/__init__.py"]


def test_loops_that_tests_start(plant: Plant) -> None:
    text = """
        import asyncio
        async def main(): ...
        def test_a():
            asyncio.run(main())
        @given(numbers())
        def test_drawn(number):
            def inside():
                asyncio.run(main())
        def run(scene):
            return asyncio.run(scene())
    """
    source = plant({"tests/test_a.py": text, "benchserver/b.py": "asyncio.run(main())\n"})
    assert loop_starts(source) == {"tests/test_a.py": 2}


USED = """
    NUMBER = 1
    KIND: int = NUMBER
    def made(): return KIND
    def _private(): ...
    class Row:
        size: int
        _hidden: int
        LIMIT = made()
        def grow(self): return self.size
        @property
        def text(self): return self.LIMIT
"""


@pytest.mark.parametrize(
    ("use", "dead"),
    [
        ("Row().grow().text", []),
        ("getattr(Row().grow(), 'text')", []),
        ("def _f(row: 'Row | None'): a.grow(b.text)", []),
        ("match a:\n    case Row(text='', grow=1): ...", []),
        ("Row().grow()", ["Row.text"]),
        ("Row().grow(text=1)", ["Row.text"]),
        ("a = Row().grow()\na.text = 1", ["Row.text"]),
        ("'a sentence with the word text, too (here).'; Row().grow()", ["Row.text"]),
        ("from benchserver.a import Row\na.grow.text", ["Row"]),
    ],
)
def test_names_that_nothing_uses(plant: Plant, use: str, dead: list[str]) -> None:
    source = plant({"benchserver/a.py": USED, "benchserver/b.py": use + "\n"})
    assert dead_names(source) == [f"benchserver/a.py::{name}" for name in dead]


@pytest.mark.parametrize(
    ("definition", "name"),
    [
        ("def alone(): ...", "alone"),
        ("def alone(n): return alone(n - 1)", "alone"),
        ("ALONE = 1", "ALONE"),
        ("ALONE: int = 1", "ALONE"),
        ("class Alone:\n    def me(self): return Alone", "Alone"),
    ],
)
@pytest.mark.parametrize("user", ["tests/test_b.py", "scripts/b"])
def test_tests_are_no_users_and_scripts_are(
    plant: Plant, definition: str, name: str, user: str
) -> None:
    text = f"#!/usr/bin/env python3\n{name}, x.me\n"
    source = plant({"benchserver/a.py": definition + "\n", user: text})
    dead = [place for place in dead_names(source) if not place.endswith(".me")]
    assert dead == ([] if user == "scripts/b" else [f"benchserver/a.py::{name}"])


def test_commands_are_known_by_their_decorator(plant: Plant) -> None:
    text = """
        @cli.command("serve")
        def serve(): ...
        @cache
        def kept(): ...
    """
    assert dead_names(plant({"benchserver/a.py": text})) == ["benchserver/a.py::kept"]


KINDS = """
    class Pool(Protocol):
        def fill(self): ...
        def close(self): ...
    class HostPool:
        def fill(self): ...
        def close(self): ...
        def more(self): ...
"""
GPU = """
    class GpuPool:
        def fill(self): ...
        async def close(self): ...
"""


@pytest.mark.parametrize(
    "question",
    [
        "isinstance(a, HostPool)",
        "isinstance(a, int | host.HostPool)",
        "isinstance(a, (int, HostPool))",
        "match a:\n    case HostPool(): ...",
    ],
)
def test_asking_which_of_two_kinds_it_is(plant: Plant, question: str) -> None:
    files = {"benchserver/host.py": KINDS, "benchserver/b.py": question + "\n"}
    assert asked_kinds(plant(files)) == []  # the only one of its kind
    line = 2 if "case" in question else 1
    assert asked_kinds(plant({**files, "benchserver/gpu.py": GPU})) == [
        f"benchserver/b.py:{line} HostPool"
    ]
