"""The transport that was required is the one that was taken, on every rank."""

from __future__ import annotations

import pytest

from benchserver.check.transport import TRANSPORT, judge_transport
from benchserver.check.verdict import Verdict, failed, passed

TRANSPORTS = ("shm", "inline", "handle")


@pytest.mark.parametrize("taken", TRANSPORTS)
@pytest.mark.parametrize("required", ["", *TRANSPORTS])
def test_every_pair(required: str, taken: str) -> None:
    finding = judge_transport(required, {taken})
    if required in ("", taken):
        assert finding == passed(TRANSPORT)
    else:
        assert finding.verdict is Verdict.INVALID
        start = f"--require-transport {required}, but {taken} was negotiated; "
        assert finding.text.startswith(start)


def test_the_remedy_names_the_flags_of_both_sides() -> None:
    assert judge_transport("shm", {"inline"}) == failed(
        TRANSPORT,
        "--require-transport shm, but inline was negotiated; start the server with "
        "--supported-transfer-mode auto --shm-name NAME and use --transfer-mode engine_driven",
    )
    assert "without --shm-name" in judge_transport("inline", {"shm"}).text
    assert "use --transfer-mode lmcache_driven" in judge_transport("handle", {"shm"}).text


@pytest.mark.parametrize("required", ["", "shm"])
def test_ranks_that_differ(required: str) -> None:
    assert judge_transport(required, {"shm", "inline"}) == failed(
        TRANSPORT, "ranks took different transports: ['inline', 'shm']"
    )


def test_nothing_was_negotiated() -> None:
    assert "but none was negotiated" in judge_transport("shm", set()).text
