"""Headless Chromium, driven by the DevTools protocol over one websocket.

It owns the process and what a page of it was seen to do: requests, complaints, what a script that
the test evaluates finds.  The page's own policy forbids scripts; those of DevTools run though.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--disable-extensions", "--remote-debugging-port=0",
)  # fmt: skip
_LISTENS = re.compile(r"DevTools listening on (ws://\S+)")
_START_WITHIN_S = 60.0
_ANSWER_WITHIN_S = 60.0
_MOST_MESSAGE_BYTES = 1 << 26


@contextlib.contextmanager
def running_chromium(folder: Path) -> Iterator[str]:
    """Run a browser with an empty profile in a folder; yield the address of its DevTools."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    assert path, f"none of {', '.join(_NAMES)} is installed: scripts/test --browser installs one"
    process = subprocess.Popen(
        [path, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder)},
    )  # fmt: skip
    late = threading.Timer(_START_WITHIN_S, _end, (process,))
    late.start()
    reader: threading.Thread | None = None
    try:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if found := _LISTENS.search(line):
                break
        else:
            raise AssertionError(f"{path} told no address in {_START_WITHIN_S:g} s: {said[-9:]}")
        late.cancel()
        # Its later words are read, so that it never waits for a reader.
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        yield found[1]
    finally:
        late.cancel()
        _end(process)
        process.wait()
        if reader is not None:
            reader.join()
        if process.stderr is not None:
            process.stderr.close()


def _end(process: subprocess.Popen[str]) -> None:
    """End the browser and all of its processes: they are a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(slots=True)
class Page:
    """A page that is open: what it asked for and complained of, and what can be asked of it."""

    socket: aiohttp.ClientWebSocketResponse[bool]
    session: str = ""
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    happened: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        await self.socket.send_json(
            {**message, "sessionId": self.session} if self.session else message
        )
        while True:
            heard = await self._next()
            if heard.get("id") == number:
                assert "error" not in heard, (method, heard)
                return dict(heard["result"])

    async def until(self, event: str) -> None:
        """Wait for an event, if it was not heard yet."""
        while event not in self.happened:
            await self._next()

    async def evaluate(self, script: str) -> Any:
        """Return what an expression gives, as JSON has it."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def look_like(self, *, width: int, scheme: str, media: str = "screen") -> None:
        """Show the page as wide as that, in a colour scheme, on a screen or on paper."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", media=media, features=features)

    async def _next(self) -> dict[str, Any]:
        heard: dict[str, Any] = await self.socket.receive_json(timeout=_ANSWER_WITHIN_S)
        method, parameters = heard.get("method", ""), heard.get("params", {})
        self.happened.add(method)
        if method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.complaints.append(str(parameters))
        return heard


@contextlib.asynccontextmanager
async def opened(devtools: str, url: str) -> AsyncIterator[Page]:
    """Open an address in a page of its own, and wait until it has loaded."""
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(devtools, max_msg_size=_MOST_MESSAGE_BYTES) as socket,
    ):
        page = Page(socket)
        target = await page.call("Target.createTarget", url="about:blank")
        attached = await page.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page.session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime", "Accessibility"):
            await page.call(f"{domain}.enable")
        await page.look_like(width=1400, scheme="light")
        page.happened.clear()
        await page.call("Page.navigate", url=url)
        await page.until("Page.loadEventFired")
        yield page
        await page.call("Page.close")
