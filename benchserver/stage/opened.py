"""What a run has opened, as far as it came: so much has to be ended, whatever ends the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchserver.client.http import HttpApi
from benchserver.client.lookups import LookupDesk
from benchserver.stage.condition import Condition
from benchserver.stage.connections import Connections
from benchserver.tasks import Finishing

if TYPE_CHECKING:
    from benchserver.stage.workforce import Workforce


@dataclass(slots=True, kw_only=True)
class Opened:
    """Filled in by the run, in this order; None: it did not come so far."""

    connections: Connections
    finishing: Finishing = field(default_factory=Finishing)
    http: HttpApi | None = None
    condition: Condition | None = None
    workforce: Workforce | None = None
    desks: list[LookupDesk] = field(default_factory=list)
    """One a client."""

    @property
    def instances(self) -> frozenset[int]:
        """Return the instance ids of all workers."""
        return frozenset() if self.workforce is None else self.workforce.instances
