"""Ranks, names and transports that cannot work are refused before any traffic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchserver.config.engine import Engine, with_whole_chunk
from benchserver.config.run import RunConfig, check_config
from benchserver.errors import UsageError
from benchserver.options.engine import TransferChoice

MakeConfig = Callable[..., RunConfig]
MakeEngine = Callable[..., Engine]


TWO_GROUPS = "(2,64,16,1,8):float16:1;(1,64,16,1,8):float16:1"


@pytest.mark.parametrize(
    ("spec", "tp_size", "mla", "world", "writers", "readers"),
    [
        ("(2,64,16,1,8):float16:1", 1, False, 1, (0,), 1),
        ("(2,64,16,1,8):float16:1", 3, False, 3, (0, 1, 2), 1),
        ("(1,64,16,1,8):float16:1", 1, True, 1, (0,), 1),
        ("(1,64,16,1,8):float16:1", 4, True, 1, (0,), 4),
        (TWO_GROUPS, 2, False, 2, (0, 1), 1),
    ],
)
def test_ranks_that_share_one_kv(
    make_engine: MakeEngine,
    spec: str,
    tp_size: int,
    mla: bool,
    world: int,
    writers: tuple[int, ...],
    readers: int,
) -> None:
    engine = make_engine(spec=spec, tp_size=tp_size)
    assert engine.is_mla is mla
    assert engine.world_size == world
    assert engine.writers == writers
    assert engine.readers_per_object == readers


@pytest.mark.parametrize(
    ("transfer", "transport"),
    [
        (TransferChoice.LMCACHE_DRIVEN, "shm"),
        (TransferChoice.LMCACHE_DRIVEN, "inline"),
        (TransferChoice.ENGINE_DRIVEN, "handle"),
    ],
)
def test_a_transport_that_the_mode_never_takes(
    make_config: MakeConfig, transfer: TransferChoice, transport: str
) -> None:
    config = make_config(transfer=transfer, require_transport=transport)
    with pytest.raises(UsageError, match=f"--require-transport {transport} cannot come with"):
        check_config(config)


@pytest.mark.parametrize("name", ["model_name", "cache_salt"])
def test_names_that_are_no_text(make_config: MakeConfig, name: str) -> None:
    with pytest.raises(UsageError, match="must be valid Unicode"):
        check_config(make_config(**{name: "\udcff"}))


@pytest.mark.parametrize(
    ("given_number", "chunk", "tokens"),
    [(False, 256, 512), (False, 512, 512), (False, 1024, 1024), (True, 1024, 512)],
)
def test_a_chunk_larger_than_the_default_is_taken_whole(
    make_engine: MakeEngine, given_number: bool, chunk: int, tokens: int
) -> None:
    engine = with_whole_chunk(make_engine(num_tokens_given=given_number), chunk)
    assert engine.num_tokens == tokens
    assert engine.num_tokens_given is (given_number or tokens != 512)


def test_a_block_larger_than_the_default_waits_for_the_servers_chunk(
    make_config: MakeConfig,
) -> None:
    spec = "(2,64,1024,1,8):float16:1"
    check_config(make_config(spec=spec, num_tokens_given=False))
    with pytest.raises(UsageError, match="--num-tokens 512 is less than one block of 1024"):
        check_config(make_config(spec=spec))


@pytest.mark.parametrize("bad", ["\x1b", "\n", "\x00", "\x7f", "\x85", "\u2028"])
@pytest.mark.parametrize(
    ("field", "option"), [("model_name", "--model-name"), ("cache_salt", "--cache-salt")]
)
def test_names_that_would_leave_their_line(
    make_config: MakeConfig, field: str, option: str, bad: str
) -> None:
    with pytest.raises(UsageError, match=f"{option}: a .* must ") as caught:
        check_config(make_config(**{field: f"a{bad}b"}))
    assert str(caught.value).isprintable()
    check_config(make_config(**{field: "модель ü 模型 می‌خواهم"}))
