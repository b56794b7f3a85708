"""A headless Chromium driven by the W3C WebDriver protocol, which is JSON over HTTP: the standard library is enough."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# no sandbox: as root in a container there is none to be had; the pages are ours. The rest: no calls to the network.
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--window-size=1280,860",
]


def browser_or_skip() -> Browser:
    """A browser, or this test is skipped where none is installed (Debian: chromium, chromium-driver)."""
    driver = shutil.which("chromedriver")
    binary = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if not driver or not binary:
        pytest.skip(
            "no chromium with chromedriver on this machine (Debian: chromium, chromium-driver)"
        )
    return Browser(driver, binary)


KEYS = {
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}  # WebDriver's


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    """A context manager: one window of a browser with an empty profile."""

    def __init__(self, driver: str, binary: str):
        self._profile, port = tempfile.TemporaryDirectory(ignore_cleanup_errors=True), free_port()
        self._driver = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._at = f"http://127.0.0.1:{port}"
        try:
            self._wait_until_ready()
            options = {"binary": binary, "args": [*FLAGS, f"--user-data-dir={self._profile.name}"]}
            made = self._call(
                "POST",
                "/session",
                {
                    "capabilities": {
                        "alwaysMatch": {
                            "goog:chromeOptions": options,
                            "goog:loggingPrefs": {"browser": "ALL"},
                        }
                    }
                },
            )
        except BaseException:
            self._driver.kill()
            raise
        self._at += f"/session/{made['sessionId']}"

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("chromedriver does not answer")

    def _call(self, method: str, path: str, body: dict | None = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._at + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=40) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()[:500]}") from None

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(10)
            self._profile.cleanup()

    def open(self, address: str) -> None:
        self._call("POST", "/url", {"url": address})

    def script(self, text: str):
        """The value of `return …` in the page."""
        return self._call("POST", "/execute/sync", {"script": text, "args": []})

    def text(self, selector: str) -> str:
        return self.script(f"return document.querySelector({json.dumps(selector)}).textContent")

    def click(self, selector: str) -> None:
        """As a hand does it: where the element is visible and nothing lies over it."""
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        self._call("POST", f"/element/{found[ELEMENT]}/click", {})

    def hover(self, x: float, y: float) -> None:
        """Move the mouse to a place of the window, in CSS pixels."""
        self._mouse([{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}])

    def drag(self, x: float, y: float, dx: float, dy: float) -> None:
        there = {"type": "pointerMove", "duration": 50, "x": round(x + dx), "y": round(y + dy)}
        self._mouse(
            [
                {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)},
                {"type": "pointerDown", "button": 0},
                there,
                {"type": "pointerUp", "button": 0},
            ]
        )

    def keys(self, *names: str) -> None:
        """Press keys one after another where the focus is: characters, or names of KEYS."""
        pressed = [
            {"type": kind, "value": KEYS.get(name, name)}
            for name in names
            for kind in ("keyDown", "keyUp")
        ]
        self._call(
            "POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": pressed}]}
        )

    def pinch(self, x: float, y: float, before: float, after: float, dx: float = 0.0) -> None:
        """Two fingers left and right of a place, `before` pixels apart, end `after` apart and dx further right."""

        def finger(name, side):
            start, end = round(x + side * before / 2), round(x + dx + side * after / 2)
            return {
                "type": "pointer",
                "id": name,
                "parameters": {"pointerType": "touch"},
                "actions": [
                    {"type": "pointerMove", "duration": 0, "x": start, "y": round(y)},
                    {"type": "pointerDown", "button": 0},
                    {"type": "pointerMove", "duration": 100, "x": end, "y": round(y)},
                    {"type": "pointerUp", "button": 0},
                ],
            }

        self._call("POST", "/actions", {"actions": [finger("one", -1), finger("two", 1)]})

    def _mouse(self, actions: list[dict]) -> None:
        self._call(
            "POST",
            "/actions",
            {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]},
        )

    def until(self, condition, what: str, timeout: float = 20.0):
        """The first true value of condition(), asked ten times a second."""
        end = time.monotonic() + timeout
        while not (value := condition()):
            assert time.monotonic() < end, f"{what}; console: {self.console()}"
            time.sleep(0.1)
        return value

    def console(self) -> list[str]:
        """What the page complained about since the last call."""
        said = [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]
        return [
            text for text in said if not text.startswith("chrome://")
        ]  # the browser's own first page

    def screenshot(self) -> bytes:
        return base64.b64decode(self._call("GET", "/screenshot"))
