"""When an instance has been silent for too long."""

from __future__ import annotations

from benchserver.clock import NS_PER_S
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.liveness import Liveness, ReapTimeouts


def test_liveness_is_shorter_after_a_ping() -> None:
    timeouts = ReapTimeouts(pinged_ns=5, silent_ns=9)
    silent, pinged = Liveness(last_seen_ns=0), Liveness(last_seen_ns=0, pinged=True)
    assert [pinged.is_stale(t, timeouts) for t in (5, 6)] == [False, True]
    assert [silent.is_stale(t, timeouts) for t in (9, 10)] == [False, True]


def test_without_a_limit_nobody_is_given_up() -> None:
    for pinged in (False, True):
        liveness = Liveness(last_seen_ns=0, pinged=pinged)
        assert not liveness.is_stale(10**18, ReapTimeouts(pinged_ns=0))


def test_the_default_timeouts_are_those_of_the_real_server() -> None:
    assert ReapTimeouts() == ReapTimeouts(pinged_ns=120 * NS_PER_S, silent_ns=3600 * NS_PER_S)
    config = ServerConfig(l1_bytes=1 << 20)
    assert config.worker_reap_timeout_s == 120
    assert config.worker_registration_grace_s == 3600
