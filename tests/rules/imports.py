"""Which file imports which: every import counts, in functions and under TYPE_CHECKING too."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping, Set

from tests.rules.source import Source, SourceFile

Graph = Mapping[str, frozenset[str]]
"""Each place, and the places that it imports."""


def file_graph(source: Source) -> Graph:
    """Return which file imports which.

    `from package import module` is an import of the module; only a name that the package itself
    defines, or brings from elsewhere, is an import of its `__init__`.
    """
    places = {file.name: file.place for file in source.files}
    return {
        file.place: frozenset(
            places[name] for name in _imported(file, places) if places[name] != file.place
        )
        for file in source.files
    }


def _imported(file: SourceFile, known: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                if below in known:
                    yield below
                elif node.module in known:
                    yield node.module


def room_graph(source: Source) -> Graph:
    """Return which room of the product imports which; see `room_of`."""
    graph = file_graph(source)
    rooms: dict[str, set[str]] = {}
    folders = _folders_with_folders(source)
    for file in source.product:
        room = room_of(file.place, folders)
        known = rooms.setdefault(room, set())
        known |= {room_of(place, folders) for place in graph[file.place]} - {room}
    return {room: frozenset(known) for room, known in rooms.items()}


def _folders_with_folders(source: Source) -> set[str]:
    return {
        file.place.rpartition("/")[0].rpartition("/")[0]
        for file in source.product
        if file.place.count("/") > 1
    }


def room_of(place: str, folders: Set[str]) -> str:
    """Return the room that a file is in.

    A folder is one room, unless folders lie in it (it stands in `folders`): then each of its own
    files is one.
    """
    folder, _, name = place.rpartition("/")
    if folder in folders and name != "__init__.py":
        return place.removesuffix(".py")
    return folder


def rings(graph: Graph) -> list[str]:
    """Return one shortest ring through each knot of a graph, as `a -> b -> a`."""
    found = []
    for knot in _knots(graph):
        start = min(knot)
        found.append(" -> ".join(_way_back(graph, start, knot)))
    return sorted(found)


def _knots(graph: Graph) -> list[set[str]]:
    """Return the sets of places of which each reaches every other one."""
    reached = {place: _reached(graph, place) for place in graph}
    knots: list[set[str]] = []
    for place in sorted(graph):
        if place in reached[place] and not any(place in knot for knot in knots):
            knots.append({other for other in reached[place] if place in reached.get(other, ())})
    return knots


def _reached(graph: Graph, start: str) -> set[str]:
    pending, seen = list(graph[start]), set[str]()
    while pending:
        place = pending.pop()
        if place not in seen:
            seen.add(place)
            pending += graph.get(place, ())
    return seen


def _way_back(graph: Graph, start: str, within: set[str]) -> list[str]:
    """Return a shortest way from a place back to itself."""
    pending = deque([[start]])
    seen = set[str]()
    while pending:
        way = pending.popleft()
        for place in sorted(graph[way[-1]]):
            if place == start:
                return [*way, start]
            if place in within and place not in seen:
                seen.add(place)
                pending.append([*way, place])
    raise AssertionError(f"{start} is in no ring")
