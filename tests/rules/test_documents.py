"""The reader of tables in documents."""

from __future__ import annotations

from tests.rules.conftest import Plant
from tests.rules.documents import places_named, rows_under, tables_in, wrong_places

CHECKS = r"""
# Title

| check | passes if |
|---|---|
| `store` | every STORE is answered, by `--timeout` |
| `mode` | cpu\|gpu |

Text between.

| check | other |
|---|---|
| `no` | row |
"""

ROOMS = """
### protocol

| module | owns |
|---|---|
| `wire` | frames |

### benchserver

| room | what it is |
|---|---|
| `run`, `kv/` | a run, and memory |

| module | owns |
|---|---|
| `kv/pool` | `not/read` |
| `kv/host/made`, `laid` | two in one folder |

The server, in `refserver/`:

| module | owns |
|---|---|
| `core` | the state |

Its GPU side, in `refserver/gpu/`; it is loaded late:

| module | owns |
|---|---|
| `watch` | a thread |

| name | no table of modules |
|---|---|
| `nothing` | |
"""

FILES = {
    "benchserver/kv/pool.py": "",
    "benchserver/kv/host/made.py": "",
    "benchserver/kv/host/laid.py": "",
    "benchserver/refserver/core.py": "",
    "benchserver/refserver/gpu/watch.py": "",
}


def test_tables_are_read_by_their_header() -> None:
    assert [table.header for table in tables_in(CHECKS)] == [
        ("check", "passes if"),
        ("check", "other"),
    ]
    assert rows_under(CHECKS, "check", "passes if") == {
        "store": ("every STORE is answered, by --timeout",),
        "mode": (r"cpu\|gpu",),
    }
    assert rows_under(CHECKS, "check") == {
        **rows_under(CHECKS, "check", "passes if"),
        "no": ("row",),
    }
    assert rows_under(CHECKS, "fault") == {}


def test_places_are_named_by_folder_and_cell() -> None:
    assert places_named(ROOMS) == [
        "protocol/wire.py",
        "benchserver/run.py",
        "benchserver/kv/",
        "benchserver/kv/pool.py",
        "benchserver/kv/host/made.py",
        "benchserver/kv/host/laid.py",
        "benchserver/refserver/core.py",
        "benchserver/refserver/gpu/watch.py",
    ]


def test_a_module_that_is_not_named(plant: Plant) -> None:
    assert wrong_places(plant(FILES), ROOMS) == []
    source = plant({**FILES, "benchserver/kv/new.py": ""})
    assert wrong_places(source, ROOMS) == ["benchserver/kv/new.py is not named"]


def test_a_name_without_a_module(plant: Plant) -> None:
    gone = {place: text for place, text in FILES.items() if "host" not in place}
    assert wrong_places(plant(gone), ROOMS) == [
        "benchserver/kv/host/made.py is named and not there",
        "benchserver/kv/host/laid.py is named and not there",
    ]
