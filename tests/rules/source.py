"""A source tree, read once: every Python file with its text and its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PRODUCT = ("shapespec", "protocol", "benchserver")
"""The packages that we ship."""

BESIDE = ("tests", "scripts")
"""What stands beside them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """One Python file; `place` is its path in the tree, with slashes."""

    place: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def folder(self) -> str:
        """The outermost folder: `benchserver`, `tests`, ..."""
        return self.place.partition("/")[0]

    @property
    def name(self) -> str:
        """The module's dotted name; a package has its folder's."""
        return self.place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def stem(self) -> str:
        return self.place.rpartition("/")[2].removesuffix(".py")

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Yield every function with its qualified name, wherever it stands."""
        yield from _functions(self.tree, "")

    def classes(self) -> Iterator[ast.ClassDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                yield node


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, Function | ast.ClassDef):
            name = f"{prefix}.{child.name}" if prefix else child.name
        if isinstance(child, Function):
            yield name, child
        yield from _functions(child, name)


@dataclass(frozen=True)
class Source:
    """All Python files below a root, those of the product first."""

    files: tuple[SourceFile, ...]

    @cached_property
    def product(self) -> tuple[SourceFile, ...]:
        """The files that we ship."""
        return tuple(file for file in self.files if file.folder in PRODUCT)

    @cached_property
    def by_place(self) -> dict[str, SourceFile]:
        return {file.place: file for file in self.files}


def read_source(root: Path) -> Source:
    """Read the product, the tests and the scripts; a script is Python if its first line says so."""
    found = []
    for folder in (*PRODUCT, *BESIDE):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix == ".py" or (folder == "scripts" and _is_python(path)):
                place = path.relative_to(root).as_posix()
                found.append(SourceFile(place, path.read_text(encoding="utf-8")))
    return Source(tuple(found))


def _is_python(path: Path) -> bool:
    if path.suffix or not path.is_file():
        return False
    first, _, _ = path.read_bytes().partition(b"\n")
    return first.startswith(b"#!") and b"python" in first
