"""A result's verdict and exit code, and whose evidence it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchserver.check.run import RUN, new_ledger
from benchserver.check.verdict import Verdict, failed, unproven
from benchserver.config.run import RunConfig
from benchserver.result import RunResult, ServerFacts, result_of_no_run
from benchserver.scenarios.baseline.checks import CHECKS

GoodResult = Callable[..., RunResult]


def test_only_a_run_that_proved_everything_exits_with_0(good_result: GoodResult) -> None:
    assert good_result().verdict is Verdict.VALID
    assert good_result().exit_code == 0
    assert good_result(ledger=new_ledger(CHECKS)).exit_code == 1
    for check in good_result().ledger.tallies:
        for make, verdict in ((failed, Verdict.INVALID), (unproven, Verdict.UNKNOWN)):
            result = good_result()
            result.ledger.add([make(check, "x")])
            assert result.verdict is verdict
            assert result.exit_code == 1


@pytest.mark.parametrize(
    ("version", "embedded"),
    [("0.5.6-embedded", True), ("0.5.6-g3e11e108", False), ("", False)],
)
def test_the_embedded_server_is_told_by_its_version(version: str, embedded: bool) -> None:
    facts = ServerFacts(rpc_url="tcp://x:1", http_url="http://x:2", version=version)
    assert facts.embedded is embedded


def test_a_run_that_could_not_begin_is_a_failure(make_config: Callable[..., RunConfig]) -> None:
    result = result_of_no_run(
        make_config(end=5), new_ledger(CHECKS), "no device", interrupted=False
    )
    assert (result.verdict, result.exit_code) == (Verdict.INVALID, 1)
    assert result.ledger.tallies[RUN].texts == ["no device"]
    assert (result.config.own.units, result.server.rpc_url) == (5, "tcp://localhost:5555")
    assert not result.interrupted
