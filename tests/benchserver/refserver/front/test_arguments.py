"""Every release's arguments, in the order in which the handlers take them."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.refserver.config import spoken_releases
from benchserver.refserver.front.rpc import in_order_of_handlers
from benchserver.refserver.refusal import RefusalError
from protocol.dialects import V056, dialect_of
from protocol.messages import Incoming
from protocol.ops import Op

SPOKEN = spoken_releases()


# The order of arguments


def arguments(release: str, op: Op, *args: Any) -> tuple[Any, ...]:
    dialect = dialect_of(release)
    return in_order_of_handlers(dialect, Incoming(uid=b"", op=op, args=args, op_frame=b""))


@pytest.mark.parametrize(
    ("release", "op", "args", "handed"),
    [
        ("0.5.6", Op.CLEAR, (False,), (False,)),
        ("0.5.5", Op.CLEAR, (), (True,)),
        ("0.4.6", Op.CLEAR, (), (True,)),
        ("0.5.0", Op.PING, (7,), (7,)),
        ("0.4.7", Op.PING, (), (None,)),
        ("0.4.7", Op.REGISTER_KV_CACHE, (1, [2], "m", 1, "e", {"h": 1}, [{"g": 1}]), None),
        (
            "0.4.6",
            Op.REGISTER_KV_CACHE,
            (1, [2], "m", 1, "e", {"h": 1}),
            (1, [2], "m", 1, "e", {"h": 1}, []),
        ),
        (
            "0.4.4",
            Op.REGISTER_KV_CACHE,
            (1, [2], "m", 1, {"h": 1}),
            (1, [2], "m", 1, "vllm", {"h": 1}, []),
        ),
        ("0.4.1", Op.REGISTER_KV_CACHE, (1, [2], "m", 1), (1, [2], "m", 1, "vllm", {}, [])),
        ("0.5.5", Op.QUERY_PREFETCH_LOOKUP_HITS, ("r",), ("r",)),
        ("0.5.7rc2", Op.FREE_LOOKUP_LOCKS, ("key", 2, []), ("key", 2)),
        ("0.5.7rc2", Op.PREPARE_STORE, ("key", 1, []), ("key", 1)),
    ],
)
def test_arguments_as_the_handlers_take_them(
    release: str, op: Op, args: tuple[Any, ...], handed: tuple[Any, ...] | None
) -> None:
    assert arguments(release, op, *args) == (args if handed is None else handed)


@pytest.mark.parametrize(
    ("op", "args", "name"),
    [
        (Op.FREE_LOOKUP_LOCKS, ("key", 2, [[0, 1]]), "extra_ranges"),
        (Op.PREPARE_STORE, ("key", 1, [[0]]), "skipped_chunks"),
    ],
)
def test_what_only_more_kv_groups_need_is_refused(op: Op, args: tuple[Any, ...], name: str) -> None:
    with pytest.raises(RefusalError, match=f"^{op.value}: {name} is not served$"):
        arguments("0.5.7rc2", op, *args)


@pytest.mark.parametrize("release", SPOKEN)
def test_every_row_gives_a_handler_its_arguments(release: str) -> None:
    """Each value is handed over under its own name, or left out where the handlers have none."""
    dialect = dialect_of(release)
    for op, row in dialect.ops.items():
        if op not in V056.ops:
            continue
        sent = [field.name for field in row.payload]
        values = [() if name in ("extra_ranges", "skipped_chunks") else name for name in sent]
        request = Incoming(uid=b"", op=op, args=tuple(values), op_frame=b"")
        handed = in_order_of_handlers(dialect, request)
        names = [field.name for field in V056.ops[op].payload]
        pairs = zip(names, handed, strict=True)
        assert all(value == name for name, value in pairs if name in sent), op
