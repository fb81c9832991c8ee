"""The reader of source trees."""

from __future__ import annotations

from tests.rules.conftest import GOOD, Plant


def test_every_python_file_is_read_and_no_other(plant: Plant) -> None:
    source = plant({"docs/example.py": "not read", "tests/golden/a.json": "{}"})
    assert {file.place for file in source.files} == GOOD.keys() - {"scripts/lib"}
    assert {file.place for file in source.product} == {
        "protocol/__init__.py",
        "protocol/wire.py",
        "benchserver/__init__.py",
        "benchserver/run.py",
    }


def test_a_file_knows_its_names(plant: Plant) -> None:
    by_place = plant({}).by_place
    package, wire = by_place["protocol/__init__.py"], by_place["protocol/wire.py"]
    assert (package.name, package.stem, package.lines) == ("protocol", "__init__", 1)
    assert (wire.name, wire.stem, wire.lines) == ("protocol.wire", "wire", 5)
    assert wire.folder == "protocol"


def test_functions_are_found_wherever_they_stand(plant: Plant) -> None:
    text = """
        def a():
            def b(): ...
        class C:
            async def d(self):
                class E:
                    def f(self): ...
        if True:
            def g(): ...
    """
    file = plant({"benchserver/many.py": text}).by_place["benchserver/many.py"]
    assert [name for name, _ in file.functions()] == ["a", "a.b", "C.d", "C.d.E.f", "g"]
    assert [node.name for node in file.classes()] == ["C", "E"]
