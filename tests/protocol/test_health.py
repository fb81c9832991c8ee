"""What documents say of a server's health; the first is what a real 0.5.6 said of itself."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.health import NOTHING_SAID, Health, read_health

WELL: dict[str, Any] = {"is_healthy": True, "thread_alive": True}
DEAD: dict[str, Any] = {"is_healthy": False, "thread_alive": False}


def real(eviction: dict[str, Any], healthy: bool) -> dict[str, Any]:
    """Return /status of 0.5.6 with IsolatedLRU, except what says nothing about health."""
    manager = {"is_healthy": True, "total_object_count": 64}
    return {
        "is_healthy": healthy,
        "engine_type": "MPCacheServer",
        "storage_manager": {
            "is_healthy": healthy,
            "l1_managers": {"_default": manager},
            "store_controllers": {"_default": WELL},
            "l1_eviction_controllers": {"_default": eviction},
            "prefetch_controller": WELL,
            "l2_eviction_controller": {**WELL, "adapters": []},
            "l2_adapters": [],
            "l1_manager": manager,
            "store_controller": WELL,
            "l1_eviction_controller": eviction,
        },
        "worker_liveness": {"enabled": True, "reap_timeout_seconds": 120.0},
        "cache_context_meta": {},
    }


def test_a_real_server_that_is_well() -> None:
    assert read_health(real(WELL, True)) == Health(said=11, bad=())


def test_a_real_server_whose_eviction_thread_is_dead() -> None:
    """Named is the part that is not well, once; not those that are ill because of it."""
    health = read_health(real(DEAD, False))
    part = "storage_manager.l1_eviction_controller (is_healthy false, thread_alive false)"
    assert health == Health(said=11, bad=(part,))


@pytest.mark.parametrize(
    ("document", "bad"),
    [
        ({"is_healthy": False}, ("the server (is_healthy false)",)),
        ({"a": {"is_healthy": True, "thread_alive": False}}, ("a (thread_alive false)",)),
        (
            {"is_healthy": True, "l2_adapters": [WELL, {"event_loop_alive": False}]},
            ("l2_adapters.1 (event_loop_alive false)",),
        ),
        # Two causes, and what they make ill.
        (
            {"is_healthy": False, "x": {"is_healthy": False, "y": DEAD}, "z": {"is_healthy": None}},
            ("x.y (is_healthy false, thread_alive false)", "z (is_healthy None)"),
        ),
        # Several L1 have no singular beside them.
        ({"l1_managers": {"a": WELL, "b": DEAD}},
         ("l1_managers.b (is_healthy false, thread_alive false)",)),
        ({"is_healthy": 1}, ("the server (is_healthy 1)",)),
        ({"is_healthy": "yes"}, ("the server (is_healthy 'yes')",)),
        ({"\u00fc\n": {"is_healthy": False}}, ("\\xfc\\n (is_healthy false)",)),
    ],
)  # fmt: skip
def test_what_is_not_well(document: Any, bad: tuple[str, ...]) -> None:
    assert read_health(document).bad == bad


@pytest.mark.parametrize("document", [None, [], {}, "is_healthy", {"keep_alive": 75}, {"a": [[1]]}])
def test_documents_that_say_nothing(document: Any) -> None:
    assert read_health(document) == NOTHING_SAID


def test_how_much_is_kept_and_how_deep_is_looked() -> None:
    assert len(read_health([{"is_healthy": False}] * 5000).bad) == 64
    deep: Any = {"is_healthy": False}
    for _ in range(900):
        deep = {"a": deep}
    (part,) = read_health(deep).bad
    assert part.endswith("a.a (is_healthy false)")
