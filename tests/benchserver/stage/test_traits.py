"""What a run asks of its scenario before it allocates anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchserver.config.engine import Engine
from benchserver.errors import UsageError
from benchserver.geometry import Geometry
from protocol.httpapi import ServerStatus
from tests.benchserver.stage.runs import MakeConfig
from tests.benchserver.stage.scripted import NO_HTTP, SPEC, WELL, Play, Server, run_of, two_acts

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.parametrize(
    ("status", "known"),
    [(replace(WELL, l1_bytes=1 << 30), 1 << 30), (NO_HTTP, 0)],
    ids=["L1 is known", "L1 is not known"],
)
@pytest.mark.asyncio
async def test_requests_that_cannot_be_made_are_refused_before_anything_is_allocated(
    make_config: MakeConfig, status: ServerStatus | Exception, known: int
) -> None:
    server, told = Server(status=status), list[int]()

    def fits(engine: Engine, geometry: Geometry, l1_bytes: int) -> None:
        assert geometry.spec == engine.spec
        told.append(l1_bytes)
        raise UsageError("no such request")

    run, _ = run_of(make_config(spec=SPEC), Play(two_acts, fits=fits), server)
    with pytest.raises(UsageError, match="no such request"):
        await run.execute()
    assert told == [known]
    assert not server.registered
    assert len(server.connections) == 1
