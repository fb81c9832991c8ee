"""Rings of imports, and the rooms that import each other."""

from __future__ import annotations

import pytest

from tests.rules.conftest import Plant
from tests.rules.imports import file_graph, rings, room_graph


def test_every_import_is_an_arrow(plant: Plant) -> None:
    text = """
        import protocol.wire
        from benchserver import other
        from benchserver.kv.pool import Pool
        import json
    """
    source = plant(
        {
            "benchserver/many.py": text,
            "benchserver/other.py": "from benchserver import version\n",
            "benchserver/__init__.py": "version = 1\n",
            "benchserver/kv/pool.py": "",
        }
    )
    graph = file_graph(source)
    assert graph["benchserver/many.py"] == {
        "protocol/wire.py",
        "benchserver/other.py",
        "benchserver/kv/pool.py",
    }
    assert graph["benchserver/other.py"] == {"benchserver/__init__.py"}
    assert rings(graph) == []


@pytest.mark.parametrize(
    "back",
    [
        "from benchserver import a\n",
        "import benchserver.a\n",
        "def late():\n    from benchserver.a import x\n",
        "if TYPE_CHECKING:\n    from benchserver.a import x\n",
        "try:\n    import benchserver.a\nexcept ImportError:\n    pass\n",
    ],
)
def test_a_ring_is_found_and_shown(plant: Plant, back: str) -> None:
    source = plant(
        {
            "benchserver/a.py": "from benchserver.b import y\n",
            "benchserver/b.py": "from benchserver.c import z\nfrom protocol.wire import send\n",
            "benchserver/c.py": back,
        }
    )
    assert rings(file_graph(source)) == [
        "benchserver/a.py -> benchserver/b.py -> benchserver/c.py -> benchserver/a.py"
    ]


def test_each_knot_is_shown_once(plant: Plant) -> None:
    files = {
        "benchserver/a.py": "import benchserver.b\n",
        "benchserver/b.py": "import benchserver.a, benchserver.c\n",
        "benchserver/c.py": "import benchserver.b, protocol.d\n",
        "protocol/d.py": "import protocol.e\n",
        "protocol/e.py": "import protocol.d\n",
    }
    assert rings(file_graph(plant(files))) == [
        "benchserver/a.py -> benchserver/b.py -> benchserver/a.py",
        "protocol/d.py -> protocol/e.py -> protocol/d.py",
    ]


def test_rooms_are_folders_and_the_files_beside_folders(plant: Plant) -> None:
    source = plant(
        {
            "benchserver/kv/a.py": "from protocol.wire import send\nimport benchserver.kv.b\n",
            "benchserver/kv/b.py": "import benchserver.gpu.far.c\n",
            "benchserver/gpu/d.py": "import benchserver.run\n",
            "benchserver/gpu/far/c.py": "import benchserver.gpu.d\n",
        }
    )
    assert room_graph(source) == {
        "protocol": frozenset(),
        "benchserver": frozenset(),
        "benchserver/run": {"protocol"},
        "benchserver/kv": {"protocol", "benchserver/gpu/far"},
        "benchserver/gpu/d": {"benchserver/run"},
        "benchserver/gpu/far": {"benchserver/gpu/d"},
    }


def test_rooms_may_hang_in_a_ring_where_no_files_do(plant: Plant) -> None:
    source = plant(
        {
            "benchserver/kv/a.py": "import benchserver.gpu.c\n",
            "benchserver/kv/b.py": "",
            "benchserver/gpu/c.py": "import benchserver.kv.b\n",
        }
    )
    assert rings(file_graph(source)) == []
    assert rings(room_graph(source)) == ["benchserver/gpu -> benchserver/kv -> benchserver/gpu"]
