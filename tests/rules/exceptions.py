"""What may break a rule, and why: for good, or because nobody has mended it yet.

An entry that breaks its rule no longer fails tests/test_rules.py, so these lists only shrink.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.rules.sizes import Measured

USED_ELSEWHERE: Mapping[str, str] = {
    "benchserver/cli/clickoptions.py::TableOption.resolve_envvar_value": "click calls it",
    "benchserver/cli/group.py::OneLineCommand.format_options": "click calls it",
    "benchserver/cli/group.py::OneLineGroup.format_options": "click calls it",
    "benchserver/cli/types.py::StrictFloat.convert": "click calls it",
    "benchserver/cli/types.py::StrictInt.convert": "click calls it",
    "benchserver/cli/types.py::Text.convert": "click calls it",
    "benchserver/client/scripted.py::ScriptedConnector": "for tests, and for authors",
    "benchserver/client/scripted.py::in_turn": "for tests, and for authors",
    "benchserver/clock.py::VirtualClock": "the clock of tests, beside the real one",
    "benchserver/clock.py::VirtualClock.move_ns": "tests move it by hand",
    "benchserver/clock.py::VirtualClock.until_asleep": "tests move it by hand",
    "benchserver/refserver/tiers/backing.py::BackingTotals.failed_reads": "/metrics shows all",
    "benchserver/refserver/tiers/backing.py::BackingTotals.failed_writes": "/metrics shows all",
    "benchserver/refserver/tiers/backing.py::BackingTotals.promoted_chunks": "/metrics shows all",
    "benchserver/refserver/tiers/backing.py::BackingTotals.written_objects": "/metrics shows all",
    "benchserver/metrics/document.py::RunCollector.collect": "prometheus_client calls it",
    "benchserver/refserver/front/metrics.py::ServerCollector.collect": "prometheus_client calls it",
    "benchserver/stats/limit.py::Measurement.loop_cores": "a load's JSON shows all fields",
    "benchserver/stats/limit.py::Measurement.process_cpus": "a load's JSON shows all fields",
    "benchserver/refserver/tiers/tier.py::TierStats.written_bytes": "/status shows all fields",
    "protocol/session.py::ClientSession.pending_count": "tests ask what calls leave behind",
}
"""Public names that nothing in the product uses by name."""

LOOPS: Mapping[str, str] = {
    "tests/mitm/__main__.py": "a program of its own",
    "tests/mooncake/holder.py": "a program of its own",
    "tests/tlsstage.py": "a loop in a thread of its own, beside tests that block",
    "tests/real/goldensessions.py": "a part of scripts/record_golden, which a signal must end",
    "tests/benchserver/refserver/tiers/fs/killed_writer.py": "a program that tests kill",
}
"""Files in tests/ that start event loops by asyncio.run."""

# What breaks a rule today, and is to be mended: nothing.

LONG_FUNCTIONS: Measured = {}
LONG_MODULES: Measured = {}
WIDE_INTERFACES: Measured = {}
RINGS: list[str] = []
ROOM_RINGS: list[str] = []
UNTESTED: list[str] = []
DEAD_NAMES: list[str] = []
ASKED_KINDS: list[str] = []
LOOPS_STARTED: Measured = {}
WRONG_PLACES: list[str] = []
