"""The device and the stream on which a pool works, and what goes wrong there in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchserver.cuda.reason import reason_of
from benchserver.errors import FatalError


class DeviceQueue:
    """A torch.device and a torch.cuda.Stream of it; None for torch's CPU device."""

    def __init__(self, device: Any, stream: Any) -> None:
        self.device = device
        self.stream = stream

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Work on the device and stream; FatalError for what torch refuses."""
        import torch

        try:
            if self.stream is None:
                yield
            else:
                # Both belong to a thread, and pools are used from many.
                with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
                    yield
        except RuntimeError as error:
            raise self._fatal(what, error) from error

    def upload(self, values: Sequence[int]) -> Any:
        """Return integers as an int64 tensor on the device."""
        return upload(np.asarray(values, dtype=np.int64), self.device)

    def finish(self) -> None:
        """Wait for what is under way, whatever comes of it."""
        if self.stream is not None:
            # A device in an error state refuses; its user has been told.
            with contextlib.suppress(RuntimeError):
                self.stream.synchronize()

    def _fatal(self, what: str, error: RuntimeError) -> FatalError:
        import torch

        reason = reason_of(error)
        if isinstance(error, torch.cuda.OutOfMemoryError):
            reason += "; use a smaller --kvcache-shape-spec, --num-tokens or --tp-size"
        return FatalError(f"{self.device}: {what}: {reason}")


def upload(values: npt.NDArray[np.int64], device: Any) -> Any:
    """Return a copy on the device, enqueued on the current stream.

    From pinned memory: a copy from any other waits until the stream has done what it has to do.
    """
    import torch

    source = torch.from_numpy(values)
    if device.type == "cpu":
        return source.clone()
    return source.pin_memory().to(device, non_blocking=True)
