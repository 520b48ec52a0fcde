"""A run's table of trials and its figures as files: CSV, LaTeX, PNG, SVG, PDF."""

from __future__ import annotations

from pathlib import Path

from analysis import style
from analysis.auto import load_one
from analysis.figures._registry import figures
from analysis.labels import Labels
from analysis.report import static
from analysis.report.page import write
from analysis.report.trials import trials
from analysis.runs import Paths, load_all
from search_spaces.errors import UserError, sentence


def write_tables(run: Paths, kind: str) -> list[Path]:
    """Writes `trials.csv` or `trials.tex` (`kind`: csv or latex) into each run directory; returns their paths.

    Of a search over several methods also `leaderboard.csv` or `leaderboard.tex`."""
    found, tables = [], []
    if (auto := load_one(run)) is not None:
        tables.append((auto.path / "leaderboard", auto.table()))
        run = list(auto.searches.values())
    tables += [(one.path / "trials", trials(one)) for one in load_all(run)]
    for place, table in tables:
        suffix, content = (".csv", table.csv()) if kind == "csv" else (".tex", table.latex())
        found.append(write(place.with_suffix(suffix), content))
    return found


def check_images(kind: str) -> None:
    """Raises `UserError` where `kind` is no format figures can be saved in."""
    if kind not in ("png", "svg", "pdf"):
        raise UserError(sentence("--images", "one of png, svg, pdf", kind))


def write_images(run: Paths, kind: str) -> list[Path]:
    """Every figure that can be drawn as `figures/<name>.<kind>` in the run directory (`kind`: png, svg or pdf).

    Raises `UserError` where kaleido or a browser is missing."""
    check_images(kind)
    written: list[Path] = []
    if (auto := load_one(run)) is not None:
        run = list(auto.searches.values())
    for one in load_all(run):
        labels = Labels.of([one])
        made = [(n, f.draw([one], labels)) for n, f in figures().items() if not f.many and f.drawable(one)]
        folder = one.path / "figures"
        targets = [folder / f"{n}.{kind}" for n, _ in made]
        for _, figure in made:
            figure.update_layout(width=static.WIDTH, paper_bgcolor=style.PAPER)
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be written: {error.strerror or error}.") from error
        static.images([f for _, f in made], targets, kind)
        written += targets
    return written
