"""Defaults of options that the command line, the configuration and the replay line share.

Imports nothing of ours: `--help` needs no configuration.
"""

from __future__ import annotations

from typing import Literal

DEFAULT_MODEL_NAME = "bench-server"
DEFAULT_NUM_BLOCKS = 1024
DEFAULT_BLOCK_SIZE = 16
DEFAULT_NUM_TOKENS = 512
DEFAULT_PARTIAL_EVERY = 10
DEFAULT_INTERVAL_S = 0.5
DEFAULT_TIMEOUT_S = 10.0
DEFAULT_VISIBLE_WITHIN_S = 2.0

CudaIpc = Literal["torch", "driver"]
"""How GPU memory is described to a server: as torch shares it, or by the driver's handle."""

DEFAULT_CUDA_IPC: CudaIpc = "torch"
