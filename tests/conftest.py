"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Let the processes that tests start compile our modules once, not every time.

    Where PYTHONDONTWRITEBYTECODE is set, each of some 500 would take 0.15 s longer for it.  What
    they write lies in a folder that goes with the session, the source tree stays as it is.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) and "PYTHONPYCACHEPREFIX" not in os.environ:
        folder = tempfile.mkdtemp(prefix="bench-server-tests-")
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what the suite itself is made of.

    Many tests collect garbage to see what they left open; with some 5,000 tests loaded, each such
    collection would walk through all of them.
    """
    gc.collect()
    gc.freeze()
