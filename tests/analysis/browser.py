"""A browser for tests of pages: opened once per session, then shown page after page in any size and colours.

A page is loaded anew only where another one was shown before: what `look` changes is what a reader may change as well.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import choreographer
import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
#: The marks of a test that needs the browser.
BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here"),
]
#: Runs before a page's own scripts; not part of the page, so its policy does not forbid it.
PROBE = """
window.problems = [];
addEventListener("error", (e) => problems.push(e.message));
console.error = (...words) => problems.push(words.join(" "));
document.addEventListener("securitypolicyviolation", (e) => problems.push(e.violatedDirective + " " + e.blockedURI));
"""
#: Every figure has been drawn, as wide as its place.
DRAWN = """document.readyState === 'complete' && [...document.querySelectorAll('.plot')].every((div) => {
    const drawn = div.querySelector('.main-svg');
    return drawn && Math.abs(drawn.clientWidth - div.clientWidth) < 2;
})"""
#: Two frames have been drawn since: what a change or a click asked for is on the screen.
_SETTLED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
#: The same, and what the page had put off is done: Plotly looks for what is under the pointer every 50 ms at most, and
#: draws anew 100 ms after a window changed its size. The page's own clock counts, however slow the machine is.
_RESTED = f"{_SETTLED}.then(() => new Promise((done) => setTimeout(() => done(true), 200))).then(() => {_SETTLED})"
#: High enough for all figures of a page: they are drawn as they come into sight.
HEIGHT = 50000
_CODES = {"Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9}


class Shown:
    """The one tab of a browser."""

    def __init__(self, runner: asyncio.Runner, tab: Any) -> None:
        self._runner, self._tab = runner, tab
        self._page: tuple[Path, str] | None = None
        self._view: tuple[int, bool, bool] | None = None

    def _send(self, command: str, **words: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._runner.run(self._tab.send_command(command, words))
        return answer

    def value(self, script: str) -> Any:
        """What a script gives on the page; of a promise what it is kept with."""
        found = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return found.get("result", {}).get("result", {}).get("value")

    def until(self, script: str, seconds: float = 120.0) -> None:
        """Waits until a script gives true: a loaded machine draws when it can. Raises `TimeoutError` where that takes
        longer than so many seconds, as what a test measures then would not be what it asks about."""
        end = time.monotonic() + seconds
        while not self.value(script):
            if time.monotonic() > end:
                raise TimeoutError(f"{self._page}: after {seconds:g} s this is not true: {script}")
            self._rest(0.05)

    def open(self, page: Path, address: str = "") -> None:
        """Loads the page, wide and bright, whatever was shown before."""
        if self._view is None:
            self._send("Page.enable")
            self._send("Emulation.setFocusEmulationEnabled", enabled=True)
            self._send("Page.addScriptToEvaluateOnNewDocument", source=PROBE)
        self._emulate(1200, dark=False, paper=False)
        self._send("Page.navigate", url="about:blank")  # an address that differs behind # alone would load nothing
        self._send("Page.navigate", url=page.as_uri() + address)
        self._page = (page, address)

    @contextlib.contextmanager
    def fetches(self) -> Iterator[list[str]]:
        """Gives the addresses that pages ask for while the block runs."""
        found: list[str] = []

        async def note(event: Any) -> None:
            found.append(event["params"]["request"]["url"])

        self._tab.subscribe("Network.requestWillBeSent", note)
        self._send("Network.enable")
        try:
            yield found
        finally:
            self._send("Network.disable")
            self._tab.unsubscribe("Network.requestWillBeSent")

    def look(self, page: Path, width: int, dark: bool, paper: bool, address: str = "") -> None:
        """Shows the page, its figures drawn, in a window of so many pixels, in dark or bright colours, or on paper."""
        if self._page != (page, address):
            self.open(page, address)
            self.until(DRAWN)
        if self._view and self._view[2]:
            self.value("dispatchEvent(new Event('afterprint'))")
        self._emulate(width, dark, paper)
        self.value(_RESTED)
        if paper:
            self.value("dispatchEvent(new Event('beforeprint'))")
            self.value(_RESTED)
        self.until(DRAWN)
        self.value(_SETTLED)

    def _emulate(self, width: int, dark: bool, paper: bool) -> None:
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme], media="print" if paper else "")
        self._view = (width, dark, paper)

    def sheets(self) -> list[tuple[float, float]]:
        """Width and height, in points, of every sheet that the page is printed on."""
        printed = self._send("Page.printToPDF", preferCSSPageSize=True)["result"]["data"]
        boxes = re.findall(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", base64.b64decode(printed))
        return [(float(width), float(height)) for width, height in boxes]

    def picture(self, width: int, height: int) -> bytes:
        """The top of the page as a PNG."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        return base64.b64decode(self._send("Page.captureScreenshot", clip=clip)["result"]["data"])

    def point(self, place: tuple[float, float]) -> None:
        """The mouse is moved there, and what is under it has been told."""
        self._send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        self.value(_RESTED)

    def click(self, place: tuple[float, float]) -> None:
        """A click of the mouse, which is moved there first."""
        at = {"x": place[0], "y": place[1]}
        self.point((at["x"] - 1, at["y"]))
        self.point(place)
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
        self.value(_RESTED)

    def press(self, key: str) -> None:
        """One key, pressed and let go of where the focus is."""
        words = {"key": key, "code": key, "windowsVirtualKeyCode": _CODES[key]}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        self._send("Input.dispatchKeyEvent", type="keyDown", text=text, **words)
        self._send("Input.dispatchKeyEvent", type="keyUp", **words)
        self.value(_SETTLED)

    def _rest(self, seconds: float) -> None:
        self._runner.run(asyncio.sleep(seconds))


class Browsing:
    """Starts the browser and ends it."""

    def __enter__(self) -> Shown:
        self._runner = asyncio.Runner()
        self._browser = choreographer.Browser(CHROMIUM, proxy_server="127.0.0.1:9")
        self._runner.run(self._browser.open())
        return Shown(self._runner, self._runner.run(self._browser.create_tab()))

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._browser.close())
        self._runner.close()
