"""What all tests share."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from benchserver.cuda import mark
from benchserver.shmnames import SHM_DIR
from benchserver.tasks import cancel_and_wait


def pytest_configure(config: pytest.Config) -> None:
    """Give the processes that tests start the same surroundings, however the suite was started.

    Under nohup SIGHUP is ignored, and children inherit that: here it ends them, as on a terminal.
    Where PYTHONDONTWRITEBYTECODE is set, all of them would compile our modules again and again:
    0.15 s for each of some 500 that tests start, and 13 s for each worker of pytest-xdist, which
    rewrites the assertions of all tests.  So bytecode is kept where pytest keeps what it knows of
    the runs before; the source tree stays as it is.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) and "PYTHONPYCACHEPREFIX" not in os.environ:
        folder = _bytecode_folder(config)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder
        sys.dont_write_bytecode = False


def _bytecode_folder(config: pytest.Config) -> str:
    """Return the folder that stays from run to run; without pytest's own, one for this run."""
    if config.pluginmanager.has_plugin("cacheprovider"):
        return str(config.cache.mkdir("bytecode"))
    folder = tempfile.mkdtemp(prefix="bench-server-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what the suite itself is made of."""
    _set_aside()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After a file's last test, let it leave alone what that file has loaded and kept."""
    if nextitem is None or nextitem.path != item.path:
        _set_aside()


def _set_aside() -> None:
    """Keep all that lives now out of the collections to come.

    Many tests collect garbage to see what they left open.  With some 8,000 tests loaded, each such
    collection would walk through all of them.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def clean_loop(request: pytest.FixtureRequest) -> None:
    """Watch the event loop of every test that is a coroutine.

    `leak_free`, where a test asks for it, begins before the loop opens, and so looks after the loop
    has closed; all that is async begins after this and has ended when the loop is looked at.
    """
    if request.node.get_closest_marker("asyncio") is None:
        return
    if "leak_free" in request.fixturenames:
        request.getfixturevalue("leak_free")
    request.getfixturevalue("watched_loop")


@pytest_asyncio.fixture
async def watched_loop() -> AsyncIterator[None]:
    """Fail a test that leaves a task behind, or an error that nobody has looked at."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    given_up = {task for task in left if _ends_with_its_loop(task)}
    left -= given_up
    await cancel_and_wait(given_up)
    gc.collect()  # a task says that nobody fetched its error when it goes
    assert not left, f"tasks left behind: {sorted(map(repr, left))}"
    assert not unhandled, f"nobody handled: {unhandled}"


def _ends_with_its_loop(task: asyncio.Task[Any]) -> bool:
    """Tell whether a task is aiohttp's, for a connection that its client has given up.

    aiohttp's server does not wait for those when it ends, and offers no way to.
    """
    return "RequestHandler." in repr(task.get_coro())


def _open_things() -> set[str]:
    """Return this process's descriptors and its names in /dev/shm."""
    things = {path.name for path in SHM_DIR.iterdir() if f"_{os.getpid()}_" in path.name}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            things.add(f"fd {fd} -> {os.readlink(f'/proc/self/fd/{fd}')}")
    return things


@pytest.fixture
def leak_free() -> Iterator[None]:
    """Fail a test that leaves a descriptor, a socket or a name in /dev/shm behind."""
    before = _open_things()
    yield
    gc.collect()
    mark.remove_own_files()  # they stay until the process ends
    left = _open_things() - before
    assert not left, f"left open: {sorted(left)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Look at the JSON reports that a test has written."""
    yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if isinstance(directory, Path):
        from tests.reportschema import check_reports_in

        check_reports_in(directory)
