"""A run's table of trials and its figures as files: CSV, LaTeX, PNG, SVG, PDF."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from analysis import style
from analysis.auto import is_auto, load
from analysis.figure import Figure
from analysis.figures._registry import figures
from analysis.labels import Labels
from analysis.report import static
from analysis.report.page import write
from analysis.report.trials import trials
from analysis.runs import Paths, Run, load_all
from search_spaces.errors import UserError, sentence


def write_tables(run: Paths, kind: str) -> list[Path]:
    """Writes `trials.csv` or `trials.tex` (`kind`: csv or latex) into each run directory; returns their paths.

    Of a search over several methods also `leaderboard.csv` or `leaderboard.tex`."""
    found = []
    several = run if isinstance(run, (str, os.PathLike)) else run[0] if len(run) == 1 else None
    if isinstance(several, (str, os.PathLike)) and is_auto(several):
        whole = load(several)
        content = whole.table().csv() if kind == "csv" else whole.table().latex()
        found.append(write(whole.path / f"leaderboard.{'csv' if kind == 'csv' else 'tex'}", content))
        run = list(whole.searches.values())
    for one in load_all(run):
        table = trials(one)
        found.append(
            write(
                one.path / f"trials.{'csv' if kind == 'csv' else 'tex'}",
                table.csv() if kind == "csv" else table.latex(),
            )
        )
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
    one_folder = run if isinstance(run, (str, os.PathLike)) else run[0] if len(run) == 1 else None
    if isinstance(one_folder, (str, os.PathLike)) and is_auto(one_folder):
        run = list(load(one_folder).searches.values())
    for one in load_all(run):
        labels = Labels.of([one])
        made = [(n, f.draw([one], labels)) for n, f in figures().items() if not f.many and _whole(one, f)]
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


def _whole(run: Run, figure: Figure[Any]) -> bool:
    """Whether a figure can be drawn of the run; of one under several conditions of the experiment, of all of them."""
    return (figure.across or not run.crossed) and figure.needs([run]) is None
