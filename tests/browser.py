"""A headless Chromium driven over two pipes: renders a page, and tells what a person with developer tools would see."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
_PLUMBER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
_WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Seen(NamedTuple):
    """A rendered page. `wider` is by how many px it is wider than its window; `requests` beside the page's own."""

    png: bytes
    wider: int
    problems: list[str]
    requests: list[str]


def chromium() -> str | None:
    """Return the path of Chromium; None if it is not installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One running Chromium."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._number = 0
        self._buffer = b""
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the DevTools protocol; what happens meanwhile is kept in `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def wait_for(self, method: str) -> None:
        """Until an event has come."""
        while not any(event["method"] == method for event in self.events):
            self._next()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page, whatever its policy forbids."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, url: str, *, width: int = 1440, dark: bool = False, scripts: bool = True) -> None:
        """Open a page in a window of that width and theme, and wait until it is drawn."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        gone = self.call("Page.navigate", url=url)
        assert not gone.get("errorText"), gone
        self.wait_for("Page.loadEventFired")

    def picture(self, *, most_height: int = 6000) -> bytes:
        """The whole page as PNG, cut at a height."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        height = min(size["height"], most_height)
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def see(self, url: str, *, width: int, dark: bool = False, scripts: bool = True) -> Seen:
        """Open a page and look at everything."""
        self.open(url, width=width, dark=dark, scripts=scripts)
        png = self.picture()
        wider = 0 if not scripts else self.evaluate(_WIDER)
        return Seen(png, wider, self.problems(), self.requests(url))

    def problems(self) -> list[str]:
        """Return the log entries, messages and exceptions of the console since the page was opened."""
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded":
                found.append(str(event["params"]["entry"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(str(event["params"]["args"]))
        return found

    def requests(self, url: str) -> list[str]:
        """Return the URLs that the page has requested since, without the page itself and the data in it."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [address for address in asked if address != url and not address.startswith("data:")]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            got = os.read(self._back, 1 << 20)
            assert got, "Chromium has ended"
            self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def running() -> Iterator[Browser]:
    """A Chromium with a profile of its own; skips where there is none."""
    program = chromium()
    if program is None:
        pytest.skip("Chromium is not installed: nothing is rendered (on Debian: apt-get install chromium)")
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    # Chromium reads from 3 and writes to 4; whoever becomes it puts the pipes there from numbers that cannot be these.
    given, taken = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_read, back_write))
    plumbed = [sys.executable, "-c", _PLUMBER, str(given), str(taken), program, *_FLAGS]
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(  # noqa: S603 - a browser of the system
            [*plumbed, f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(given, taken),
            start_new_session=True,
        )
        os.close(given)
        os.close(taken)
        os.close(to_read)
        os.close(back_write)
        try:
            yield Browser(to_write, back_read)
        finally:
            os.close(to_write)
            os.close(back_read)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
