"""Kernels are taken only where they are seen to write the very bytes of the pattern."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, cast

import pytest

from benchserver.errors import FatalError
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.gpu.choice import Choice, choose_contents
from benchserver.kv.gpu.pages import COUNT_AT, Call, TorchContent
from benchserver.kv.gpu.views import GroupView, view_pool
from benchserver.kv.layout import place_tensors
from benchserver.kv.pattern import GroupPattern
from benchserver.kv.pool import Share
from shapespec import parse_shape_spec

pytestmark = pytest.mark.torch

WHOLE_WORDS, ODD = "(2,24,2,1,4):float16:2", "(1,24,1,1,132):uint8:1"
KERNELS = "benchserver.kv.gpu.kernels"


class Kernels:
    """Stands for TritonContent: does its work on chunks of one block, except for one flaw."""

    flaw = ""

    def __init__(self, view: GroupView, pattern: GroupPattern) -> None:
        if self.flaw == "no compiler":
            raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")
        if self.flaw == "leaves":
            raise SystemExit(7)
        self._view = view
        self._real = TorchContent(view, pattern, rank=0)

    def fill(self, call: Call, share: Share) -> None:
        self._real.fill(call, share)
        if self.flaw == "writes another byte":
            self._view.pages[1, 1, call.window.first, 0] ^= 1

    def compare(self, call: Call, skipped: int) -> Any:
        found = self._real.compare(call, skipped)
        if self.flaw == "sees nothing":
            call.numbers[COUNT_AT] = 0
        if self.flaw == "writes another byte":
            call.numbers[COUNT_AT] = 0 if call.numbers[COUNT_AT] < 4 else 4
        return found


def choose(text: str, kernels: str) -> Choice:
    import torch

    spec = parse_shape_spec(text)
    view = view_pool(torch.zeros(place_tensors(spec)[1], dtype=torch.uint8), spec)
    return choose_contents(
        view.groups,
        PoolContent(spec=spec, patterns=group_patterns(bytes(16), spec, 1), rank=0, ranks=1),
        kernels=cast(Any, kernels),
    )


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> type[Kernels]:
    """Put ours where Triton's would be."""
    module = ModuleType(KERNELS)
    vars(module)["TritonContent"] = Kernels
    monkeypatch.setitem(sys.modules, KERNELS, module)
    return Kernels


def test_on_the_cpu_torch_is_taken_unasked() -> None:
    for asked in ("auto", "torch"):
        choice = choose(WHOLE_WORDS, asked)
        assert [type(content) for content in choice.contents] == [TorchContent]
        assert choice.note == "nobody asked for it"


def test_good_kernels_are_taken(kernels: type[Kernels]) -> None:
    choice = choose(f"{WHOLE_WORDS};(2,24,2,1,8):float16:1", "triton")
    assert [type(content) for content in choice.contents] == [kernels, kernels]
    assert choice.note == ""


@pytest.mark.usefixtures("kernels")
def test_pages_of_no_whole_words_are_left_to_torch() -> None:
    choice = choose(f"(2,24,1,1,8):float16:2;{ODD}", "triton")
    assert [type(content) for content in choice.contents] == [Kernels, TorchContent]
    assert choice.note == "pages of 132 bytes are not whole 8-byte words"


@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        ("no compiler", r"a first Triton kernel failed \(RuntimeError: Failed to find C compiler."),
        ("leaves", r"a first Triton kernel failed \(SystemExit: 7"),
        ("sees nothing", "a first Triton kernel found 0 of 4 pages wrong where 4 are"),
        ("writes another byte", "wrote other bytes than the pattern's in layer 1, plane 1"),
    ],
)
def test_kernels_with_a_flaw_are_not_taken(
    monkeypatch: pytest.MonkeyPatch, kernels: type[Kernels], flaw: str, reason: str
) -> None:
    monkeypatch.setattr(kernels, "flaw", flaw)
    with pytest.raises(FatalError, match=f"^Triton kernels cannot be used: .*{reason}") as raised:
        choose(WHOLE_WORDS, "triton")
    assert "\n" not in str(raised.value)


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, KERNELS, raising=False)
    with pytest.raises(FatalError, match=r"Triton cannot be imported \(ModuleNotFoundError: "):
        choose(WHOLE_WORDS, "triton")
