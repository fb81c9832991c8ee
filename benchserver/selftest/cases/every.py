"""All runs, in the order in which they are made."""

from __future__ import annotations

from benchserver.selftest.case import Case
from benchserver.selftest.cases.controls import CONTROLS, HARMLESS
from benchserver.selftest.cases.lookups import LEAKS, LOOKUPS
from benchserver.selftest.cases.outside import HTTP, TIERS
from benchserver.selftest.cases.replies import LIVENESS, PLANS, REPLIES
from benchserver.selftest.cases.transfers import DELIVERIES, STORES

CASES: tuple[Case, ...] = (
    *CONTROLS,
    *HARMLESS,
    *DELIVERIES,
    *STORES,
    *LOOKUPS,
    *LEAKS,
    *REPLIES,
    *PLANS,
    *HTTP,
    *TIERS,
    *LIVENESS,
)
