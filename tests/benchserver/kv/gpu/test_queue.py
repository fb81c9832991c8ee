"""What torch refuses becomes one line."""

from __future__ import annotations

import pytest

from benchserver.errors import FatalError, WorkCancelledError
from benchserver.kv.gpu.queue import DeviceQueue, upload

pytestmark = pytest.mark.torch


def queue() -> DeviceQueue:
    import torch

    return DeviceQueue(torch.device("cpu"), None)


def test_a_cuda_error_is_one_line() -> None:
    text = "CUDA error: an illegal memory access\nCUDA kernel errors might be reported later\n"
    with pytest.raises(FatalError) as raised, queue().working("fill"):
        raise RuntimeError(text)
    assert str(raised.value) == "cpu: fill: CUDA error: an illegal memory access"
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_out_of_memory_says_what_to_do() -> None:
    import torch

    text = "CUDA out of memory. Tried to allocate 2 GiB."
    with pytest.raises(FatalError) as raised, queue().working("compare"):
        raise torch.cuda.OutOfMemoryError(text)
    assert str(raised.value).startswith(f"cpu: compare: {text}; use a smaller --kvcache-shape-spec")


@pytest.mark.parametrize("error", [WorkCancelledError(), ValueError("size"), FatalError("x")])
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, queue().working("fill"):
        raise error
    assert raised.value is error


def test_what_torch_itself_refuses() -> None:
    with (
        pytest.raises(FatalError, match=r"^cpu: fill: shape .* is invalid"),
        queue().working("fill"),
    ):
        queue().upload([1, 2]).view(3)


def test_uploaded_numbers_are_a_copy() -> None:
    import numpy as np
    import torch

    values = np.arange(3)
    sent = upload(values, torch.device("cpu"))
    values[0] = 9
    assert sent.tolist() == [0, 1, 2]
    assert queue().upload((3, -1)).tolist() == [3, -1]
    assert queue().upload((3, -1)).dtype == torch.int64


class Stream:
    """Notes how often it was waited for; its device may be in an error state."""

    def __init__(self, error: Exception | None = None) -> None:
        self.waits = 0
        self._error = error

    def synchronize(self) -> None:
        self.waits += 1
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, RuntimeError("CUDA error: an illegal memory access")])
def test_what_is_under_way_is_waited_for_whatever_comes_of_it(error: Exception | None) -> None:
    stream = Stream(error)
    DeviceQueue("cuda:0", stream).finish()
    assert stream.waits == 1


def test_there_is_nothing_to_wait_for_on_the_cpu() -> None:
    on_cpu = queue()
    on_cpu.finish()
    assert on_cpu.stream is None
