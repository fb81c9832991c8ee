"""Modules that have no test file of their own name, and why; tests/test_rules.py reads this.

A module benchserver/a/b.py has its tests in tests/benchserver/a/test_b.py.  One that stands here
has none: it holds nothing that could be right or wrong by itself, or its tests need more around it.
"""

from __future__ import annotations

UNMIRRORED: dict[str, str] = {
    "benchserver/client/connection.py": "an interface and its errors: connectionsuite.py, over all",
    "protocol/errors.py": "three names: tested wherever they are raised",
    "protocol/messages.py": "values without methods: test_codec and test_session compare them",
    **dict.fromkeys(
        (
            "benchserver/breakeven/options.py",
            "benchserver/compare/options.py",
            "benchserver/options/engine.py",
            "benchserver/options/output.py",
            "benchserver/options/target.py",
            "benchserver/options/watch.py",
            "benchserver/page/options.py",
            "benchserver/refserver/options.py",
            "benchserver/scenarios/baseline/options.py",
            "benchserver/scenarios/load/options.py",
            "benchserver/scenarios/ping/options.py",
            "benchserver/selftest/options.py",
            "benchserver/sweep/options.py",
        ),
        "rows of options: tests/benchserver/options/test_tables.py reads them all",
    ),
    "benchserver/refserver/front/badrequest.py": "an error: tested where it is raised, in front/",
    "benchserver/refserver/store/counters.py": "values: tested with the cache that counts",
    "benchserver/refserver/store/slots.py": "values: tested with the cache that changes them",
    "benchserver/refserver/defaults.py": "values: shown by --help, compared in test_config.py",
    "benchserver/refserver/gpu/work.py": "needs a stream: tested in gpu/test_instance.py",
    "benchserver/refserver/instance.py": "an interface: tested where it is implemented, in ops/",
    "benchserver/line.py": "values alone: tested where lines are made, in report/ and scenarios/",
    **dict.fromkeys(
        (
            "benchserver/selftest/cases/controls.py",
            "benchserver/selftest/cases/lookups.py",
            "benchserver/selftest/cases/outside.py",
            "benchserver/selftest/cases/replies.py",
            "benchserver/selftest/cases/sharing.py",
            "benchserver/selftest/cases/transfers.py",
        ),
        "data: tests/benchserver/selftest/cases/test_every.py tests all cases together",
    ),
    "benchserver/scenarios/ping/config.py": "a value: ping/test_scenario.py plays by it",
    "benchserver/scenarios/ping/records.py": "values: test_checks.py judges them",
    "benchserver/stage/scenario.py": "an interface: tests/benchserver/stage/test_run.py plays one",
    "benchserver/stage/opened.py": "a value that stage/run fills: tested by what it leaves behind",
    **dict.fromkeys(
        (
            "benchserver/scenarios/command.py",
            "benchserver/scenarios/baseline/command.py",
            "benchserver/scenarios/load/command.py",
            "benchserver/scenarios/ping/command.py",
        ),
        "what the command line makes a command of: tests/benchserver/cli runs it",
    ),
    "benchserver/reporter.py": "an interface: tested where it is implemented, in report/",
    "benchserver/refserver/tiers/config.py": "values: each scheme's is made in tiers/test_url.py",
    "benchserver/refserver/faults/table_transfers.py": "rows: faults/test_table.py reads them all",
}
"""Place -> the reason, in a line."""
