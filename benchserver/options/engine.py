"""The engine that is played: its KV memory, its ranks, its keys."""

from __future__ import annotations

import enum
from typing import Literal, get_args

from benchserver.kv.placement import CudaIpc
from benchserver.options.kinds import Choice, Flag, Text, Whole
from benchserver.options.option import NotReplayed, Option, Replayed, Table

MAX_TP_SIZE = 256

_MAX_TOKENS = 1 << 24
"""A million-token context times sixteen; a key carries every token id."""

_BLOCKS = 1024
_BLOCK_SIZE = 16

Mode = Literal["gpu", "cpu"]
"""Where the KV pools lie."""

Transport = Literal["shm", "inline", "handle"]
"""The way that bytes take."""


class TransferChoice(enum.Enum):
    """Which transfer mode to ask the server for."""

    AUTO = "auto"
    LMCACHE_DRIVEN = "lmcache_driven"
    ENGINE_DRIVEN = "engine_driven"


def default_spec(num_blocks: int | None = None, block_size: int | None = None) -> str:
    """Return the text of the shape spec of a run that is given none."""
    return f"(2,{num_blocks or _BLOCKS},{block_size or _BLOCK_SIZE},8,128):float16:32"


_IN_THE_SPEC = NotReplayed("the line has the whole shape spec")

ENGINE = Table(
    "Engine",
    options=(
        Option(
            name="--mode",
            field="mode",
            kind=Choice(get_args(Mode)),
            default="gpu",
            default_text="gpu; cpu with --embedded",
            help="Where the KV pools lie.",
            replay=Replayed(place=1, always=True),
        ),
        Option(
            name="--cuda-ipc",
            field="cuda_ipc",
            kind=Choice(get_args(CudaIpc)),
            default="torch",
            help="How a server gets at GPU memory: as torch shares it, or by the driver's handle.",
            replay=Replayed(place=21),
        ),
        Option(
            name="--transfer-mode",
            field="transfer",
            kind=Choice(tuple(choice.value for choice in TransferChoice)),
            default=TransferChoice.AUTO,
            report_key="transfer_mode",
            help="Who copies the KV pages.",
            replay=Replayed(place=7, always=True),
        ),
        Option(
            name="--require-transport",
            field="require_transport",
            kind=Choice(get_args(Transport)),
            default="",
            help="Fail unless the bytes take this way.",
            replay=Replayed(place=20),
        ),
        Option(
            name="--kvcache-shape-spec",
            field="spec",
            kind=Text("SPEC"),
            default_text=default_spec(),
            text_of=lambda spec: str(spec.text),
            help="(kv_size,NB,BS,NH,HS):dtype:layers[;...]",
            replay=Replayed(place=3, always=True),
        ),
        Option(
            name="--num-blocks",
            kind=Whole(1, 2**31 - 1),
            default_text=str(_BLOCKS),
            help="NB of the default shape spec; a given spec wins.",
            replay=_IN_THE_SPEC,
        ),
        Option(
            name="--block-size",
            kind=Whole(1, 2**31 - 1),
            default_text=str(_BLOCK_SIZE),
            help="BS of the default shape spec; a given spec wins.",
            replay=_IN_THE_SPEC,
        ),
        Option(
            name="--num-tokens",
            field="num_tokens",
            given_field="num_tokens_given",
            kind=Whole(1, _MAX_TOKENS),
            default=512,
            default_text="512, or one chunk of the server if that is more",
            help="Tokens of a sequence; whole chunks are cached.",
            replay=Replayed(place=4, always=True),
        ),
        Option(
            name="--tp-size",
            field="tp_size",
            kind=Whole(1, MAX_TP_SIZE),
            default=1,
            help="Tensor-parallel ranks: workers with a pool and a connection each.",
            replay=Replayed(place=6, always=True),
        ),
        Option(
            name="--use-mla",
            kind=Flag(),
            help="Insist on MLA: one KV shared by all ranks (every kv_size must be 1).",
            replay=_IN_THE_SPEC,
        ),
        Option(
            name="--model-name",
            field="model_name",
            kind=Text("NAME", any_script=True),
            default="bench-server",
            help="Model name in the cache keys.",
            replay=Replayed(place=60),
        ),
        Option(
            name="--cache-salt",
            field="cache_salt",
            kind=Text("SALT", any_script=True),
            default="",
            help="Tenant salt in the cache keys.",
            replay=Replayed(place=71),
        ),
        Option(
            name="--seed",
            field="seed",
            kind=Whole(0, 2**63 - 1),
            default_text="drawn, and printed",
            help="Seed of tokens and content.",
            replay=Replayed(place=2, always=True),
        ),
    ),
)
