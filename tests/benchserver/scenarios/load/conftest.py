"""Loads on stages over a script."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import pytest

from benchserver.client.scripted import ScriptedConnector
from benchserver.scenarios.load.config import LoadConfig
from benchserver.scenarios.load.scenario import Load
from benchserver.stage.book import Book
from benchserver.stage.stage import Stage
from protocol.ops import Op
from tests.benchserver.scenarios.conftest import MakeStage
from tests.benchserver.scenarios.honest import Played
from tests.benchserver.scenarios.load.made import config


@dataclass
class Loaded:
    """A load, its stage, and what stands behind it."""

    config: LoadConfig
    stage: Stage
    played: Played

    async def play(self) -> None:
        await Load(self.config).play(self.stage)


class MakeLoad(Protocol):
    """Makes a load with changes to what is asked, on a stage with changes to its engine."""

    def __call__(self, engine: dict[str, Any] | None = None, **changes: Any) -> Loaded: ...


@pytest.fixture
def make_load(make_stage: MakeStage) -> MakeLoad:
    """Return a maker of loads whose server is an honest script."""

    def make(engine: dict[str, Any] | None = None, **changes: Any) -> Loaded:
        asked = config(**changes)
        defaults = {"num_tokens": 128, "spec": "(2,128,16,1,8):float16:2"}
        played = make_stage(**{**defaults, **(engine or {})})
        pinged = ScriptedConnector({Op.PING: True}, clock=played.clock)
        played.stage.connections.reached(pinged)
        stage = replace(played.stage, book=Book(Load(asked).traits, played.told, played.clock))
        return Loaded(asked, stage, played)

    return make
