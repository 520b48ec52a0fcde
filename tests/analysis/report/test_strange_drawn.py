"""Strange runs as a browser draws them: no script of theirs runs, nothing is asked for, and all can be read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analysis.report import build
from analysis.report.comparison import write_figure
from analysis.runs.mappings import read_yaml
from analysis.tables.compare import compare
from fedtune.record.run_directory import write_document
from search_spaces import run_folder
from tests.analysis import strange
from tests.analysis.browser import BROWSER, Shown
from tests.analysis.report.test_drawn import faults
from tests.fedtune import kinds
from tests.security import prepared

pytestmark = BROWSER

#: What each page must tell its reader, on the screen.
SAYS = {
    "half": ["Winner: trial", "5 of 12", "fedtune resume"],
    "empty": ["There is no result", "No trial has begun of the 12", "fedtune resume"],
    "one": ["Winner: trial 0", "Why, and how sure that is", "fedtune run"],
    "crashed": ["There is no result", "All 3 trials failed.", "the data set has no images", "fedtune extend"],
    "hostile": ["Winner: trial", "</script><img src=x onerror=alert(1)>", "fedtune run"],
    "hostile-varied": ["Best configuration under each condition", "</script><img src=x onerror=alert(1)>"],
    "hostile-failed": ["All 8 trials failed.", "RuntimeError: </script><img src=x onerror=alert(1)>"],
    "hostile-compared": ["<script><img src=x onerror=alert(1)>"],
    "auto": ["fedavg", "fedprox", "dfrd was left out: </script><img src=x onerror=alert(1)>"],
    "auto-empty": ["fedavg", "dfrd was left out"],
}
#: All tests of a page follow one another, so that it is loaded once.
BY_PAGE = pytest.mark.parametrize("name", SAYS, scope="module")


def several(folder: Path, fresh: bool) -> Path:
    """A search over methods, one of which was left out for a hostile reason; without `fresh` nothing has been run."""
    made = kinds.auto(folder) if fresh else prepared.several(folder)
    record = made / run_folder.AUTO
    write_document(record, read_yaml(record) | {"excluded": [{"name": "dfrd", "why": strange.EVIL}]})
    return made


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top, drawn = tmp_path_factory.mktemp("strange"), tmp_path_factory.mktemp("pages")
    hostile = strange.hostile(top / "hostile")
    runs = {name: getattr(strange, name)(top / name) for name in ("half", "empty", "one", "crashed")}
    runs |= {
        "hostile": hostile,
        "hostile-varied": strange.hostile(top / "varied", varied=True),
        "hostile-failed": strange.hostile(top / "failed", failed=True),
        "auto": several(top / strange.FOLDER, fresh=True),
        "auto-empty": several(top / "nothing", fresh=False),
    }
    found = {name: build(run, drawn / f"{name}.html") for name, run in runs.items()}
    both = compare([hostile, runs["half"]])
    return found | {"hostile-compared": write_figure(both, drawn / "compared.html")}


@pytest.mark.covering
@pytest.mark.parametrize(
    ("width", "dark", "paper"),
    [(1200, False, False), (420, True, False), (703, False, True)],
    ids=["wide", "narrow and dark", "paper"],
)
@BY_PAGE
def test_nothing_is_clipped_overlaps_or_is_hard_to_read(
    name: str, width: int, dark: bool, paper: bool, pages: dict[str, Path], browser: Shown
) -> None:
    """Also where texts are far longer than people make them."""
    assert faults(browser, pages[name], width, dark, paper) == []


@BY_PAGE
def test_the_page_says_what_is_known_and_no_text_became_a_part_of_it(
    name: str, pages: dict[str, Path], browser: Shown
) -> None:
    """A script that ran, or a picture that was asked for, would be noted by the probe as an error or as refused by the
    page's policy."""
    browser.look(pages[name], 1200, dark=False, paper=False)
    assert browser.value("problems.join()") == ""
    shown, strangers = json.loads(
        browser.value(
            "JSON.stringify([document.body.innerText, document.querySelectorAll('[onerror], img[src=x]').length])"
        )
    )
    assert [text for text in SAYS[name] if text not in " ".join(shown.split())] == [] and strangers == 0
    assert not any(harm in shown for harm in ("\x1b", "\x07", "\u202e"))


def test_a_figure_that_cannot_be_drawn_keeps_none_of_the_others_away(
    pages: dict[str, Path], tmp_path: Path, browser: Shown
) -> None:
    """Its place says why, on the screen, in the other colours and on paper."""
    text = pages["half"].read_text()
    (kept,) = re.findall(r'<script[^>]*id="page-data"[^>]*>(.*?)</script>', text, re.DOTALL)
    data = json.loads(kept)
    broken, *others = data["figures"]
    assert others
    for size in ("wide", "middle", "narrow"):  # `height` is a number, so nothing can be put into it
        data["figures"][broken]["layout"].setdefault("meta", {}).setdefault(size, {})["height.x"] = 1
    page = tmp_path / "broken.html"
    page.write_text(text.replace(kept, json.dumps(data).replace("<", "\\u003c")))
    browser.open(page)
    drawn = "[...document.querySelectorAll('.plot')].filter((div) => div.querySelector('.main-svg'))"
    names = f"JSON.stringify({drawn}.map((div) => div.dataset.figure))"
    browser.until(f"{drawn}.length === {len(others)}")
    said = f"document.querySelector('[data-figure=\"{broken}\"]').innerText"
    for event in ("", "beforeprint", "afterprint"):
        if event:
            browser.value(f"dispatchEvent(new Event('{event}'))")
        browser.value("document.getElementById('theme').click()")
        assert sorted(json.loads(browser.value(names))) == sorted(others)
        assert browser.value(said).startswith("This figure could not be drawn: ")
    # One complaint, of that figure: it was not tried again.
    assert browser.value("problems.length") == 1
