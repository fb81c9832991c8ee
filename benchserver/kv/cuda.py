"""CUDA: whether there is a device.  (GPU pools are a later issue.)"""

from __future__ import annotations

import ctypes


def device_count() -> int:
    """Return how many CUDA devices the driver offers; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value
