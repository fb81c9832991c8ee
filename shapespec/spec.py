"""The value of a shape spec: which paged KV tensors one engine rank owns.

Owns the two frozen values, the limits on their numbers, the canonical text, and the error that
a text can raise.  It must not know how text is read (`parser`) or how many bytes anything takes
(`layout`).

Works by checking in `__post_init__`, so that a value which exists is a valid one.  Each limit is
stated once: `DIMENSIONS` and `LAYERS` hold the range of every number, and `find_conflict` the rules
between groups.  The parser asks the same two and adds the column.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shapespec.dtypes import DTYPES, DType

MAX_KV_SIZE = 2
"""K and V; an MLA layer keeps one latent tensor instead, kv_size 1."""

MAX_SIZE = 2**31 - 1
"""Block ids and dimensions stay within a signed 32-bit int, as kernels and peers hold them."""

MAX_GROUPS = 64
"""Far above the few attention kinds that real models mix; bounds what one text can ask for."""

MAX_LAYERS = 4096
"""Over all groups.  Every layer is one tensor to allocate and register; real models stay < 200."""

MAX_SHOWN_CHARS = 60
"""Characters of offending text that a message shows; a whole group fits in most cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One number of a group: its attribute, its name in the grammar, and its range from 1."""

    attribute: str
    label: str
    maximum: int

    @property
    def expectation(self) -> str:
        """Return what an error says that it expected."""
        return f"an integer from 1 to {self.maximum} ({self.label})"

    def allows(self, value: object) -> bool:
        """Tell whether a value is an int in range; a bool is not."""
        return type(value) is int and 1 <= value <= self.maximum


DIMENSIONS = (
    Field(attribute="kv_size", label="kv_size", maximum=MAX_KV_SIZE),
    Field(attribute="num_blocks", label="NB", maximum=MAX_SIZE),
    Field(attribute="block_size", label="BS", maximum=MAX_SIZE),
    Field(attribute="num_heads", label="NH", maximum=MAX_SIZE),
    Field(attribute="head_size", label="HS", maximum=MAX_SIZE),
)
"""The five numbers in the parentheses, in the order of the text."""

LAYERS = Field(attribute="layers", label="layers", maximum=MAX_LAYERS)


class SpecError(ValueError):
    """A text that is not a shape spec.

    `column` is the 1-based character position, `text` the offending text (empty at the end
    of the input) and `expected` what belongs there.  `str()` is always one ASCII line.
    """

    def __init__(self, column: int, text: str, expected: str) -> None:
        super().__init__(column, text, expected)
        self.column = column
        self.text = text
        self.expected = expected

    def __str__(self) -> str:
        place = f"shape spec, column {self.column}"
        return f"{place}: got {_shown(self.text)}, expected {self.expected}"


def _shown(text: str) -> str:
    if not text:
        return "the end of the text"
    # ascii() escapes line breaks, control characters and look-alike digits.
    clipped = "..." if len(text) > MAX_SHOWN_CHARS else ""
    return ascii(text[:MAX_SHOWN_CHARS]) + clipped


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """Layers of one shape and dtype.  ValueError names the number that is out of range.

    `num_blocks` is blocks per layer (NB), `block_size` tokens per block (BS), `num_heads`
    KV heads of this rank (NH), `head_size` elements per head (HS), `layers` how many layers.
    """

    kv_size: int
    num_blocks: int
    block_size: int
    num_heads: int
    head_size: int
    dtype: DType
    layers: int

    def __post_init__(self) -> None:
        for field in (*DIMENSIONS, LAYERS):
            value = getattr(self, field.attribute)
            if not field.allows(value):
                raise ValueError(f"group spec: got {value!r}, expected {field.expectation}")
        if self.dtype not in DTYPES.values():
            raise ValueError(f"group spec: got {self.dtype!r}, expected a value of DTYPES")

    @property
    def is_mla(self) -> bool:
        """Tell whether the layers keep one latent tensor instead of K and V (kv_size 1)."""
        return self.kv_size == 1

    @property
    def text(self) -> str:
        """Return the canonical text, such as `(2,1024,16,8,128):float16:32`."""
        dimensions = ",".join(str(getattr(self, field.attribute)) for field in DIMENSIONS)
        return f"({dimensions}):{self.dtype.name}:{self.layers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSpec:
    """All KV tensors of one rank: 1 to 64 groups that share NB and BS.

    ValueError names the group (counted from 1) that breaks a rule.
    """

    groups: tuple[GroupSpec, ...]

    def __post_init__(self) -> None:
        if type(self.groups) is not tuple or not self.groups:
            raise ValueError(f"shape spec: got {self.groups!r}, expected a tuple of groups")
        conflict = find_conflict(self.groups)
        if conflict is not None:
            got = self.groups[conflict.index].text
            place = f"shape spec, group {conflict.index + 1}"
            raise ValueError(f"{place}: got {got!r}, expected {conflict.expected}")

    @property
    def num_layers(self) -> int:
        """Return how many layers all groups have."""
        return sum(group.layers for group in self.groups)

    @property
    def num_blocks(self) -> int:
        """Return the blocks of a layer (NB), the same in every group."""
        return self.groups[0].num_blocks

    @property
    def block_size(self) -> int:
        """Return the tokens of a block (BS), the same in every group."""
        return self.groups[0].block_size

    @property
    def is_mla(self) -> bool:
        """Tell whether any group is MLA; a mixed spec counts."""
        return any(group.is_mla for group in self.groups)

    @property
    def text(self) -> str:
        """Return the canonical text, groups joined by `;`; it parses back to an equal value."""
        return ";".join(group.text for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The first group (index from 0) that does not fit the ones before it, and what would."""

    index: int
    expected: str


def find_conflict(groups: Sequence[GroupSpec]) -> Conflict | None:
    """Return the first group that breaks a rule between groups, or None if all fit together."""
    layers = 0
    for index, group in enumerate(groups):
        layers += group.layers
        if index >= MAX_GROUPS:
            return Conflict(index=index, expected=f"at most {MAX_GROUPS} groups")
        for label, seen, first in (
            ("NB", group.num_blocks, groups[0].num_blocks),
            ("BS", group.block_size, groups[0].block_size),
        ):
            if seen != first:
                return Conflict(index=index, expected=f"{label} {first} as in the first group")
        if layers > MAX_LAYERS:
            return Conflict(index=index, expected=f"at most {MAX_LAYERS} layers in all groups")
    return None
