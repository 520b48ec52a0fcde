"""A run's table of trials and its figures as files: CSV, LaTeX, PNG, SVG, PDF."""

from __future__ import annotations

from pathlib import Path

from analysis import style
from analysis.figures._registry import figures
from analysis.labels import Labels
from analysis.report.page import write
from analysis.report.trials import trials
from analysis.runs import Paths, load_all
from search_spaces.errors import UserError, sentence


def write_tables(run: Paths, kind: str) -> list[Path]:
    """Writes `trials.csv` or `trials.tex` (`kind`: csv or latex) into each run directory; returns their paths."""
    found = []
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
    try:
        import kaleido  # noqa: F401
        import plotly.io as pio
    except ImportError:
        raise UserError(
            "Images need the package kaleido (--images). Install it with: pip install 'fedtune[images]'."
        ) from None
    written: list[Path] = []
    for one in load_all(run):
        labels = Labels.of([one])
        made = [(n, f.draw([one], labels)) for n, f in figures().items() if not f.many and f.needs([one]) is None]
        targets = [one.path / "figures" / f"{n}.{kind}" for n, _ in made]
        try:
            (one.path / "figures").mkdir(exist_ok=True)
            for _, figure in made:
                figure.update_layout(width=1000, paper_bgcolor=style.PAPER)
            pio.write_images([f for _, f in made], targets, scale=2 if kind == "png" else 1)
        except OSError as error:
            raise UserError(f"{one.path / 'figures'} cannot be written: {error.strerror or error}.") from error
        except Exception as error:
            if "chrome" in str(error).lower() or "browser" in str(error).lower():
                raise UserError(
                    "Images are drawn by a Chrome or Chromium browser, and none was found (--images). "
                    "Install one (Debian: apt install chromium), or save figures from the report."
                ) from error
            raise
        written += targets
    return written
