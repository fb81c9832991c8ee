"""A generation of the wire as a value: its payloads by name, and what follows from its fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.dialect import OpRow
from protocol.dialects import V047, V050, V054, V055, V056
from protocol.errors import LocalProtocolError
from protocol.ops import Op


def test_a_payload_by_name() -> None:
    assert V056.named(Op.END_SESSION, ("r",)) == {"request_id": "r"}
    assert V056.named(Op.LOOKUP, ("k", 2)) == {"key": "k", "tp_size": 2}
    with pytest.raises(ValueError, match="argument"):
        V056.named(Op.LOOKUP, ("k",))


def test_the_arguments_that_a_generation_sends_in_its_order() -> None:
    values = {"tp_size": 2, "key": "k", "force": True, "instance_id": 7}
    assert V056.arguments(Op.LOOKUP, values) == ("k", 2)
    assert V056.arguments(Op.PING, values) == (7,)
    assert V056.arguments(Op.CLEAR, values) == (True,)
    assert V055.arguments(Op.CLEAR, values) == ()


def test_an_argument_or_an_operation_that_is_not_there() -> None:
    with pytest.raises(LocalProtocolError) as missing:
        V056.arguments(Op.LOOKUP, {"key": "k"})
    assert str(missing.value) == "lookup in 0.5.6 wants tp_size"
    with pytest.raises(LocalProtocolError) as unknown:
        V047.arguments(Op.WAIT_PREFETCH_STATUS, {})
    assert "wait_prefetch_status in 0.4.7" in str(unknown.value)


def test_what_follows_from_the_fields() -> None:
    assert V055.keys_name_readers
    assert not V054.keys_name_readers
    assert V050.pings_name_instances
    assert not V047.pings_name_instances
    without_ping = replace(V056, ops={Op.NOOP: OpRow(id=1, payload=(), result=None)})
    assert not without_ping.pings_name_instances
