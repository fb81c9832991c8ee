"""Holm's correction, beside an example reckoned by hand."""

from __future__ import annotations

import pytest

from benchserver.compare.many import holm


def test_an_example_by_hand() -> None:
    # 0.01 x 4; 0.02 x 3 = 0.06; 0.03 x 2 = 0.06; 0.04 x 1 is below the one before, and stays there.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_one_alone_is_not_corrected_and_none_is_above_1() -> None:
    assert holm([0.04]) == [0.04]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
