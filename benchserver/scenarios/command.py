"""A scenario as a command of `bench-server`: its options, and how it is made of their values.

Imports nothing slow: the command line knows all scenarios before it runs one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from benchserver.options.option import Tables

if TYPE_CHECKING:
    from benchserver.config.engine import Engine
    from benchserver.config.run import Part
    from benchserver.line import Wording
    from benchserver.stage.scenario import Scenario

P = TypeVar("P", bound="Part")


def _as_asked(part: Part, engine: Engine) -> Engine:
    return engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[P]):
    """`bench-server NAME`; "" is the one without a name.

    `tables` are all of its options; with those of `options.engine` it is given workers.  `part`
    loads the frozen dataclass of what it alone is asked, whose fields are fields of its rows.
    `engine` returns the engine that it plays, of the one that options describe; UsageError if there
    is none.  `scenario` makes the scenario, and `wording` says how reports tell of it; both may be
    slow.
    """

    name: str
    help: str
    tables: Tables
    part: Callable[[], type[P]]
    scenario: Callable[[P], Scenario]
    engine: Callable[[P, Engine], Engine] = _as_asked
    wording: Callable[[], Wording]
