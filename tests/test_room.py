"""What a run stores, and the L1 that holds it; test_baseline_embedded.py empties a server."""

from __future__ import annotations

from tests.room import LEAST_GIB, l1_for, sequences_that_fit, stored_bytes

DEFAULT = "(2,1024,16,8,128):float16:32"
MIB = 1 << 20


def test_a_run_stores_so_much() -> None:
    assert stored_bytes(DEFAULT, tokens=512, sequences=1) == 64 * MIB
    assert stored_bytes(DEFAULT, tokens=512, sequences=20, ranks=2) == 20 * 2 * 64 * MIB


def test_an_l1_holds_what_it_is_made_for() -> None:
    option, size = l1_for(20 * 64 * MIB)
    assert option == "--l1-size-gb"
    assert sequences_that_fit(round(float(size) * 1024) * MIB, 64 * MIB) == 20
    assert l1_for(1) == ("--l1-size-gb", str(LEAST_GIB))


def test_what_does_not_fit_is_not_counted() -> None:
    assert sequences_that_fit(3 * MIB, 2 * MIB) == 1
    assert sequences_that_fit(3 * MIB, 3 * MIB) == 0
