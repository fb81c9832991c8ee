"""What torch says, cut to one line."""

from __future__ import annotations

import pytest

from benchserver.cuda.reason import reason_of


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("CUDA error: x\nCompile with TORCH_USE_CUDA_DSA"), "CUDA error: x"),
        (RuntimeError(""), "RuntimeError"),
        (RuntimeError("x" * 300), "x" * 197 + "..."),
    ],
)
def test_what_torch_says_is_one_short_line(error: Exception, text: str) -> None:
    assert reason_of(error) == text
