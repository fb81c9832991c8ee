"""Arithmetic on shape specs: shapes, strides and byte counts.

Owns how a group's layers lie in memory and how many bytes each unit takes.  It must not know where
the memory is, what it holds, or any server.  Every figure is for one tensor-parallel rank: the
head count of a spec is already the rank's own.

The units, from small to large:

    page    one block in one plane of one layer: BS tokens of NH*HS elements, contiguous
    tensor  one layer: planes * NB pages; plane 0 is K and plane 1 is V, MLA has one plane
    token   what one token takes in all layers (`layer_token_bytes`: in one layer)
    block   BS tokens in all layers
    chunk   the server's unit of caching, chunk_tokens tokens in all layers
    pool    NB blocks in all layers, which is all tensors together

Works on exact ints; nothing here raises for a valid spec, except a chunk of no tokens.
"""

from itertools import accumulate
from math import prod

from shapespec.spec import GroupSpec, ShapeSpec


def planes(group: GroupSpec) -> int:
    """Return the planes of one layer: 2 (K, V), or 1 for MLA."""
    return group.kv_size


def hidden_size(group: GroupSpec) -> int:
    """Return the elements of one token in one plane of one layer: NH * HS."""
    return group.num_heads * group.head_size


def tensor_shape(group: GroupSpec, *, hnd: bool = False) -> tuple[int, ...]:
    """Return the shape of one layer: (2, NB, BS, NH, HS), or (NB, BS, NH*HS) for MLA.

    `hnd` puts the heads before the slots of a block: (2, NB, NH, BS, HS); MLA has no head axis.
    """
    if group.is_mla:
        return (group.num_blocks, group.block_size, hidden_size(group))
    page = (group.block_size, group.num_heads)
    return (group.kv_size, group.num_blocks, *(page[::-1] if hnd else page), group.head_size)


def element_strides(group: GroupSpec, *, hnd: bool = False) -> tuple[int, ...]:
    """Return the strides of `tensor_shape` in elements, C-contiguous: the last is 1."""
    shape = tensor_shape(group, hnd=hnd)
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def page_bytes(group: GroupSpec) -> int:
    """Return the bytes of one block in one plane of one layer."""
    return group.block_size * hidden_size(group) * group.dtype.item_bytes


def tensor_bytes(group: GroupSpec) -> int:
    """Return the bytes of one layer's tensor."""
    return planes(group) * group.num_blocks * page_bytes(group)


def layer_token_bytes(group: GroupSpec) -> int:
    """Return the bytes of one token in one layer, both planes."""
    return planes(group) * hidden_size(group) * group.dtype.item_bytes


def token_bytes(spec: ShapeSpec) -> int:
    """Return the bytes of one token in all layers."""
    return sum(group.layers * layer_token_bytes(group) for group in spec.groups)


def block_bytes(spec: ShapeSpec) -> int:
    """Return the bytes of one block in all layers."""
    return spec.block_size * token_bytes(spec)


def chunk_bytes(spec: ShapeSpec, chunk_tokens: int) -> int:
    """Return the bytes of one chunk in all layers; ValueError if `chunk_tokens` is below 1.

    The chunk need not be whole blocks: whether a server takes that is for the server to say.
    """
    if chunk_tokens < 1:
        raise ValueError(f"chunk_tokens: got {chunk_tokens}, expected at least 1")
    return chunk_tokens * token_bytes(spec)


def pool_bytes(spec: ShapeSpec) -> int:
    """Return the bytes of all tensors of all groups."""
    return spec.num_blocks * block_bytes(spec)


def layer_indices(spec: ShapeSpec) -> tuple[range, ...]:
    """Return each group's layer numbers: consecutive over the groups, from 0."""
    ends = accumulate(group.layers for group in spec.groups)
    return tuple(
        range(end - group.layers, end) for group, end in zip(spec.groups, ends, strict=True)
    )
