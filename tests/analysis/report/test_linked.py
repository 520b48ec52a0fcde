"""A trial that is opened from a figure, the table, the keyboard or the address."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import choreographer
import numpy as np
import pytest

from analysis.labels import Labels
from analysis.report import build
from analysis.report.anonymous import anonymous
from analysis.report.details import details
from analysis.runs import Run, load
from search_spaces import run_folder
from tests.analysis import synthetic
from tests.analysis.report.test_drawn import CHROMIUM, PROBE


def test_details_are_those_of_the_record(loaded: dict[str, Run]) -> None:
    run = loaded["tpe"]
    found = details(run, Labels.of([run], markup=False))
    assert found["metric"] == "Global accuracy, validation [%]" and found["of"] == 24
    rows = [
        json.loads(line)
        for line in (run.path / run_folder.trial_folder(0) / run_folder.ROUNDS).read_text().splitlines()
    ]
    means = [100 * np.mean([r["val_global_accuracy"] for r in rows if r["round"] == n]) for n in range(1, 10)]
    assert found["0"]["curve"] == [list(range(1, 10)), pytest.approx(means, abs=5.1e-3)]
    assert found["0"]["clients"]["global"] == [round(100 * v, 2) for v in rows[-1]["client_accuracy"]]
    assert found["0"]["clients"]["local"][-1] is None
    assert found["9"] == {"curve": None, "clients": {}, "log": ""}, "a trial that failed at once has nothing"


def test_the_log_is_shown_from_its_end_and_on_no_anonymous_page(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "run", trials=4, failures=False)
    (folder / run_folder.trial_folder(1) / run_folder.LOG).write_text(
        "".join(f"line {i} /home/me\n" for i in range(99))
    )
    run = load(folder)
    labels = Labels.of([run], markup=False)
    log = details(run, labels)["1"]["log"]
    assert log.startswith("line 84") and log.endswith("line 98 /home/me")
    assert details(anonymous(run), labels)["1"]["log"] == ""


async def _tried(path: Path, address: str, steps: list[str]) -> list[Any]:
    """What each script gives on the page, one after the other; the last one are the problems that the page told of."""
    async with choreographer.Browser(CHROMIUM, proxy_server="127.0.0.1:9") as browser:
        tab = await browser.create_tab()

        async def value(script: str) -> Any:
            found = await tab.send_command("Runtime.evaluate", {"expression": script, "returnByValue": True})
            return found["result"]["result"].get("value")

        size = {"width": 1200, "height": 9000, "deviceScaleFactor": 1, "mobile": False}
        await tab.send_command("Emulation.setDeviceMetricsOverride", size)
        await tab.send_command("Page.enable")
        await tab.send_command("Page.addScriptToEvaluateOnNewDocument", {"source": PROBE})
        await tab.send_command("Page.navigate", {"url": path.as_uri() + address})
        for _ in range(300):
            if await value(
                "document.readyState === 'complete' && !!document.querySelector('[data-figure=history] .main-svg')"
            ):
                break
            await asyncio.sleep(0.2)
        return [await value(step) for step in [*steps, "JSON.stringify(problems)"]]


SHOWN = "document.getElementById('trial').hidden ? '' : document.getElementById('trial-title').textContent"
KEY = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}', bubbles: true}}))"


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_trial_is_opened_by_address_mouse_and_keyboard(root: Path, tmp_path: Path) -> None:
    path = build(root / "tpe", tmp_path / "page.html")
    dots = "document.querySelector('[data-figure=history]')"
    found = asyncio.run(
        _tried(
            path,
            "#trial=12",
            [
                SHOWN,
                "document.querySelectorAll('#trial svg').length",
                KEY.format("ArrowRight"),
                SHOWN,
                KEY.format("Escape"),
                f"{SHOWN} + location.hash",
                # A dot of a figure is clicked.
                f"{dots}.emit('plotly_click', {{points: [{{data: {dots}.data[0], x: 4}}]}})",
                f"{SHOWN} + location.hash",
                KEY.format("Escape"),
                # A row's button is pressed, and gets the focus back afterwards.
                "(() => { const b = document.querySelector('[data-table=trials] button.open'); b.focus(); b.click(); "
                "return b.textContent })()",
                SHOWN,
                "document.querySelectorAll('tr.chosen').length",
                "location.hash = '#trial=9999'; 1",
            ],
        )
    )
    assert found[:4] == ["Trial 12", 3, True, "Trial 13"]
    assert found[5] == "" and found[7] == "Trial 4#trial=4"
    assert found[10] == f"Trial {found[9]}" and found[11] == 1
    assert found[-1] == "[]"
