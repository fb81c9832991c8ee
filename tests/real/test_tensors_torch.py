"""Our tensor streams against the real torch, in both directions, in its own interpreter.

The environment variable BENCH_SERVER_REAL_PYTHON names the interpreter of an environment with
torch. The scripts below run there; they speak JSON over stdin and stdout and know none of our code.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from typing import Any

import pytest

from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("in_depth")]  # all have one torch

_DESCRIBE = """
import json, pickle, sys
import torch

def raw(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()).hex()

def described(tensors):
    return [[str(t.dtype).removeprefix("torch."), list(t.shape), raw(t)] for t in tensors]
"""

_LOAD = (
    _DESCRIBE
    + """
tensors = pickle.loads(bytes.fromhex(json.load(sys.stdin)))
assert type(tensors) is list
assert all(type(t) is torch.Tensor and t.device.type == "cpu" for t in tensors)
assert all(t.is_contiguous() and not t.requires_grad and t.storage_offset() == 0 for t in tensors)
json.dump(described(tensors), sys.stdout)
"""
)

_DUMP = (
    _DESCRIBE
    + """
torch.manual_seed(20)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.uint8, torch.int8)
DTYPES += (torch.float8_e4m3fn, torch.float8_e5m2)  # torch 2.13 cannot read these itself

def filled(dtype, *shape):
    size = torch.empty(0, dtype=dtype).element_size() * torch.Size(shape).numel()
    return torch.randint(0, 256, (size,), dtype=torch.uint8).view(dtype).reshape(shape)

def cases(dtype):
    base = filled(dtype, 4, 6, 5)
    shared = base[0]
    yield "contiguous", [base]
    yield "several", [filled(dtype, 2, 3), filled(dtype, 7), filled(dtype, 1, 1, 1)]
    yield "wider than BININT1", [filled(dtype, 300, 257)]
    yield "leading rows", [base[:2]]
    yield "storage offset", [base[3]]
    yield "columns", [base[:, 1:4, 2:]]
    yield "every other", [base[::2, 1::3, ::4]]
    yield "transposed", [base.transpose(0, 2), base[1].t(), base.permute(1, 2, 0)]
    yield "shared storage", [base, base, base[1], base.transpose(0, 1), shared, shared]
    yield "expanded", [shared[0, :1].expand(8), shared[:, :1].expand(6, 9), shared.expand(2, 6, 5)]
    yield "scalar", [base[1, 2, 3], filled(dtype)]
    yield "zero elements", [base[4:], base[4:, 6:], filled(dtype, 0), filled(dtype, 3, 0, 2)]
    yield "unit axes", [base[:1, :, :1], base.unsqueeze(0).transpose(0, 3)]
    yield "diagonal", [base.diagonal()]
    yield "overlapping", [base.reshape(-1).unfold(0, 4, 1)]
    yield "empty list", []
    if dtype.is_floating_point:
        yield "requires grad", [filled(dtype, 3).requires_grad_(True)]

out = []
for protocol in (4, 5):
    for dtype in DTYPES:
        for name, tensors in cases(dtype):
            stream = pickle.dumps(tensors, protocol=protocol).hex()
            expected = described([t.detach() for t in tensors])
            out.append([f"{name} {dtype} protocol {protocol}", stream, expected])
json.dump(out, sys.stdout)
"""
)


def _run(script: str, argument: object) -> Any:
    python = os.environ.get("BENCH_SERVER_REAL_PYTHON")
    if not python:
        pytest.fail("set BENCH_SERVER_REAL_PYTHON to the python of an environment with torch")
    done = subprocess.run(
        [python, "-W", "ignore", "-c", script],
        input=json.dumps(argument),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _described(tensors: list[InlineTensor]) -> list[list[object]]:
    return [[t.dtype, list(t.shape), bytes(t.data).hex()] for t in tensors]


def test_torch_loads_our_streams() -> None:
    draw = random.Random(21)
    shapes = [(2, 3, 16, 4), (2, 300, 257), (3, 5), (70000,), (1, 1), (0,), (3, 0, 2), ()]
    shapes += [(0, 40000, 300), (0, 1 << 31), (1 << 40, 0, 2)]
    widths = {"float16": 2, "bfloat16": 2, "float32": 4, "uint8": 1, "int8": 1}
    tensors = []
    for dtype, width in widths.items():
        for shape in shapes:
            numel = 1
            for size in shape:
                numel *= size
            tensors.append(InlineTensor(dtype, shape, draw.randbytes(numel * width)))
    assert _run(_LOAD, encode_tensor_list(tensors).hex()) == _described(tensors)
    assert _run(_LOAD, encode_tensor_list(tensors[:1]).hex()) == _described(tensors[:1])
    assert _run(_LOAD, encode_tensor_list([]).hex()) == []


def test_we_read_the_streams_of_torch() -> None:
    cases = _run(_DUMP, None)
    assert len(cases) > 150
    for name, stream, expected in cases:
        assert _described(decode_tensor_list(bytes.fromhex(stream))) == expected, name
