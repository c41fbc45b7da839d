"""Drives a headless Chromium by its DevTools protocol, over a pipe: no driver, no port, no library."""

import base64
import itertools
import json
import os
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
MISSING = "no Chromium on this machine: apt-get install chromium"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update"),
    *("--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"),
)
TIMEOUT = 60  # seconds for an answer
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"  # pixels to scroll aside


class Page:
    """A tab of the browser.

    :ivar complaints: errors of scripts, messages of the console, refused or failed requests
    """

    def __init__(self, browser: "Browser", session: str) -> None:
        self.browser, self.session = browser, session
        self.complaints: list[str] = []
        browser.pages[session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.send(method, parameters, self.session)

    def open(self, address: str) -> None:
        """Open an address and wait until the page is complete."""
        self.send("Page.navigate", url=address)
        deadline = time.monotonic() + TIMEOUT
        while self.evaluate("document.readyState !== 'complete' || location.href === 'about:blank'"):
            assert time.monotonic() < deadline, f"{address} is not complete after {TIMEOUT} seconds"
            time.sleep(0.05)

    def look(self, width: int, scheme: str = "light") -> None:
        """Set the width of the window in pixels, and the colour scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release a key, such as ``Tab`` with its code 9."""
        text = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def screenshot(self, path: Path, clip: dict[str, float]) -> None:
        """Write a PNG of a part ``x, y, width, height`` of the page."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip={**clip, "scale": 1})["data"]
        path.write_bytes(base64.b64decode(data))

    def hear(self, method: str, event: dict[str, Any]) -> None:
        """Keep what a person would see as red lines in the console."""
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(event["exceptionDetails"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.complaints.append(event["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(event["args"]))
        elif method == "Network.loadingFailed":
            self.complaints.append(event["errorText"])


class Browser:
    """A running Chromium.

    :param folder: empty, for its profile
    """

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None, MISSING
        read_end, self._write = os.pipe()
        self._read, write_end = os.pipe()
        words = [CHROMIUM, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        # Chromium reads from descriptor 3 and writes to descriptor 4.
        line = f"exec {shlex.join(words)} 3<&{read_end} 4>&{write_end}"
        settings: Any = {"pass_fds": (read_end, write_end), "env": os.environ | {"HOME": str(folder)}}
        with open(folder / "chromium.log", "wb") as log:
            self.process = subprocess.Popen(["bash", "-c", line], stdout=log, stderr=log, **settings)
        os.close(read_end)
        os.close(write_end)
        self.pages: dict[str, Page] = {}
        self._numbers, self._buffer = itertools.count(1), b""

    def new_page(self) -> Page:
        """Open an empty tab."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        return Page(self, self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"])

    def send(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """Send a command and return its answer; events that come before it go to their pages."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(method)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            if page := self.pages.get(answer.get("sessionId", "")):
                page.hear(answer.get("method", ""), answer.get("params", {}))

    def _receive(self, method: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], TIMEOUT)
            assert ready, f"Chromium does not answer {method}"
            received = os.read(self._read, 2**20)
            assert received, f"Chromium has ended, status {self.process.wait()}"
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        """End the browser."""
        os.close(self._write)  # Chromium ends when its pipe does
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read)


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """Start a Chromium with an empty profile in ``folder``, and end it."""
    browser = Browser(folder)
    try:
        yield browser
    finally:
        browser.close()
