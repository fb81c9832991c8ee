"""The operations by name, and which of them move data."""

from __future__ import annotations

from protocol.ops import MOVING, Op


def test_an_operation_is_named_as_on_the_wire() -> None:
    assert {op.value for op in Op} >= {"store", "retrieve", "lookup", "ping", "noop"}
    assert Op("register_kv_cache_engine_driven_context") is Op.REGISTER_ENGINE_DRIVEN
    assert all(op.value == op.value.lower() for op in Op)


def test_what_moves_data() -> None:
    assert {op.value for op in MOVING} == {
        "store",
        "retrieve",
        "commit_store",
        "prepare_retrieve",
    }
