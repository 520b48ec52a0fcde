"""The page as a browser draws it: wide, at 420 px, dark, and on paper. Text is measured by the boxes it is drawn in."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import Any

import choreographer
import pytest

from analysis.report import build
from tests.analysis import synthetic

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here"),
]

PROBE = """
window.problems = [];
addEventListener("error", (e) => problems.push(e.message));
console.error = (...words) => problems.push(words.join(" "));
document.addEventListener("securitypolicyviolation", (e) => problems.push(e.violatedDirective + " " + e.blockedURI));
"""
DRAWN = "[...document.querySelectorAll('.plot')].every((div) => div.querySelector('.main-svg'))"
#: Everything that is wrong on the page, as sentences.
MEASURE = r"""
(() => {
  const found = [...problems];
  const corners = (r) => [r.left, r.top, r.right, r.bottom].map(Math.round).join(" ");
  if (document.documentElement.scrollWidth > innerWidth + 1) found.push("the page is wider than the window");
  const isText = (t) => t.textContent.trim() && t.getClientRects().length && !t.closest(".hoverlayer");
  for (const div of document.querySelectorAll(".plot")) {
    const box = div.getBoundingClientRect(), name = div.dataset.figure;
    const texts = [...div.querySelectorAll(".main-svg text")].filter(isText);
    const boxes = texts.map((t) => [t.textContent.trim(), t.getBoundingClientRect()]);
    for (const [text, r] of boxes) {
      const beside = r.left < box.left - 2 || r.right > box.right + 2;
      if (beside || r.top < box.top - 2 || r.bottom > box.bottom + 2)
        found.push(`${name}: "${text}" is clipped: ${corners(r)} in ${corners(box)}`);
    }
    boxes.forEach(([a, r], i) => boxes.slice(i + 1).forEach(([b, s]) => {
      const across = Math.min(r.right, s.right) - Math.max(r.left, s.left);
      const down = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
      if (across > 3 && down > 4) found.push(`${name}: "${a}" and "${b}" overlap by ${across} × ${down}`);
    }));
  }
  // The contrast of WCAG 2: relative luminances of text and of what is behind it.
  const linear = (x) => x / 255 <= 0.03928 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const parts = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  for (const e of document.querySelectorAll("main *, header *, footer")) {
    if (e.closest("svg") || e.disabled || !e.getClientRects().length || !hasText(e)) continue;
    const a = light(parts(getComputedStyle(e).color).slice(0, 3)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)} of <${e.tagName} ${e.className}>: ${e.textContent}`);
  }
  return JSON.stringify(found);
})()
"""


async def _measured(path: Path, width: int, dark: bool, paper: bool, script: str) -> Any:
    async with choreographer.Browser(CHROMIUM, proxy_server="127.0.0.1:9") as browser:
        tab = await browser.create_tab()

        async def value(expression: str) -> Any:
            found = await tab.send_command("Runtime.evaluate", {"expression": expression, "returnByValue": True})
            return found.get("result", {}).get("result", {}).get("value")

        size = {"width": width, "height": 30000, "deviceScaleFactor": 1, "mobile": False}
        await tab.send_command("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        media = {"features": [scheme]} | ({"media": "print"} if paper else {})
        await tab.send_command("Emulation.setEmulatedMedia", media)
        await tab.send_command("Page.enable")
        await tab.send_command("Page.addScriptToEvaluateOnNewDocument", {"source": PROBE})
        await tab.send_command("Page.navigate", {"url": path.as_uri()})
        until = time.monotonic() + 120
        while not await value(f"document.readyState === 'complete' && {DRAWN}") and time.monotonic() < until:
            await asyncio.sleep(0.2)
        if paper:
            await value("dispatchEvent(new Event('beforeprint'))")
        await asyncio.sleep(0.5)
        return json.loads(await value(script))


#: How every page is looked at: width in pixels, dark or bright, on paper or on a screen.
VIEWS = pytest.mark.parametrize(
    ("width", "dark", "paper"),
    [(1200, False, False), (420, True, False), (703, False, True)],
    ids=["wide", "narrow and dark", "paper"],
)


def faults(page: Path, width: int, dark: bool, paper: bool) -> Any:
    """What is clipped, overlaps or is hard to read on a page, as the browser draws it."""
    return asyncio.run(_measured(page, width, dark, paper, MEASURE))


@pytest.fixture(scope="module")
def pages(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("drawn")
    synthetic.write(folder / "part", sampler="grid", rounds=3, seeds=(0,), cells=21)
    synthetic.write(folder / "many", trials=40, keys=(*synthetic.many(15), "lr"), published=None, figures=())
    runs = {"tpe": root / "tpe", "part": folder / "part", "many": folder / "many"}
    return {name: build(run, folder / f"{name}.html") for name, run in runs.items()}


@pytest.mark.parametrize("name", ["tpe", "part", "many"])
@VIEWS
def test_nothing_is_clipped_overlaps_or_is_hard_to_read(
    name: str, width: int, dark: bool, paper: bool, pages: dict[str, Path]
) -> None:
    assert faults(pages[name], width, dark, paper) == []


def test_on_paper_the_trials_table_has_its_head_and_all_rows(pages: dict[str, Path]) -> None:
    script = """JSON.stringify([
        document.querySelectorAll("[data-table=trials] tbody tr").length,
        [...document.querySelectorAll("[data-table=trials] th button")].every((b) => b.getClientRects().length),
        [...document.querySelectorAll("main *")].filter((e) => !e.closest("svg"))
            .filter((e) => e.getBoundingClientRect().right > 702).map((e) => `${e.tagName} ${e.className}`),
    ])"""
    assert asyncio.run(_measured(pages["many"], 703, False, True, script)) == [40, True, []]
