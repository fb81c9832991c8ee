"""The digest of a chunk as the server's HTTP API defines it (0.5.1 to 0.5.6).

MD5 over the layers in order; of each layer, the chunk's blocks in block-table order: all of K,
then all of V.  bfloat16 is widened to float32 first, other dtypes are hashed as they lie.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchserver.errors import WorkCancelledError


def widen_bfloat16(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the float32 bit patterns of bfloat16 bytes, exactly, NaNs included."""
    halves = np.ascontiguousarray(data).view("<u2")
    wide: npt.NDArray[np.uint32] = halves.astype("<u4") << np.uint32(16)
    return wide


def chunk_digest(
    layers: Sequence[npt.NDArray[np.uint8]],
    bfloat16: Sequence[bool],
    block_ids: Sequence[int],
    cancel: threading.Event,
) -> str:
    """Return the MD5 hex digest of one chunk.

    `layers[i]` has shape (planes, num_blocks, page bytes); `bfloat16[i]` tells its dtype.
    """
    md5 = hashlib.md5(usedforsecurity=False)
    ids = np.asarray(block_ids, dtype=np.intp)
    for pages, widen in zip(layers, bfloat16, strict=True):
        if cancel.is_set():
            raise WorkCancelledError
        for plane in pages:
            gathered = plane[ids]
            md5.update(widen_bfloat16(gathered).data if widen else gathered.data)
    return md5.hexdigest()
