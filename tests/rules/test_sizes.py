"""A function, a module and an interface that are too large, each in a tree that is good else."""

from __future__ import annotations

import pytest

from tests.rules.conftest import Plant
from tests.rules.sizes import long_functions, long_modules, wide_interfaces

LINE = "    pass\n"


def test_a_good_tree_has_no_offence(plant: Plant) -> None:
    source = plant({})
    assert long_functions(source) == long_modules(source) == wide_interfaces(source) == {}


@pytest.mark.parametrize("place", ["benchserver/a.py", "protocol/a.py", "tests/a.py", "scripts/a"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_of_71_lines(plant: Plant, place: str, kind: str) -> None:
    head = f"#!/usr/bin/env python3\nclass A:\n  @property\n  {kind} f(self):\n"
    assert long_functions(plant({place: head + LINE * 69})) == {}
    assert long_functions(plant({place: head + LINE * 70})) == {f"{place}::A.f": 71}


@pytest.mark.parametrize(
    ("place", "most"),
    [
        ("benchserver/a.py", 400),
        ("protocol/a.py", 400),
        ("shapespec/a.py", 400),
        ("tests/a.py", 500),
        ("scripts/a", 500),
    ],
)
def test_a_module_of_one_line_too_many(plant: Plant, place: str, most: int) -> None:
    head = "#!/usr/bin/env python3\n"
    assert long_modules(plant({place: head + "\n" * (most - 1)})) == {}
    assert long_modules(plant({place: head + "\n" * most})) == {place: most + 1}


@pytest.mark.parametrize("base", ["Protocol", "typing.Protocol", "Protocol[T]", "Other, Protocol"])
def test_an_interface_of_six_methods(plant: Plant, base: str) -> None:
    methods = "".join(f"    def f{number}(self): ...\n" for number in range(4))
    five = f"class A({base}):\n    x: int\n{methods}    @property\n    def p(self): ...\n"
    six = five + "    async def g(self): ...\n"
    assert wide_interfaces(plant({"protocol/a.py": five})) == {}
    assert wide_interfaces(plant({"protocol/a.py": six})) == {"protocol/a.py::A": 6}
    no_interface = six.replace(base, "Other")
    assert wide_interfaces(plant({"protocol/a.py": no_interface})) == {}
