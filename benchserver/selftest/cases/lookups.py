"""Faults of LOOKUP, and of the locks, sessions and registrations that are left."""

from __future__ import annotations

from benchserver.selftest.case import SHM, Case
from benchserver.selftest.cases.sharing import ONE, SOON

LOOKUPS = (
    Case(
        switch="miscount_up",
        checks=("warm_lookup",),
        words=("warm LOOKUP hit 3/2 chunks, expected 2/2",),
    ),
    Case(
        switch="miscount_down",
        checks=("warm_lookup", "visibility"),
        words=("warm LOOKUP hit 1/2 chunks, expected 2/2",),
        options=SOON,
    ),
    Case(
        switch="miscount_cold",
        checks=("cold_lookup",),
        words=("cold LOOKUP hit 1/2 chunks, expected 0/2",),
    ),
    Case(
        switch="hole_counted",
        checks=("retrieve",),
        words=("RETRIEVE answered False",),
        options=("--num-tokens", "768"),
    ),
    Case(
        switch="ignored_salt",
        checks=("isolation",),
        words=("LOOKUP under another cache salt hit 2/2 chunks, expected 0/2",),
    ),
    Case(
        switch="ignored_model",
        checks=("isolation",),
        words=("LOOKUP under another model name hit 2/2 chunks, expected 0/2",),
    ),
    Case(
        switch="ignored_end",
        checks=("bounds",),
        words=("ends before the stored end hit 2/2 chunks, expected 1/2",),
    ),
    Case(
        switch="ignored_prefix",
        checks=("content",),
        words=("seq=0", "CHECKSUM MISMATCH, leg destination", "the page of seq 0 chunk"),
    ),
    Case(
        switch="ignored_prefix",
        checks=("content",),
        words=("seq=1, equal chunks", "CHECKSUM MISMATCH, leg destination"),
        options=("--start", "1", "--end", "3"),
        note="from sequence 1 on",
    ),
    Case(
        switch="slow_prefetch:3s",
        checks=("cold_lookup",),
        words=("the prefetch was still running after 1 s",),
        options=ONE,
    ),
    Case(
        switch="stuck_prefetch",
        checks=("cold_lookup",),
        words=("the prefetch was still running after 1 s",),
        options=ONE,
    ),
)

GROWING = (
    *("--end", "100000", "--duration", "10", "--growth-every", "0.1"),
    *("--growth-bound", "server memory=1MB/h"),
)
"""A soak of ten seconds: what is looked at so often is judged as soon."""

SOON_FULL = ("--l1-size-gb", "0.005")
"""So that L1, which fills up meanwhile, does not explain what grows."""

LEAKS = (
    Case(
        switch="leak_lock",
        checks=("residue",),
        words=("read-locked objects more than before the run",),
    ),
    Case(
        switch="leak_lock",
        checks=("residue",),
        words=("read-locked objects more than before the run",),
        transport=SHM,
    ),
    Case(switch="leak_session", checks=("residue",), words=("sessions more than before the run",)),
    Case(
        switch="leak_registration",
        checks=("residue",),
        words=("the server still holds registrations of instance",),
    ),
    Case(
        switch="leak_registration",
        checks=("residue",),
        words=("the server still holds registrations of instance",),
        transport=SHM,
    ),
    Case(
        switch="leak_read",
        checks=("residue",),
        words=("read-locked objects more than before the run",),
        transport=SHM,
    ),
    Case(
        switch="leak_memory",
        checks=("growth",),
        words=("server memory grows by",),
        options=GROWING,
        serve=SOON_FULL,
    ),
    Case(
        switch="leak_descriptor",
        checks=("growth",),
        words=("server descriptors grow by",),
        options=GROWING,
        serve=SOON_FULL,
    ),
)
