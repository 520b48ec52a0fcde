"""How long a large report takes to make, how large it is, and how a browser copes with it."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import choreographer

from benchmarks.measure import ROOT, environment
from benchmarks.results import Case, Goal
from tests.analysis import synthetic

TITLE = "Reports of large searches"
TEXT = """
A report is made on one core, and opened in headless Chromium at 1200 × 900. *First paint* is what the browser itself
reports; *complete* is when the page has been read and its scripts have run (figures are drawn as they come into sight); *click* is how long
a click on a row of the trials table takes until that trial is shown, and *sort* one on a column's head, each until the browser has
drawn the next frame. The largest search is the first one's trials, with fewer rounds, several times over.
"""
#: The searched parameters, few and many.
FEW, MANY = ("alpha", "lambda"), ("alpha", "lambda", "lr", "merge_op", *synthetic.many(12))
#: Trials, rounds, how many times the trials are repeated, and the parameters.
SEARCHES = ((1000, 100, 1, FEW), (1000, 100, 1, MANY), (1000, 20, 10, FEW))
QUICK = ((20, 5, 1, FEW), (20, 5, 1, MANY), (20, 5, 2, FEW))
#: What is measured in the browser, and what it is called.
SEEN = {"painted": "first paint", "complete": "complete", "click": "click", "sort": "sort"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: Waits for two frames: the second comes after the first has been drawn.
_TIMED = """
(async () => { const from = performance.now(); %s;
await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
return performance.now() - from; })()
"""
_OPEN = "document.querySelector('[data-table=trials] button.open').click()"
_SORT = "document.querySelector('[data-table=trials] th button').click()"
_LOADED = "document.readyState === 'complete' && !!document.querySelector('[data-table=trials] button.open')"
_PAINTED = "(performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime"


def report(run: Path, page: Path) -> float:
    """Seconds of a processor for the report of a run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-m", "fedtune", "report", str(run), "-o", str(page)]
    subprocess.run(words, check=True, cwd=ROOT, env=environment(1, malloc=False), capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def opened(page: Path, browser_path: str) -> dict[str, float]:
    """Milliseconds until the page is painted and complete, and until a click on it is answered."""
    async with choreographer.Browser(browser_path, proxy_server="127.0.0.1:9") as browser:
        tab = await browser.create_tab()

        async def value(script: str, wait: bool = False) -> Any:
            asked = {"expression": script, "returnByValue": True, "awaitPromise": wait}
            found = await tab.send_command("Runtime.evaluate", asked)
            return found.get("result", {}).get("result", {}).get("value")

        size = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await tab.send_command("Emulation.setDeviceMetricsOverride", size)
        await tab.send_command("Page.enable")
        await tab.send_command("Page.navigate", {"url": page.as_uri()})
        until = time.monotonic() + 120
        while not (await value(_LOADED) and await value(_PAINTED)) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        loaded = "performance.getEntriesByType('navigation')[0].loadEventEnd"
        return {
            "painted": await value(_PAINTED),
            "complete": await value(loaded),
            "click": await value(_TIMED % _OPEN, wait=True),
            "sort": await value(_TIMED % _SORT, wait=True),
        }


def run(quick: bool) -> Case:
    case = Case("pages", TITLE, TEXT, quick=quick)
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        case.notes.append("There is no Chromium on this machine, so nothing was opened.")
    rows = []
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made:
        for trials, rounds, times, keys in QUICK if quick else SEARCHES:
            folder = Path(made) / f"{trials}-{times}-{len(keys)}"
            synthetic.write(folder, keys=keys, trials=trials, rounds=rounds, seeds=(0,), failures=False)
            if times > 1:
                synthetic.multiply(folder, times)
            page = folder.with_suffix(".html")
            seconds, size = report(folder, page), os.path.getsize(page) / 1e6
            seen = asyncio.run(opened(page, browser)) if browser else {}
            name = f"{trials * times:,} trials of {rounds} rounds, {len(keys)} parameters"
            rows.append([name, seconds, size, *(seen.get(k, "–") for k in SEEN)])
            if times == 1:
                case.goals += [
                    Goal(f"Report of {name}", 10.0, seconds, least=False, unit=" s"),
                    Goal(f"Page of {name}", 8.0, size, least=False, unit=" MB"),
                ]
                if seen:
                    case.goals.append(Goal("Its first paint", 2000.0, seen["painted"], least=False, unit=" ms"))
    columns = ("search", "report, s of a processor", "page, MB", *(f"{name}, ms" for name in SEEN.values()))
    case.table("Reports of large searches", columns, rows)
    return case
