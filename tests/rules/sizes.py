"""How large functions, modules and interfaces are."""

from __future__ import annotations

import ast

from tests.rules.source import PRODUCT, Function, Source

FUNCTION_LINES = 70
PRODUCT_LINES = 400
LINES_BESIDE = 500
INTERFACE_METHODS = 5

Measured = dict[str, int]
"""What breaks a rule, and by how much: its size."""


def long_functions(source: Source) -> Measured:
    """Return the functions of more than 70 lines, from `def` to the last line."""
    return {
        f"{file.place}::{name}": lines_of(function)
        for file in source.files
        for name, function in file.functions()
        if lines_of(function) > FUNCTION_LINES
    }


def long_modules(source: Source) -> Measured:
    """Return the files of more than 400 lines in the product, of more than 500 beside it."""
    return {
        file.place: file.lines
        for file in source.files
        if file.lines > (PRODUCT_LINES if file.folder in PRODUCT else LINES_BESIDE)
    }


def wide_interfaces(source: Source) -> Measured:
    """Return the interfaces, classes made of typing.Protocol, of more than five methods."""
    return {
        f"{file.place}::{node.name}": len(methods_of(node))
        for file in source.files
        for node in file.classes()
        if is_interface(node) and len(methods_of(node)) > INTERFACE_METHODS
    }


def lines_of(function: Function) -> int:
    """Return how long a function is, without its decorators."""
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def is_interface(node: ast.ClassDef) -> bool:
    """Tell whether a class derives from typing.Protocol itself."""
    return any(_base_name(base) == "Protocol" for base in node.bases)


def _base_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        base = base.value
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def methods_of(node: ast.ClassDef) -> set[str]:
    """Return the names of the methods and properties that a class itself defines."""
    return {child.name for child in node.body if isinstance(child, Function)}
