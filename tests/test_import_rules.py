"""Who may import whom: design.md's rules, read from the source."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rules.documents import tables_in

ROOT = Path(__file__).parents[1]
PACKAGES = ("shapespec", "protocol", "benchserver")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

STDLIB = sys.stdlib_module_names
IO_MODULES = {"socket", "asyncio", "zmq", "aiohttp", "os"}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, and whether it is loaded when the module itself is."""

    name: str
    level: int
    at_top: bool

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def imports_in(source: str) -> Iterator[Import]:
    """Yield every import of a source, wherever it stands; `from a import b` as `a` and `a.b`.

    What only type checkers import is not loaded with the module.
    """
    tree = ast.parse(source)
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    inside = {
        id(node)
        for part in ast.walk(tree)
        if isinstance(part, later)
        or (isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING")
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        at_top = id(node) not in inside
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, 0, at_top)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.module or "", node.level, at_top)
            for alias in node.names:
                yield Import(f"{node.module or ''}.{alias.name}", node.level, at_top)


def place_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


IMPORTS: dict[str, tuple[Import, ...]] = {
    place_of(path): tuple(imports_in(path.read_text(encoding="utf-8"))) for path in FILES
}


def room_of(place: str) -> str:
    """Return the room in benchserver that a file or a dotted module is in: `kv`, `run`, ..."""
    parts = place.removesuffix(".py").replace("/", ".").split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "benchserver" else ""


def places_that_import(top: str) -> set[str]:
    return {place for place, found in IMPORTS.items() if any(i.top == top for i in found)}


def rooms_imported_by(room: str) -> set[str]:
    return {
        room_of(found.name)
        for place, all_found in IMPORTS.items()
        if room_of(place) == room
        for found in all_found
        if found.top == "benchserver"
    } - {room, ""}


def test_the_reader_of_imports_sees_them_all() -> None:
    source = (
        "import a.b, c\nfrom d import e\nfrom . import f\ndef g():\n    from h.i import j\n"
        "if TYPE_CHECKING:\n    import k\n"
    )
    found = {(i.name, i.level, i.at_top) for i in imports_in(source)}
    assert found == {
        ("a.b", 0, True),
        ("c", 0, True),
        ("d", 0, True),
        ("d.e", 0, True),
        ("", 1, True),
        (".f", 1, True),
        ("h.i", 0, False),
        ("h.i.j", 0, False),
        ("k", 0, False),
    }
    assert [
        room_of(p) for p in ("benchserver/kv/host/pool.py", "benchserver/limits.py", "x/y.py")
    ] == [
        "kv",
        "limits",
        "",
    ]
    assert len(FILES) > 60
    assert {place.partition("/")[0] for place in IMPORTS} == set(PACKAGES)


@pytest.mark.parametrize("place", IMPORTS)
def test_no_relative_imports(place: str) -> None:
    assert not [found for found in IMPORTS[place] if found.level]


def test_shapespec_imports_the_standard_library_alone() -> None:
    for place, found in IMPORTS.items():
        if place.startswith("shapespec/"):
            assert {i.top for i in found} <= STDLIB | {"shapespec"}, place


def test_protocol_imports_the_standard_library_and_msgpack_alone() -> None:
    for place, found in IMPORTS.items():
        if place.startswith("protocol/"):
            assert {i.top for i in found} <= STDLIB | {"protocol", "msgpack"}, place


@pytest.mark.parametrize("package", ["shapespec", "protocol"])
def test_the_pure_packages_know_no_clock_socket_loop_or_logger(package: str) -> None:
    effects = IO_MODULES | {"time", "random", "logging", "threading", "subprocess", "pickle"}
    for place, found in IMPORTS.items():
        if place.startswith(f"{package}/"):
            assert not {i.top for i in found} & effects, place


@pytest.mark.parametrize(
    ("module", "places"),
    [
        ("triton", {"benchserver/kv/gpu/kernels.py"}),
        (
            "zmq",
            {
                "benchserver/client/zmq.py",
                "benchserver/refserver/front/zmq/admission.py",
                "benchserver/refserver/front/zmq/router.py",
            },
        ),
        ("blake3", {"benchserver/refserver/store/hashing.py"}),
        (
            "prometheus_client",
            {"benchserver/metrics/document.py", "benchserver/refserver/front/metrics.py"},
        ),
        ("mooncake", {"benchserver/refserver/tiers/mooncake/client.py"}),
        (
            "aiohttp",
            {
                "benchserver/client/http.py",
                "benchserver/metrics/server.py",
                "benchserver/refserver/front/bodies.py",
                "benchserver/refserver/front/http.py",
                "benchserver/refserver/front/middleware.py",
            },
        ),
        ("psutil", {"benchserver/environment/processes.py"}),
        (
            "rich",
            {
                "benchserver/report/frame.py",
                "benchserver/report/live.py",
                "benchserver/selftest/table.py",
            },
        ),
        ("hdrh", {"benchserver/stats/latency.py"}),
        (
            "matplotlib",
            {
                "benchserver/breakeven/plot.py",
                "benchserver/page/charts.py",
                "benchserver/page/sides.py",
                "benchserver/page/svg.py",
            },
        ),
    ],
)
def test_third_parties_stay_in_few_places(module: str, places: set[str]) -> None:
    assert places_that_import(module) == places


TORCH_PLACES = re.compile(r"benchserver/(kv|refserver)/gpu/[a-z]+\.py")


def test_torch_stays_where_the_gpu_is_and_inside_functions() -> None:
    places = places_that_import("torch")
    assert "benchserver/kv/gpu/memory.py" in places
    assert not [place for place in places if not TORCH_PLACES.fullmatch(place)]
    for place in places:
        assert not [i for i in IMPORTS[place] if i.top == "torch" and i.at_top], place


def test_kernels_are_loaded_by_whoever_makes_a_pool_alone() -> None:
    """Triton may be missing, and takes its time."""
    importers = {
        place: found.at_top
        for place, all_found in IMPORTS.items()
        for found in all_found
        if found.name == "benchserver.kv.gpu.kernels"
    }
    assert importers == {"benchserver/kv/gpu/choice.py": False}


def test_click_stays_in_the_command_line() -> None:
    places = places_that_import("click")
    assert places
    assert {room_of(place) for place in places} == {"cli"}


def test_no_third_party_is_imported_that_is_not_declared() -> None:
    declared = {"aiohttp", "click", "hdrh", "msgpack", "numpy", "zmq", "rich", "tomli", "blake3"}
    declared |= {"prometheus_client", "mooncake", "torch", "triton", "matplotlib", "psutil"}
    declared.add("tomllib")  # part of the library since 3.11, and imported only there
    seen = {i.top for found in IMPORTS.values() for i in found if i.top}
    assert seen - STDLIB - set(PACKAGES) <= declared
    assert not {"lmcache", "vllm"} & seen


@pytest.mark.parametrize("room", ["check", "load"])
def test_pure_rooms_do_no_io(room: str) -> None:
    for place, found in IMPORTS.items():
        if room_of(place) == room:
            assert not {i.top for i in found} & IO_MODULES, place


ROOMS = {
    "errors": set[str](),
    "clock": set[str](),
    "tasks": set[str](),
    "outlet": set[str](),
    "inquiry": {"outlet"},
    "metrics": {"check", "errors", "monitor", "report", "tasks"},
    "suspension": set[str](),
    "load": {"errors"},
    "options": {"errors", "kv"},
    "geometry": set[str](),
    "shmnames": set[str](),
    "jsonfile": {"errors"},
    "page": {"errors", "options"},
    "breakeven": {"errors", "geometry", "jsonfile", "options"},
    "compare": {"errors", "jsonfile", "options"},
    "environment": set[str](),
    "limits": {"errors"},
    "cuda": {"errors", "shmnames"},
    "kv": {"cuda", "errors", "shmnames"},
    "history": {"kv"},
    "line": {"history"},
    "section": {"errors", "line"},
    "config": {"errors", "geometry", "kv", "options"},
    "check": {"errors", "history", "kv"},
    "stats": set[str](),
    "monitor": {
        "check",
        "clock",
        "config",
        "environment",
        "errors",
        "line",
        "section",
        "stats",
    },
    "client": {"clock", "config", "errors", "history", "kv", "options", "shmnames", "tasks"},
    "scenarios": {
        "check",
        "client",
        "load",
        "clock",
        "config",
        "errors",
        "geometry",
        "history",
        "kv",
        "options",
        "stage",
        "tasks",
        "stats",
        "line",
        "section",
        "environment",
    },
    "stage": {
        "check",
        "client",
        "clock",
        "config",
        "cuda",
        "ending",
        "errors",
        "geometry",
        "history",
        "kv",
        "limits",
        "line",
        "load",
        "monitor",
        "options",
        "outlet",
        "reporter",
        "result",
        "section",
        "shmnames",
        "stats",
        "tasks",
    },
    "result": {"check", "config", "errors", "kv", "section", "stats"},
    "reporter": {"check", "history", "result"},
    "refserver": {"clock", "cuda", "errors", "options", "tasks"},
    "ending": {"errors", "outlet"},
    "embedded": {"ending", "errors"},
    "report": {
        "check",
        "config",
        "environment",
        "errors",
        "history",
        "line",
        "monitor",
        "options",
        "outlet",
        "result",
        "section",
        "stats",
    },
    "selftest": {"clock", "embedded", "errors", "options", "outlet", "refserver"},
    "sweep": {"clock", "errors", "options", "stats"},
    "cli": {
        "breakeven",
        "jsonfile",
        "page",
        "check",
        "compare",
        "scenarios",
        "sweep",
        "clock",
        "config",
        "cuda",
        "embedded",
        "ending",
        "environment",
        "errors",
        "inquiry",
        "kv",
        "limits",
        "line",
        "metrics",
        "monitor",
        "options",
        "outlet",
        "refserver",
        "report",
        "result",
        "selftest",
        "stage",
        "suspension",
        "tasks",
    },
}
"""What docs/architecture.md lets each room import."""


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_what_they_may(room: str) -> None:
    assert rooms_imported_by(room) <= ROOMS[room]


def test_the_architecture_says_what_rooms_may_import_each_below_those() -> None:
    """A room imports only rooms of the lines above its own."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (table,) = (table for table in tables_in(text) if table.header[0] == "room")
    above, said = set[str](), dict[str, set[str]]()
    for rooms, _, imports in table.rows:
        may = set(re.findall("`(\\w+)`", imports))
        assert may <= above, rooms
        here = re.findall("`(\\w+)/?`", rooms)
        said |= dict.fromkeys(here, may)
        above |= set(here)
    assert said == ROOMS


def test_every_room_has_its_rule() -> None:
    rooms = {room_of(place) for place in IMPORTS} - {"", "__init__", "__main__"}
    assert rooms == set(ROOMS)


def test_the_command_line_alone_knows_the_stage_s_run() -> None:
    importers = {
        room_of(place)
        for place, found in IMPORTS.items()
        for i in found
        if i.name in ("benchserver.stage.run", "benchserver.stage.process")
    }
    assert importers == {"cli", "stage"}


def test_the_stage_knows_no_scenario() -> None:
    assert "scenarios" not in rooms_imported_by("stage")


def loaded_with(place: str) -> set[str]:
    """Return every file of ours that importing one of them loads."""
    pending, seen = [place], set[str]()
    while pending:
        place = pending.pop()
        seen.add(place)
        for found in IMPORTS[place]:
            if found.at_top and found.top in PACKAGES:
                path = found.name.replace(".", "/")
                candidates = (f"{path}.py", f"{path}/__init__.py")
                pending += [c for c in candidates if c in IMPORTS and c not in seen]
    return seen


HEAVY = {"numpy", "zmq", "aiohttp", "blake3", "prometheus_client", "rich", "hdrh"}
HEAVY |= {"torch", "triton", "matplotlib", "psutil"}


def test_the_command_line_loads_cheap_modules_alone() -> None:
    """Importing benchserver.cli.main must be quick: no numpy, zmq, aiohttp, rich on the way."""
    seen = loaded_with("benchserver/cli/main.py")
    assert "benchserver/cli/types.py" in seen
    assert "benchserver/config.py" not in seen
    for place in seen:
        assert not {i.top for i in IMPORTS[place] if i.at_top} & HEAVY, place


@pytest.mark.parametrize("place", ["benchserver/stage/process.py", "benchserver/stage/outside.py"])
def test_a_server_is_met_before_numpy_and_zmq_are_loaded(place: str) -> None:
    """What is loaded before the first call is time in which a user waits."""
    for loaded in loaded_with(place):
        heavy = {i.top for i in IMPORTS[loaded] if i.at_top} & HEAVY
        assert heavy <= {"aiohttp", "hdrh"}, loaded


@pytest.mark.parametrize("place", [place for place in IMPORTS if room_of(place) == "check"])
def test_judging_needs_no_array_library(place: str) -> None:
    for loaded in loaded_with(place):
        assert not {i.top for i in IMPORTS[loaded]} & HEAVY, loaded


PURE_BELOW_CLI = ("check", "load", "history", "config", "stats", "result")


@pytest.mark.parametrize("room", PURE_BELOW_CLI)
def test_no_clock_and_no_chance_where_decisions_are(room: str) -> None:
    for place, found in IMPORTS.items():
        if room_of(place) == room:
            assert not {i.top for i in found} & {"time", "random", "secrets"}, place


def test_signals_are_handled_before_anything_slow_is_loaded() -> None:
    """What is imported before `main` runs is a time in which Ctrl-C is a traceback."""
    early = {"__future__", "io", "os", "signal", "sys", "benchserver"}
    for place in ("benchserver/__main__.py", "benchserver/__init__.py", "benchserver/errors.py"):
        assert {found.top for found in IMPORTS[place] if found.at_top} <= early, place
    here = (found.name for found in IMPORTS["benchserver/__main__.py"] if found.at_top)
    assert {name for name in here if name.startswith("benchserver.")} == {
        "benchserver.errors",
        "benchserver.errors.BEFORE",
        "benchserver.errors.EXIT_FAILED",
    }
