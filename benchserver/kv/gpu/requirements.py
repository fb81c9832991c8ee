"""Whether this process can use CUDA: a driver with a device, and a torch that is built for it."""

from __future__ import annotations

import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor

from benchserver.cuda.driver import DriverError, count_devices
from benchserver.errors import FatalError, one_line

_EXTRA = "pip install 'bench-server[gpu]'"


def device_count() -> int:
    """Return how many CUDA devices the driver offers; 0 without a driver."""
    # In a thread, for handlers of signals: the driver may take seconds to start.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_ask_driver).result()


def _ask_driver() -> int:
    try:
        return count_devices()
    except DriverError:
        return 0


def require_device() -> None:
    """Raise FatalError without a CUDA device or without torch; quick, and imports nothing."""
    if device_count() == 0:
        raise FatalError("--mode gpu: this machine has no usable CUDA device; use --mode cpu")
    try:
        missing = importlib.util.find_spec("torch") is None
    except (ImportError, ValueError, AttributeError):
        missing = False  # there is something of that name; loading shows what
    if missing:
        raise FatalError(f"--mode gpu: PyTorch is not installed; {_EXTRA}, or use --mode cpu")


def require_cuda() -> None:
    """Raise FatalError unless torch can use a CUDA device; imports torch, which takes seconds."""
    require_device()
    version, built_for, usable = _load_torch()
    if built_for is None:
        raise FatalError(
            f"--mode gpu: PyTorch {version} is built without CUDA; install one that is built with "
            "it, or use --mode cpu"
        )
    if not usable:
        raise FatalError(
            f"--mode gpu: PyTorch {version}, built for CUDA {built_for}, finds no usable device: "
            "the driver may be too old for it; use --mode cpu"
        )


def _load_torch() -> tuple[str, str | None, bool]:
    """Return torch's version, the CUDA that it is built for, and whether it can use a device."""
    # At exit torch warns of memory that a server has not given back, and the result has said so.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        import torch

        return str(torch.__version__), torch.version.cuda, bool(torch.cuda.is_available())
    # A broken installation raises whatever it likes, SystemExit too; a folder of that name is a
    # module without attributes.
    except BaseException as error:
        raise FatalError(
            f"--mode gpu: PyTorch cannot be loaded ({type(error).__name__}: "
            f"{one_line(error, 200)}); {_EXTRA}, or use --mode cpu"
        ) from error
