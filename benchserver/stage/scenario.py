"""What a scenario is to the stage that it plays on.

A scenario brings what it needs, how it is judged, and its steps; `benchserver.stage.run` brings
contact, workers, audit, a clean end and the verdict.  The stage never imports a scenario: the code
that starts a run picks one and hands it over.
"""

from __future__ import annotations

from typing import Protocol

from benchserver.stage.stage import Stage
from benchserver.stage.traits import Omissions, Traits


class Scenario(Protocol):
    """One kind of work that a run does with its server."""

    @property
    def traits(self) -> Traits:
        """Return what is known of it before anything is sent."""
        ...

    def omissions(self, stage: Stage) -> Omissions:
        """Return what it will not look at on this stage; called once, before `play`.

        A check that is not named here, and finds nothing, leaves the run unproven.
        """
        ...

    async def play(self, stage: Stage) -> None:
        """Do the work, and conclude each unit of it on the stage.

        Raises FatalError where it cannot go on.  May be cancelled at any moment: what has to be
        finished all the same belongs into `stage.finishing`.
        """
        ...
