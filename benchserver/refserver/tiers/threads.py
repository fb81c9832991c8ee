"""The threads in which a tier moves bytes.

Their number is the choice of their owner: threads that wait for a disk are not bound by cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from benchserver.refserver.copier import Copier
from benchserver.refserver.tiers.tier import TierError

P = ParamSpec("P")
T = TypeVar("T")


class TierThreads:
    """Runs functions in threads of its own."""

    def __init__(self, count: int, name: str) -> None:
        self._copier = Copier(count, name=name)
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread and return its result; raises TierError after `close`.

        A cancelled call returns when the function has ended or will never begin, however often
        it is cancelled: until then, the memory that it works on is in use.
        """
        if self._closed:
            raise TierError("the tier is closed")
        return await self._copier.run(function, *args, **kwargs)

    async def close(self) -> None:
        """Wait for the functions that run, and end the threads."""
        self._closed = True
        await self._copier.until_idle()
        self._copier.close()
