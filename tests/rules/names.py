"""Names: of modules, of their test files, and of what nothing in the product calls."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.rules.sizes import Measured, is_interface, methods_of
from tests.rules.source import Function, Source, SourceFile

_NO_NAME = re.compile(
    r"(.*_)?(utils?|helpers?|commons?|managers?|misc|tools?|stuff)|base|base_.*|.*_base"
)


def nameless_modules(source: Source) -> list[str]:
    """Return the modules, and folders, whose name says nothing: utils, helpers, base_x, ..."""
    return [
        file.place
        for file in source.files
        if any(_NO_NAME.fullmatch(part) for part in file.name.split("."))
    ]


def mirror_of(place: str) -> str:
    """Return where a module's tests belong: tests/a/test_b.py for a/b.py; __main__ is main."""
    folder, _, name = place.rpartition("/")
    return f"tests/{folder}/test_{name.removesuffix('.py').strip('_')}.py"


def untested_modules(source: Source) -> list[str]:
    """Return the modules without a test in a file of the mirrored name.

    An `__init__` needs one only if it defines something.
    """
    return [
        file.place
        for file in source.product
        if not _only_passes_on(file) and not _has_tests(source.by_place.get(mirror_of(file.place)))
    ]


def _only_passes_on(file: SourceFile) -> bool:
    return file.stem == "__init__" and not any(
        isinstance(node, Function | ast.ClassDef) for node in file.tree.body
    )


def _has_tests(file: SourceFile | None) -> bool:
    return file is not None and any(
        function.name.startswith("test_") for _, function in file.functions()
    )


def loop_starts(source: Source) -> Measured:
    """Return the test files that start event loops by asyncio.run, and how often.

    A test that hypothesis drives (`given`) may: it cannot be a coroutine function.
    """
    found = Counter(
        file.place
        for file in source.files
        if file.folder == "tests"
        for call in _calls_outside_given(file.tree)
        if ast.unparse(call.func) == "asyncio.run"
    )
    return dict(found)


def _calls_outside_given(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(node, Function) and any("given" in ast.unparse(d) for d in node.decorator_list):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls_outside_given(child)


def dead_names(source: Source) -> list[str]:
    """Return the public names of the product that neither the product nor a script uses.

    Names are functions, classes and constants at the top of a module, methods and fields of
    classes.  A use is the name as a variable, as an attribute that is read, or as a whole text
    (`getattr`); an import, an assignment and a keyword argument use nothing, nor does what stands
    inside the definition itself.  Names are told apart by their text alone.
    """
    uses: Counter[str] = Counter()
    for file in source.files:
        if file.folder != "tests":
            uses += _uses_in(file.tree)
    return sorted(
        f"{file.place}::{path}"
        for file in source.product
        for path, name, node in _public_names(file)
        if uses[name] <= _uses_in(node)[name]
    )


def _public_names(file: SourceFile) -> Iterator[tuple[str, str, ast.AST]]:
    for node in file.tree.body:
        for name in () if _is_command(node) else _defined(node):
            if not name.startswith("_"):
                yield name, name, node
        if isinstance(node, ast.ClassDef):
            yield from _public_members(node)


def _is_command(node: ast.stmt) -> bool:
    """Tell whether a function is a command of click's, which its decorator makes known."""
    return isinstance(node, Function) and any(
        isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith(".command")
        for decorator in node.decorator_list
    )


def _public_members(owner: ast.ClassDef) -> Iterator[tuple[str, str, ast.AST]]:
    for node in owner.body:
        for name in _defined(node):
            if not name.startswith("_"):
                yield f"{owner.name}.{name}", name, node


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def _uses_in(tree: ast.AST) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found[node.id if isinstance(node, ast.Name) else node.attr] += 1
        elif isinstance(node, ast.MatchClass):
            found.update(node.kwd_attrs)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(_names_in_text(node.value))
    return found


def _names_in_text(text: str) -> list[str]:
    """Return a text that is a name, or an annotation in quotes, as the names in it."""
    return re.findall(r"[A-Za-z_]\w*", text) if re.fullmatch(r"[\w.\[\] |,]+", text) else []


def asked_kinds(source: Source) -> list[str]:
    """Return where the product asks which implementation of an interface a value is.

    A class implements an interface of two methods or more if it defines them all; where two
    classes do, `isinstance` with either of them, or a `case` for it, asks.
    """
    rivals = _rivals(source)
    return sorted(
        f"{file.place}:{line} {name}"
        for file in source.product
        for name, line in _asked(file.tree)
        if name in rivals
    )


def _rivals(source: Source) -> set[str]:
    classes = [node for file in source.product for node in file.classes()]
    found = set[str]()
    for interface in classes:
        wanted = methods_of(interface)
        if is_interface(interface) and len(wanted) > 1:
            makers = {
                node.name
                for node in classes
                if not is_interface(node) and wanted <= methods_of(node)
            }
            found |= makers if len(makers) > 1 else set()
    return found


def _asked(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.MatchClass):
            yield ast.unparse(node.cls).rpartition(".")[2], node.cls.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            for name in re.findall(r"\w+", ast.unparse(node.args[1])):
                yield name, node.lineno
