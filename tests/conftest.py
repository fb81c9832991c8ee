"""What all tests share."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what the suite itself is made of.

    Many tests collect garbage to see what they left open; with some 5,000 tests loaded, each such
    collection would walk through all of them.
    """
    gc.collect()
    gc.freeze()
