"""The page as a browser draws it: wide and narrow, bright and dark, and on paper. Text is measured by the boxes it is
drawn in and by the colours behind it."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.report import build
from analysis.runs import load_run
from search_spaces import kept_images, run_folder
from tests.analysis import synthetic, varied
from tests.analysis.browser import BROWSER, Shown
from tests.analysis.figures import kept
from tests.analysis.figures.kept import name_classes
from tests.analysis.figures.test_attack import attacked

pytestmark = BROWSER

#: Everything that is wrong on the page, as sentences.
MEASURE = r"""
(async () => {
  const found = problems.splice(0);
  window.onButtons = 0;
  const corners = (r) => [r.left, r.top, r.right, r.bottom].map(Math.round).join(" ");
  // A section on sheets that lie on their side has their width.
  const across = document.querySelector(".broad") ? 1060 : innerWidth;
  if (document.documentElement.scrollWidth > across + 1) found.push("the page is wider than the window");
  const isText = (t) => t.textContent.trim() && t.getClientRects().length && !t.closest(".hoverlayer");
  for (const div of document.querySelectorAll(".plot")) {
    const box = div.getBoundingClientRect(), name = div.dataset.figure;
    const texts = [...div.querySelectorAll(".main-svg text")].filter(isText);
    const boxes = texts.map((t) => [t.textContent.trim(), t.getBoundingClientRect()]);
    const paper = document.documentElement.classList.contains("paper");
    for (const t of texts) {
      const size = parseFloat(getComputedStyle(t).fontSize);
      if (!paper && size < 11) found.push(`${name}: "${t.textContent.trim()}" has ${size} px`);
    }
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
    // The buttons that come up with the pointer, where there are any.
    const bar = div.querySelector(".modebar")?.getBoundingClientRect();
    if (bar?.width) {
      onButtons++;
      if (bar.top < div.parentElement.getBoundingClientRect().top - 1) found.push(`${name}: the buttons are clipped`);
      const around = [...div.closest("section").querySelectorAll("h2, h3, p, figcaption")];
      for (const [text, r] of [...boxes, ...around.map((e) => [e.textContent, e.getBoundingClientRect()])]) {
        const across = Math.min(r.right, bar.right) - Math.max(r.left, bar.left);
        const down = Math.min(r.bottom, bar.bottom) - Math.max(r.top, bar.top);
        if (across > 1 && down > 1) found.push(`${name}: the buttons lie over "${text}": ${across} × ${down}`);
      }
    }
  }
  // What is written outside of figures: a line is not cut by its box, unless that can be scrolled, and what stands side
  // by side or one below the other does not lie on one another.
  const scrolls = (e) => e.closest(".scroll, pre, .command, figure[tabindex], nav");
  const cut = (e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== "visible";
  for (const e of document.querySelectorAll("main *, aside, aside *")) {
    if (!e.closest("svg, .plot") && e.clientWidth && cut(e) && !scrolls(e))
      found.push(`<${e.tagName}> is cut: ${e.textContent.slice(0, 60)}`);
  }
  const lines = (e) => {
    const text = document.createRange();
    text.selectNodeContents(e);
    return [...text.getClientRects()].filter((r) => r.width > 1);
  };
  const shared = (r, s, across, down) =>
    Math.min(r.right, s.right) - Math.max(r.left, s.left) > across
    && Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top) > down;
  // What is folded has boxes all the same, wherever they would begin.
  const folded = (e) => e.closest("details:not([open]) > :not(summary)");
  const written = "h1, h2, h3, p, td, th, figcaption, button, pre";
  const blocks = [...document.querySelectorAll(`:is(main, aside) :is(${written})`)]
    .filter((e) => e.getClientRects().length && e.textContent.trim() && !e.closest(".plot") && !folded(e))
    .map((e) => [e, e.closest("aside, section"), e.getBoundingClientRect(), lines(e)]);
  blocks.forEach(([a, at, r, one], i) => blocks.slice(i + 1, i + 12).forEach(([b, place, s, other]) => {
    if (at !== place || a.contains(b) || !shared(r, s, 0, 0)) return;
    if (one.some((x) => other.some((y) => shared(x, y, 3, 4))))
      found.push(`"${a.textContent.slice(0, 40)}" and "${b.textContent.slice(0, 40)}" overlap`);
  }));
  // The contrast of WCAG 2: relative luminances of text and of what is behind it.
  const linear = (x) => x / 255 <= 0.03928 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const parts = (colour) => {
    const [r, g, b, a] = (colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
    return [r, g, b, a ?? 1];
  };
  const filled = (e) => {
    const drawn = getComputedStyle(e), [r, g, b, a] = parts(drawn.fill);
    return [r, g, b, a * drawn.fillOpacity * drawn.opacity];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((c, i) => a * c + (1 - a) * below[i]);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c[3] === 1) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const check = (where, text, colour, below) => {
    const [a, b] = [light(over(colour, below)), light(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)} of ${where}: ${text}`);
  };
  const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  for (const e of document.querySelectorAll("main *, header *, footer, aside *")) {
    if (e.closest("svg") || e.disabled || !e.getClientRects().length || !hasText(e)) continue;
    check(`<${e.tagName} ${e.className}>`, e.textContent, parts(getComputedStyle(e).color), behind(e));
  }
  // In figures, what is behind a text may be a box of its own, or the pixels of a picture, such as a heat map's cells.
  window.onPictures = 0;
  for (const div of document.querySelectorAll(".plot")) {
    const pictures = [];
    for (const image of div.querySelectorAll("image")) {
      const copy = new Image(), canvas = document.createElement("canvas");
      copy.src = image.href.baseVal;
      await copy.decode();
      [canvas.width, canvas.height] = [copy.naturalWidth, copy.naturalHeight];
      canvas.getContext("2d").drawImage(copy, 0, 0);
      pictures.push([image.getBoundingClientRect(), canvas]);
    }
    for (const text of [...div.querySelectorAll(".main-svg text")].filter(isText)) {
      const own = text.getBoundingClientRect();
      const [x, y] = [(own.left + own.right) / 2, (own.top + own.bottom) / 2];
      let below = behind(div);
      for (const [r, canvas] of pictures) {
        if (x < r.left || x >= r.right || y < r.top || y >= r.bottom) continue;
        const at = [(x - r.left) / r.width * canvas.width, (y - r.top) / r.height * canvas.height];
        const pixel = canvas.getContext("2d").getImageData(...at.map(Math.floor), 1, 1).data;
        if (pixel[3]) onPictures++;
        below = over([...pixel.slice(0, 3), pixel[3] / 255], below);
      }
      const box = text.parentElement.querySelector(":scope > rect.bg");
      if (box) below = over(filled(box), below);
      check(div.dataset.figure, text.textContent, filled(text), below);
    }
  }
  return JSON.stringify(found);
})()
"""


#: How every page is looked at: width in pixels, dark or bright, on paper or on a screen.
VIEWS = pytest.mark.parametrize(
    ("width", "dark", "paper"),
    [
        (1200, False, False),
        (1200, True, False),
        (420, False, False),
        (420, True, False),
        (703, False, True),
        (703, True, True),
    ],
    ids=["wide", "wide and dark", "narrow", "narrow and dark", "paper", "paper of a dark page"],
)


def faults(browser: Shown, page: Path, width: int, dark: bool, paper: bool, address: str = "") -> Any:
    """What is clipped, overlaps or is hard to read on a page, as the browser draws it."""
    browser.look(page, width, dark, paper, address)
    return json.loads(browser.value(MEASURE))


@pytest.fixture(scope="module")
def pages(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("drawn")
    synthetic.write(folder / "part", sampler="grid", rounds=3, seeds=(0,), cells=21)
    synthetic.write(folder / "many", trials=40, keys=(*synthetic.many(15), "lr"), figures=())
    varied.fairness(folder / "varied")
    # Eight of its trials ran to their end, so every axis has few values, some of which lie close to one another.
    synthetic.write(folder / "few", trials=14, keys=("alpha", "lr", "merge_op"), figures=())
    runs = {"tpe": root / "tpe"} | {name: folder / name for name in ("part", "many", "few", "varied")}
    return {name: build(run, folder / f"{name}.html") for name, run in runs.items()}


@pytest.mark.covering
@VIEWS
@pytest.mark.parametrize("name", ["tpe", "part", "many", "few", "varied"])
def test_nothing_is_clipped_overlaps_or_is_hard_to_read(
    name: str, width: int, dark: bool, paper: bool, pages: dict[str, Path], browser: Shown
) -> None:
    assert faults(browser, pages[name], width, dark, paper) == []
    count = browser.value("document.querySelectorAll('.plot').length")
    assert browser.value("onButtons") == (count if width == 1200 else 0), (
        "the buttons were measured where there are any"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["bright", "dark"])
def test_the_number_of_every_cell_of_a_heat_map_can_be_read(
    dark: bool, root: Path, tmp_path_factory: pytest.TempPathFactory, browser: Shown
) -> None:
    """A whole grid: its cells go through the whole scale of colours, in every panel."""
    page = tmp_path_factory.getbasetemp() / "grid.html"
    if not page.exists():
        build(root / "grid", page)
    assert faults(browser, page, 1200, dark, paper=False) == []
    cells = len(synthetic.ALPHA) * len(synthetic.LAMBDA)
    assert browser.value("onPictures") == 4 * cells, "each number was measured on its cell"


def test_long_names_of_classes_stand_upright_where_they_do_not_fit(root: Path, tmp_path: Path, browser: Shown) -> None:
    """Aslant they would lie over one another below a confusion matrix."""
    run = load_run(shutil.copytree(root / "final", tmp_path / "final"))
    for trial, folder in enumerate(sorted((run.path / run_folder.TRIALS).iterdir())):
        found = {str(1000 + trial): {"round": 9, "test": [[5, 1, 0, 0]] * 4, "validation": [[1, 0, 2, 1]] * 4}}
        (folder / run_folder.CONFUSION).write_text(json.dumps(found))
    name_classes(run, ["asthma", "diabetes", "high blood pressure", "no complaint"])
    page = build(run.path)
    for width, paper in ((420, False), (703, True)):
        assert faults(browser, page, width, False, paper) == []
    assert browser.value("document.querySelectorAll('[data-figure=confusion] .xtick').length") == 8


def test_outcomes_and_the_options_of_commands_are_not_broken(pages: dict[str, Path], browser: Shown) -> None:
    """What is copied is the command as it was written, and every outcome of the trials table is one line, in a wide and
    in a narrow window."""
    for page, width in itertools.product(pages.values(), (420, 1200)):
        browser.look(page, width, dark=False, paper=False)
        script = """JSON.stringify([
            [...document.querySelectorAll(".command code")].map((code) => code.textContent),
            [...document.querySelectorAll(".command span")].map((s) => [s.textContent, s.getClientRects().length]),
            [...document.querySelectorAll("[data-table] td:has(.dot)")].map((e) => {
                const text = document.createRange();
                text.selectNodeContents(e.lastChild);
                return text.getClientRects().length;
            }),
        ])"""
        commands, words, outcomes = json.loads(browser.value(script))
        assert commands and all(command.startswith("fedtune ") and "  " not in command for command in commands)
        assert {"--seeds"} <= {word for word, _ in words} and {lines for _, lines in words} == {1}
        assert len(outcomes) > 5 and set(outcomes) == {1}


def test_on_paper_every_axis_is_drawn_at_its_full_size(pages: dict[str, Path], browser: Shown) -> None:
    """Sixteen parameters and two metrics do not fit side by side: the axes go on below, each row from the last axis of
    the row above; on a screen they are one row again."""
    browser.look(pages["many"], 703, dark=False, paper=True)
    rows = """JSON.stringify([...document.querySelectorAll("#parallel .plot")].map((div) => [
        Number(div.style.zoom || 1), [...div.querySelectorAll(".xtick")].map((tick) => tick.textContent)]))"""
    found = json.loads(browser.value(rows))
    assert len(found) == 4 and all(zoom == 1 for zoom, _ in found)
    assert all(above[1][-1] == below[1][0] for above, below in itertools.pairwise(found))
    assert len({title for _, titles in found for title in titles}) == 18
    browser.look(pages["many"], 1200, dark=False, paper=False)
    assert [len(titles) for _, titles in json.loads(browser.value(rows))] == [18]


def test_on_paper_no_figure_is_higher_than_a_sheet(pages: dict[str, Path], browser: Shown) -> None:
    for page in pages.values():
        browser.look(page, 703, dark=False, paper=True)
        heights = "[...document.querySelectorAll('.plot')].map((div) => div.getBoundingClientRect().height)"
        assert all(0 < height <= 841 for height in browser.value(heights))


def test_on_paper_the_trials_table_has_its_head_and_all_rows(pages: dict[str, Path], browser: Shown) -> None:
    browser.look(pages["many"], 703, dark=False, paper=True)
    script = """JSON.stringify([
        document.querySelectorAll("[data-table=trials] tbody tr").length,
        [...document.querySelectorAll("[data-table=trials] th button")].every((b) => b.getClientRects().length),
        [...document.querySelectorAll("main *")].filter((e) => !e.closest("svg"))
            .filter((e) => e.getBoundingClientRect().right > (e.closest(".broad") ? 1060 : 702))
            .map((e) => `${e.tagName} ${e.className}`),
    ])"""
    assert json.loads(browser.value(script)) == [40, True, []]


def test_a_trials_table_too_wide_for_a_sheet_stands_on_sheets_on_their_side(
    pages: dict[str, Path], browser: Shown
) -> None:
    """Its numbers would be four points high. The rest of the page, and a narrow table, stay upright."""
    sizes = """[...document.querySelectorAll("[data-table=trials] td")].map((cell) =>
        parseFloat(getComputedStyle(cell).fontSize) * Number(cell.closest("table").style.zoom || 1) * 0.75)"""
    for name, lying in (("many", True), ("tpe", False)):
        browser.look(pages[name], 703, dark=False, paper=True)
        assert min(browser.value(sizes)) >= 6
        upright = [width < height for width, height in browser.sheets()]
        assert any(upright) and all(upright) is not lying
        browser.look(pages[name], 1200, dark=False, paper=False)
        assert browser.value("document.querySelectorAll('.broad').length") == 0


CLASSES, SEED = 12, 7


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with images of two generators, mean images, decision boundaries, features and an attack."""
    folder = tmp_path_factory.mktemp("pictures") / "run"
    rng = np.random.default_rng(0)

    def images(*shape: int) -> np.ndarray:
        return rng.integers(0, 256, (*shape, 1, 8, 8), dtype=np.uint8)

    attacked(root, folder, "A method of a long name", "digits", images(5))
    plane = np.add.outer(np.arange(kept_images.SIDE), np.arange(kept_images.SIDE)) // kept_images.SIDE
    for round_ in range(1, 31):
        arrays = {"plane": plane, "teacher": plane.T}
        for source in kept_images.SOURCES:
            arrays |= {source: images(CLASSES, 8), f"{source}_mean": images(CLASSES)}
            arrays[f"{source}_count"] = np.full(CLASSES, 64)
        arrays |= {"features": rng.integers(-9000, 9000, (CLASSES, 64, 2)), "features_share": np.array([310, 120])}
        arrays |= {"features_seen": rng.integers(-9000, 9000, (300, 2)), "features_labels": np.arange(300) % CLASSES}
        kept.write(folder, SEED, round_, arrays)
    of_data = {"data": images(CLASSES, 8), "data_mean": images(CLASSES), "data_count": np.full(CLASSES, 50)}
    points = {"data_points": rng.integers(0, 256, (90, 2), dtype=np.uint8), "data_labels": np.arange(90) % 3}
    kept.write(folder, SEED, None, of_data | points)
    return build(folder, folder.parent / "page.html")


@VIEWS
def test_nothing_is_clipped_or_overlaps(width: int, dark: bool, paper: bool, page: Path, browser: Shown) -> None:
    text = page.read_text()
    for name in ("images", "averages", "boundary", "features", "attack", "partition"):
        assert f'data-figure="{name}"' in text
    assert faults(browser, page, width, dark, paper) == []
