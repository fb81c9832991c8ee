"""`chat`: users whose conversations grow from turn to turn, with time to think in between.

A turn asks with all that was said before, so that an engine finds all but its end in a cache.
Users take their turns in rounds; in the first round conversations have different lengths to go,
so that not all begin anew at once.  What a turn is follows from its number: nothing is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from benchserver.load.request import Part, Request
from benchserver.load.tokens import Draws
from benchserver.load.workloads.prefixtree import shares
from benchserver.load.workloads.words import read_words
from benchserver.load.workloads.workload import Terms

MAX_TURNS = 1000
MAX_USERS = 1_000_000
MAX_THINK_S = 3600.0

_USERS_PER_REQUEST = 2
"""While half of the users think, the others keep all requests in flight busy."""

_SECOND_NS = 1_000_000_000
_FORM = "chat[:turns=N,users=N,system=PERCENT,think=SECS]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedChat:
    """`users` 0: as many as keep the run's requests in flight busy; `think_s`: on average."""

    turns: int
    users: int
    system: float
    think_s: float
    longest_tokens: int = 0

    @classmethod
    def parse(cls, text: str) -> AskedChat:
        """Return what was asked for; UsageError for other words."""
        words = read_words(text, form=_FORM, keys=("turns", "users", "system", "think"))
        return cls(
            turns=words.whole("turns", low=1, high=MAX_TURNS, default=8),
            users=words.whole("users", low=0, high=MAX_USERS, default=0),
            system=words.number("system", low=0, high=100, default=25.0),
            think_s=words.number("think", low=0, high=MAX_THINK_S, default=1.0),
        )

    def bind(self, terms: Terms) -> Chat:
        """Return the workload of a run."""
        return Chat(
            max_tokens=terms.num_tokens,
            system=round(terms.num_tokens * self.system / 100),
            turns=self.turns,
            users=self.users or _USERS_PER_REQUEST * terms.in_flight,
            think_s=self.think_s,
            seed=terms.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """Conversations of `turns` turns; the last one has `max_tokens` tokens, all begin alike."""

    max_tokens: int
    system: int
    turns: int
    users: int
    think_s: float
    seed: int
    count: None = None
    is_timed: bool = False

    def describe(self) -> str:
        """Return what it asks, in one line for reports."""
        return (
            f"chat: {self.users} users, conversations of {self.turns} turns that grow to "
            f"{self.max_tokens} tokens, the first {self.system} in common, {self.think_s:g} s to "
            "think on average"
        )

    def requests(self) -> Iterator[Request]:
        """Yield requests without end."""
        draws = Draws.named(self.seed, "chat")
        grown = shares(self.max_tokens - self.system, self.turns)
        for number in itertools.count():
            rounds, user = divmod(number, self.users)
            conversation, turn = self._place(user, rounds)
            said = (Part(f"chat {user} {conversation} {at}", grown[at]) for at in range(turn + 1))
            parts = (Part("chat", self.system), *said)
            think_s = -math.log(draws.share(number)) * self.think_s
            yield Request(
                number=number,
                # A short conversation may grow by nothing in a turn, but asks for something.
                parts=tuple(part for part in parts if part.count) or (Part("chat", 1),),
                after=number - self.users if rounds else None,
                think_ns=round(think_s * _SECOND_NS) if rounds else 0,
            )

    def _place(self, user: int, rounds: int) -> tuple[int, int]:
        """Return which conversation of a user a round is in, and which turn of it."""
        first = user % self.turns + 1
        if rounds < first:
            return 0, rounds
        conversation, turn = divmod(rounds - first, self.turns)
        return conversation + 1, turn
