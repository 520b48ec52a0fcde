"""A trial that is opened from a figure, the table, the keyboard or the address."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from analysis.labels import Labels
from analysis.report import build
from analysis.report.anonymous import anonymous
from analysis.report.trials import details
from analysis.runs import Run, load_run
from search_spaces import run_folder
from tests.analysis import synthetic
from tests.analysis.browser import BROWSER, DRAWN, Shown


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
    run = load_run(folder)
    labels = Labels.of([run], markup=False)
    log = details(run, labels)["1"]["log"]
    assert log.startswith("line 84") and log.endswith("line 98 /home/me")
    assert details(anonymous(run), labels)["1"]["log"] == ""


SHOWN = "document.getElementById('trial').hidden ? '' : document.getElementById('trial-title').textContent"
HASH = "location.hash"
#: The lines of a figure's first panel that stand for trials, as they are on the screen: by trial its corners in pixels.
LINES = """(() => {
    const div = document.querySelector("[data-figure=%s]"), box = div.getBoundingClientRect(), found = {};
    const [across, up] = [div._fullLayout.xaxis, div._fullLayout.yaxis];
    div._fullData.forEach((trace, n) => {
        const how = (trace.meta || {}).trial;
        if (how === undefined || trace.xaxis !== "x") return;
        for (let i = 0; i < trace.x.length; i++) {
            const number = how === "customdata" ? trace.customdata[i] : how, y = trace.y[i];
            if (number === null || y === null || Number.isNaN(y)) continue;
            (found[number] = found[number] || []).push([
                box.left + across._offset + across.d2p(trace.x[i]), box.top + up._offset + up.d2p(y)]);
        }
    });
    return JSON.stringify(found);
})()"""
#: Where the middle of a heat map's cell is, by its column and row.
CELL = """(() => {
    const div = document.querySelector("[data-figure=heatmap]"), box = div.getBoundingClientRect();
    const [across, up] = [div._fullLayout.xaxis%s, div._fullLayout.yaxis%s];
    return [box.left + across._offset + across.d2p(%d), box.top + up._offset + up.d2p(%d)];
})()"""


def alone(lines: dict[str, list[list[float]]], trial: str) -> tuple[float, float]:
    """The place on a trial's line that is farthest from its corners and from all other lines."""

    def between(corners: list[list[float]]) -> np.ndarray:
        points = np.array(corners)
        return np.concatenate([np.linspace(a, b, 60) for a, b in itertools.pairwise(points)])

    mine = between(lines[trial])
    others = np.array([*np.concatenate([between(c) for n, c in lines.items() if n != trial]), *lines[trial]])
    apart = np.linalg.norm(mine[:, None] - others[None], axis=2).min(axis=1)
    assert apart.max() > 8, f"no place of trial {trial} is its own"
    x, y = mine[apart.argmax()]
    return float(x), float(y)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid that is walked row by row and has come to its 13th cell; some cells were stopped early or failed."""
    folder = tmp_path_factory.mktemp("linked")
    return build(synthetic.write(folder / "run", sampler="grid", rounds=4, cells=13), folder / "page.html")


def of_cell(column: int, row: int) -> int:
    return column * len(synthetic.LAMBDA) + row


class TestInABrowser:
    pytestmark = BROWSER

    @pytest.fixture(autouse=True)
    def _without_problems(self, page: Path, browser: Shown) -> Iterator[None]:
        """The page as a reader finds it: no trial is open, the pointer is away, and nothing has the focus."""
        browser.look(page, 1200, dark=False, paper=False)
        browser.press("Escape")
        browser.value("document.activeElement.blur()")
        browser.point((0, 0))
        assert (browser.value(SHOWN), browser.value(HASH)) == ("", "")
        yield
        assert browser.value("JSON.stringify(problems)") == "[]"

    @pytest.mark.covering
    @pytest.mark.parametrize(
        ("column", "row"),
        [(0, 0), (1, 1), (2, 1), (0, 3), (1, 3), (2, 2)],
        ids=["first", "middle", "last", "stopped", "failed", "running"],
    )
    @pytest.mark.parametrize("panel", ["", "2"], ids=["first panel", "second panel"])
    def test_a_cell_of_a_heat_map_opens_its_trial(self, column: int, row: int, panel: str, browser: Shown) -> None:
        browser.click(browser.value(CELL % (panel, panel, column, row)))
        number = of_cell(column, row)
        assert (browser.value(SHOWN), browser.value(HASH)) == (f"Trial {number}", f"#trial={number}")

    def test_a_cell_that_has_not_been_run_opens_nothing(self, browser: Shown) -> None:
        browser.click(browser.value(CELL % ("", "", 5, 4)))
        assert (browser.value(SHOWN), browser.value(HASH)) == ("", "")

    @pytest.mark.parametrize("figure", ["curves", "parallel"])
    def test_a_line_opens_its_trial_between_its_points_as_well(self, figure: str, browser: Shown) -> None:
        lines = json.loads(browser.value(LINES % figure))
        assert len(lines) >= 7
        for trial in ("0", "6", "10"):
            browser.click(alone(lines, trial))
            assert (browser.value(SHOWN), browser.value(HASH)) == (f"Trial {trial}", f"#trial={trial}")

    def test_beside_every_line_nothing_is_opened(self, browser: Shown) -> None:
        lines = json.loads(browser.value(LINES % "parallel"))
        x, y = np.array(lines["0"]).T
        browser.click((float(x[0] + x[1]) / 2, float(y.min()) - 500))
        assert browser.value(SHOWN) == ""

    def test_a_dot_opens_its_trial(self, browser: Shown) -> None:
        script = """(() => {
            const div = document.querySelector("[data-figure=history]"), box = div.getBoundingClientRect();
            const [across, up] = [div._fullLayout.xaxis, div._fullLayout.yaxis], dots = div._fullData[0];
            const [x, y] = [dots.x[4], dots.y[4]];
            return [x, box.left + across._offset + across.d2p(x), box.top + up._offset + up.d2p(y)];
        })()"""
        number, *place = browser.value(script)
        browser.click((place[0], place[1]))
        assert (browser.value(SHOWN), browser.value(HASH)) == (f"Trial {number}", f"#trial={number}")

    @pytest.mark.parametrize("figure", ["heatmap", "curves", "parallel", "history"])
    def test_the_keyboard_goes_through_the_trials_of_a_figure(self, figure: str, browser: Shown) -> None:
        browser.value(f"document.querySelector('[data-figure={figure}]').focus()")
        for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft"):
            browser.press(key)
        told = browser.value("document.activeElement.getAttribute('aria-valuetext')")
        assert re.fullmatch(r"Trial 1, Global accuracy, validation \[%\]: \d+\.\d+", told)
        assert browser.value("document.querySelectorAll('.hoverlayer .hovertext').length") == 1, "it is shown as well"
        browser.press("Enter")
        assert (browser.value(SHOWN), browser.value(HASH)) == ("Trial 1", "#trial=1")
        browser.press("Escape")
        assert browser.value(SHOWN) == "" and browser.value(HASH) == ""
        assert browser.value("document.activeElement.dataset.figure") == figure, "the focus is where it was"

    def test_figures_are_reached_by_the_tabulator_in_the_order_of_the_page(self, browser: Shown) -> None:
        browser.value("document.querySelector('[data-figure=surface]').focus()")
        there = browser.value("[...document.querySelectorAll('.plot[role=slider]')].map((div) => div.dataset.figure)")
        found: list[str] = []
        for _ in range(40 * len(there)):
            browser.press("Tab")
            if name := browser.value("document.activeElement.dataset.figure || ''"):
                found.append(name)
            if name == there[-1]:
                break
        assert found == there[1:]
        assert {"surface", "heatmap", "curves", "parallel", "history"} <= set(there)

    def test_a_line_is_opened_on_a_small_screen(self, page: Path, browser: Shown) -> None:
        browser.look(page, 420, dark=False, paper=False)
        browser.click(browser.value(CELL % ("", "", 1, 1)))
        assert browser.value(SHOWN) == f"Trial {of_cell(1, 1)}"

    def test_a_row_is_opened_by_its_button_which_gets_the_focus_back(self, browser: Shown) -> None:
        script = """(() => { const b = document.querySelector("[data-table=trials] button.open"); b.focus();
            return b.textContent; })()"""
        number = browser.value(script)
        browser.press("Enter")
        assert (browser.value(SHOWN), browser.value(HASH)) == (f"Trial {number}", f"#trial={number}")
        assert browser.value("document.querySelectorAll('tr.chosen').length") == 1
        browser.press("ArrowLeft")
        assert browser.value(SHOWN) == f"Trial {int(number) - 1}", "the arrows go on from the open trial"
        browser.press("Escape")
        assert browser.value("document.activeElement.className") == "open"

    def test_the_address_opens_a_trial_and_an_unknown_one_none(self, page: Path, browser: Shown) -> None:
        browser.open(page, "#trial=6")
        browser.until(DRAWN)
        assert (
            browser.value(SHOWN) == "Trial 6" and browser.value("document.querySelectorAll('#trial svg').length") == 3
        )
        browser.value("location.hash = '#trial=9999'")
        browser.until(f"({SHOWN}) === ''", 10)
        assert browser.value(SHOWN) == ""
