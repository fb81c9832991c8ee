"""The KV shape language: `(kv_size,NB,BS,NH,HS):dtype:layers[;...]`.

Owns what such a text means: the values (`spec`, `dtypes`), how it is read (`parser`) and
the arithmetic on it (`layout`).  It must not know servers, memory or tensors: standard library
only, no clock, no IO.

    spec = parse_shape_spec("(2,1024,16,8,128):float16:32")
    pool_bytes(spec)                  # 2147483648
    tensor_shape(spec.groups[0])      # (2, 1024, 16, 8, 128)
"""

from shapespec.dtypes import DTYPES, DType
from shapespec.layout import (
    block_bytes,
    chunk_bytes,
    element_strides,
    hidden_size,
    layer_indices,
    layer_token_bytes,
    page_bytes,
    planes,
    pool_bytes,
    tensor_bytes,
    tensor_shape,
    token_bytes,
)
from shapespec.parser import MAX_TEXT_CHARS, parse_shape_spec
from shapespec.spec import MAX_GROUPS, MAX_LAYERS, MAX_SIZE, GroupSpec, ShapeSpec, SpecError

__all__ = [
    "DTYPES",
    "MAX_GROUPS",
    "MAX_LAYERS",
    "MAX_SIZE",
    "MAX_TEXT_CHARS",
    "DType",
    "GroupSpec",
    "ShapeSpec",
    "SpecError",
    "block_bytes",
    "chunk_bytes",
    "element_strides",
    "hidden_size",
    "layer_indices",
    "layer_token_bytes",
    "page_bytes",
    "parse_shape_spec",
    "planes",
    "pool_bytes",
    "tensor_bytes",
    "tensor_shape",
    "token_bytes",
]
