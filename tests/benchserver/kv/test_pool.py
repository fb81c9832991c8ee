"""One suite for every pool: in host memory, and a CudaPool on torch's CPU device."""

from __future__ import annotations

import importlib.util
import os
from functools import partial

import pytest

from benchserver.kv.pool import WHOLE, shares
from tests.pools import open_host, open_on_cpu
from tests.poolsuite import PoolSuite


def test_shares_take_every_layer_once() -> None:
    for count in (1, 2, 5):
        layers = [layer for first, step in shares(count) for layer in range(first, 7, step)]
        assert sorted(layers) == list(range(7))
    assert shares(1) == [WHOLE]


@pytest.mark.usefixtures("leak_free")
class TestHostPool(PoolSuite):
    """The reference is not compared with itself alone: the suite says what is right, too."""

    open = staticmethod(open_host)
    max_examples = 20  # host/test_seeing.py draws 150, of all specs together


@pytest.mark.torch
class TestCudaPoolInTorchOperations(PoolSuite):
    open = staticmethod(open_on_cpu)


@pytest.mark.torch
@pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None,
    reason="needs Triton, with its interpreter switched on: TRITON_INTERPRET=1",
)
class TestCudaPoolInKernels(PoolSuite):
    """The kernels as they are, run by Triton's interpreter.

    They take pages of whole words alone: a pool that has others too uses both.
    """

    open = staticmethod(partial(open_on_cpu, kernels="triton"))
    max_examples, max_bytes = 3, 8  # the interpreter takes its time
