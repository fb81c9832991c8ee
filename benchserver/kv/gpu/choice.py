"""Which implementation writes and compares a pool's content: Triton kernels, or torch operations.

Kernels are used where they are known to work: Triton is there, a first launch on the pool's own
memory succeeds, and what it wrote are the very bytes of the pattern.  Otherwise torch operations
do the same, slower, and the reason is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchserver.errors import FatalError, one_line
from benchserver.kv.blocks import Window
from benchserver.kv.content import PoolContent
from benchserver.kv.gpu.pages import COUNT_AT, Call, GroupContent, TorchContent, start_call
from benchserver.kv.gpu.views import GroupView
from benchserver.kv.pattern import GroupPattern
from benchserver.kv.pool import WHOLE

Kernels = Literal["auto", "triton", "torch"]
"""`auto` takes Triton where it works; `triton` fails where it does not (except for pages that are
not whole words, which the kernels do not take); `torch` takes torch operations."""

_PROBE_DIGEST, _OTHER_DIGEST = 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210
_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The implementation of each group; `note` says why it is not Triton's, if it is not."""

    contents: tuple[GroupContent, ...]
    note: str


def choose_contents(
    views: Sequence[GroupView], content: PoolContent, *, kernels: Kernels
) -> Choice:
    """Choose for each group, and try the choice on the pool's last block, whose bytes are lost.

    Waits for the device.  Raises FatalError if `kernels` asks for Triton and it does not work.
    """
    on_host = views[0].pages.device.type == "cpu"
    contents: list[GroupContent] = []
    note = ""
    for view, pattern in zip(views, content.patterns, strict=True):
        chosen: GroupContent | None = None
        if kernels == "torch" or (kernels == "auto" and on_host):
            note = note or "nobody asked for it"
        elif not view.whole_words:
            note = note or f"pages of {view.page_bytes} bytes are not whole 8-byte words"
        else:
            chosen, reason = _triton_content(view, pattern, content.rank)
            if chosen is None and kernels == "triton":
                raise FatalError(f"Triton kernels cannot be used: {reason}")
            note = note or reason
        contents.append(chosen or TorchContent(view, pattern, rank=content.rank))
    return Choice(contents=tuple(contents), note=note)


def _triton_content(
    view: GroupView, pattern: GroupPattern, rank: int
) -> tuple[GroupContent | None, str]:
    """Return kernels that work, or why there are none."""
    try:
        from benchserver.kv.gpu.kernels import TritonContent

        content = TritonContent(view, pattern)
        seen = _try(content, view, pattern, rank)
    except ImportError as error:
        return None, f"Triton cannot be imported ({_reason(error)})"
    # Triton, the C compiler that it calls, and the driver fail in ways of their own, and a
    # container without a compiler is common; a device that is really broken fails again at once.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return None, f"a first Triton kernel failed ({_reason(error)})"
    return (None, f"a first Triton kernel {seen}") if seen else (content, "")


def _try(content: GroupContent, view: GroupView, pattern: GroupPattern, rank: int) -> str:
    """Write and compare one block; return what went wrong, or ""."""
    block = view.spec.num_blocks - 1
    window = Window(first=block, count=1, block_ids=(block,), canaries=())
    pages = len(view.layers) * view.planes

    def call(digest: int) -> Call:
        return start_call(
            window,
            (digest,),
            num_blocks=view.spec.num_blocks,
            rank=rank,
            device=view.pages.device,
        )

    content.fill(call(_PROBE_DIGEST), WHOLE)
    for digest, expected in ((_PROBE_DIGEST, 0), (_OTHER_DIGEST, pages)):
        compared = call(digest)
        content.compare(compared, 0)
        wrong = int(compared.numbers[COUNT_AT].item())
        if wrong != expected:
            return f"found {wrong} of {pages} pages wrong where {expected} are"
    for index, layer in enumerate(view.layers):
        keys = pattern.page_keys((_PROBE_DIGEST,), rank=rank, layer=layer)
        for plane in range(view.planes):
            expected_page = pattern.expected_page(int(keys[plane, 0]))
            if view.page(index, plane, block).tobytes() != expected_page.tobytes():
                return f"wrote other bytes than the pattern's in layer {layer}, plane {plane}"
    return ""


def _reason(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}", _SHOWN_CHARS)
