"""How a client's paged tensors relate to chunk objects: pure arithmetic over shapes.

Each registered tensor is one layer.  Layers that are alike (same engine group, format, block
size, heads, dtype) form a kernel group; the client describes the groups in the order of their
first layers.  A chunk has one object for each kernel group: the C-contiguous array
[K/V][layer][token][hidden]; MLA has one plane, and so have tensors of rank 4, in which K and V of a
head lie side by side (vLLM on CPU): they are moved as heads of twice the size.

The real server puts all kernel groups of a chunk into one object unless it was started with
`--separate-object-groups`, which makes one for each size of sliding window (0.5.6).  Ours are
always separate, one a kernel group, and clients see the same: all of a chunk is there, or there is
no hit.  `sw_size_tokens` is accepted and ignored: every object holds its chunk's whole range of
tokens.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchserver.refserver.refusal import RefusalError
from protocol.dtypes import ITEM_BYTES
from protocol.handles import KvHandle
from protocol.values import clip, is_int, is_int_list

_KV_LAYOUTS: Mapping[str, str] = {"NHD": "NHD", "HND": "HND", "BLNHC": "NHD", "BLHNC": "HND"}
"""Hints, and the order of slots and heads that they tell.  The longer ones say besides that all
layers of a block lie together, which the strides show anyway (0.5.6)."""

_ENGINE_TYPES = ("vllm", "sglang", "trtllm", "mock", "atom")


class Format(enum.Enum):
    """A tensor's axes, with the name that `/status` gives it (0.5.6)."""

    KV_FIRST_NHD = "NL_X_TWO_NB_BS_NH_HS"
    KV_FIRST_HND = "NL_X_TWO_NB_NH_BS_HS"
    BLOCKS_FIRST_NHD = "NL_X_NB_TWO_BS_NH_HS"
    BLOCKS_FIRST_HND = "NL_X_NB_TWO_NH_BS_HS"
    FUSED_NHD = "NL_X_NB_BS_NH_CS"
    FUSED_HND = "NL_X_NB_NH_BS_CS"
    MLA = "NL_X_NB_BS_HS"


class PagedAxes(NamedTuple):
    """Which axis of a tensor is which; None for one that it does not have."""

    plane: int | None
    block: int
    slot: int
    head: int | None
    element: int

    @property
    def order(self) -> tuple[int, ...]:
        """Return the axes that a tensor has, for a transposition."""
        return tuple(axis for axis in self if axis is not None)

    @property
    def widening(self) -> tuple[slice | None, ...]:
        """Return the index that gives a transposed tensor the axes that it does not have."""
        return tuple(None if axis is None else slice(None) for axis in self)


AXES: Mapping[Format, PagedAxes] = {
    Format.KV_FIRST_NHD: PagedAxes(0, 1, 2, 3, 4),
    Format.KV_FIRST_HND: PagedAxes(0, 1, 3, 2, 4),
    Format.BLOCKS_FIRST_NHD: PagedAxes(1, 0, 2, 3, 4),
    Format.BLOCKS_FIRST_HND: PagedAxes(1, 0, 3, 2, 4),
    Format.FUSED_NHD: PagedAxes(None, 0, 1, 2, 3),
    Format.FUSED_HND: PagedAxes(None, 0, 2, 1, 3),
    Format.MLA: PagedAxes(None, 0, 1, None, 2),
}


class LayerGeometry(NamedTuple):
    """What must be equal for layers to be copied together."""

    form: Format
    planes: int
    slots_per_block: int
    heads: int
    head_size: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """One kernel group and its object of a chunk."""

    engine_group: int
    layers: tuple[int, ...]
    geometry: LayerGeometry
    num_blocks: int
    tokens_per_block: int
    blocks_per_chunk: int
    nbytes: int
    """Of the object."""

    @property
    def object_shape(self) -> tuple[int, ...]:
        """Return the object's axes: plane, layer, block, slot, head, element."""
        g = self.geometry
        blocks = (self.blocks_per_chunk, g.slots_per_block)
        return (g.planes, len(self.layers), *blocks, g.heads, g.head_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """All kernel groups of a registration, in the order of STORE's block id lists.

    A group's index in it is the object group of its objects.
    """

    groups: tuple[GroupLayout, ...]
    formats: tuple[Format, ...]

    @property
    def group_bytes(self) -> tuple[int, ...]:
        """Return the size of an object of each group."""
        return tuple(group.nbytes for group in self.groups)


def layout_of(
    handles: Sequence[KvHandle],
    hints: Mapping[str, Any],
    infos: Sequence[Mapping[str, Any]],
    *,
    engine_type: str,
    chunk_size: int,
) -> KvLayout:
    """Return the layout of a registration; RefusalError where a real server would not answer."""
    if engine_type not in _ENGINE_TYPES:
        raise RefusalError(f"engine type {clip(engine_type)} is not known")
    kv_layout = hints.get("kv_layout", "NHD")
    if not isinstance(kv_layout, str) or kv_layout not in _KV_LAYOUTS:
        raise RefusalError(f"kv_layout {clip(kv_layout)}, expected one of {', '.join(_KV_LAYOUTS)}")
    if not handles:
        raise RefusalError("no KV tensors")
    geometries = [_geometry(handle, _KV_LAYOUTS[kv_layout]) for handle in handles]
    parsed = [_parse_info(info, len(handles)) for info in infos]
    found = _kernel_groups(geometries, parsed)
    if parsed and [info.layers for info in parsed] != [layers for _, layers in found]:
        raise RefusalError(
            f"engine_group_infos list layers {clip([info.layers for info in parsed])}, "
            f"the tensors form the groups {clip([layers for _, layers in found])}"
        )
    declared = parsed or [_INFO_OF_ALL] * len(found)
    groups = _sized(found, declared, geometries, handles, chunk_size)
    return KvLayout(groups=groups, formats=tuple(geometry.form for geometry in geometries))


@dataclass(frozen=True, slots=True)
class _Info:
    engine_group: int
    layers: tuple[int, ...]
    tokens_per_block: int


_INFO_OF_ALL = _Info(0, (), 0)


def _parse_info(info: Mapping[str, Any], num_layers: int) -> _Info:
    group, layers = info.get("engine_group_id"), info.get("layer_indices", [])
    tokens = info.get("tokens_per_block", 0)
    if not is_int(group) or group < 0 or not is_int_list(layers) or not is_int(tokens):
        raise RefusalError(f"engine group info {clip(info)} has a field of a wrong type")
    if not all(0 <= layer < num_layers for layer in layers):
        raise RefusalError(f"engine group info {clip(info)} names a layer of {num_layers}")
    return _Info(group, tuple(layers), tokens)


def _geometry(handle: KvHandle, kv_layout: str) -> LayerGeometry:
    shape = handle.shape
    if 0 in shape:
        raise RefusalError(f"a tensor of shape {shape} is empty")
    form = _form(shape, kv_layout)
    planes, _, slots, heads, head_size = (1 if axis is None else shape[axis] for axis in AXES[form])
    return LayerGeometry(form, planes, slots, heads, head_size, handle.dtype)


def _form(shape: Sequence[int], kv_layout: str) -> Format:
    if len(shape) == 3:
        return Format.MLA
    if len(shape) == 4:
        return Format[f"FUSED_{kv_layout}"]
    if len(shape) != 5 or 2 not in shape[:2]:
        raise RefusalError(
            f"a tensor of shape {clip(shape)}, expected (NB,BS,hidden), rank 4 with K and V fused, "
            "or (2,NB,..) or (NB,2,..) of rank 5"
        )
    return Format[f"{'KV_FIRST' if shape[0] == 2 else 'BLOCKS_FIRST'}_{kv_layout}"]


def _kernel_groups(
    geometries: Sequence[LayerGeometry], infos: Sequence[_Info]
) -> list[tuple[int, tuple[int, ...]]]:
    """Return (engine group, layers) of each kernel group, by first layer.

    A layer that no info lists is in no group: it is never stored (0.5.6).
    """
    engine_group = {layer: info.engine_group for info in infos for layer in info.layers}
    found: dict[tuple[int, LayerGeometry], list[int]] = {}
    for layer, geometry in enumerate(geometries):
        if infos and layer not in engine_group:
            continue
        found.setdefault((engine_group.get(layer, 0), geometry), []).append(layer)
    if not found:
        raise RefusalError("engine_group_infos list no layer")
    return [(group, tuple(layers)) for (group, _), layers in found.items()]


def _sized(
    found: Sequence[tuple[int, tuple[int, ...]]],
    declared: Sequence[_Info],
    geometries: Sequence[LayerGeometry],
    handles: Sequence[KvHandle],
    chunk_size: int,
) -> tuple[GroupLayout, ...]:
    groups: list[GroupLayout] = []
    for (engine_group, layers), info in zip(found, declared, strict=True):
        geometry = geometries[layers[0]]
        blocks = _blocks_per_chunk(geometry, info.tokens_per_block, chunk_size)
        axis = AXES[geometry.form].block
        item_bytes = ITEM_BYTES[geometry.dtype]
        block_items = geometry.slots_per_block * geometry.heads * geometry.head_size
        nbytes = geometry.planes * len(layers) * blocks * block_items * item_bytes
        groups.append(
            GroupLayout(
                engine_group=engine_group,
                layers=layers,
                geometry=geometry,
                num_blocks=min(handles[layer].shape[axis] for layer in layers),
                tokens_per_block=chunk_size // blocks,
                blocks_per_chunk=blocks,
                nbytes=nbytes,
            )
        )
    return tuple(groups)


def _blocks_per_chunk(geometry: LayerGeometry, declared_tokens: int, chunk_size: int) -> int:
    tokens = declared_tokens if declared_tokens > 0 else geometry.slots_per_block
    if tokens % geometry.slots_per_block:
        raise RefusalError(
            f"tokens_per_block {tokens} is not a multiple of the {geometry.slots_per_block} slots "
            "that a block has"
        )
    if chunk_size % tokens:
        raise RefusalError(f"tokens_per_block {tokens} does not divide chunk_size {chunk_size}")
    return chunk_size // tokens
