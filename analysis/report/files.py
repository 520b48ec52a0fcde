"""A run's table of trials and its figures as files: CSV, LaTeX, PNG, SVG, PDF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import style
from analysis.auto import load_one
from analysis.figures import figures
from analysis.labels import Labels
from analysis.report.page import Page, escape, write
from analysis.report.terms import explained, mentioned
from analysis.report.trials import trials
from analysis.runs import Paths, load_runs
from search_spaces.errors import UserError, sentence
from search_spaces.files import cannot_write
from search_spaces.leftovers import temporary_folder

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from analysis.figure import Figure

#: Formats of pictures, and of tables.
PICTURES, TEXTS = ("png", "svg", "pdf"), ("csv", "tex", "md", "html")
#: Of a picture, in pixels.
WIDTH = 1000
_NO_BROWSER = (
    "Pictures are drawn by a Chrome or Chromium browser, and none was found. Install one (Debian: apt install "
    "chromium), or save figures from the report."
)


def write_tables(run: Paths, kind: str) -> list[Path]:
    """Writes `trials.csv` or `trials.tex` (`kind`: csv or latex) into each run directory; returns their paths.

    Of a search over several methods also `leaderboard.csv` or `leaderboard.tex`."""
    found, tables = [], []
    if (auto := load_one(run)) is not None:
        tables.append((auto.path / "leaderboard", auto.table()))
        run = list(auto.searches.values())
    tables += [(one.path / "trials", trials(one)) for one in load_runs(run)]
    for place, table in tables:
        suffix, content = (".csv", table.csv()) if kind == "csv" else (".tex", table.latex())
        found.append(write(place.with_suffix(suffix), content))
    return found


def check_images(kind: str) -> None:
    """Raises `UserError` where `kind` is no format figures can be saved in."""
    if kind not in PICTURES:
        raise UserError(sentence("--images", f"one of {', '.join(PICTURES)}", kind))


def file_format(path: Path, kind: str | None, *, is_table: bool) -> str:
    """The format in which a table or figure is written: `kind`, by default the path's suffix. Raises `UserError` where
    it cannot be written so, or the suffix is that of another format."""
    suffix = path.suffix.lstrip(".").lower()
    wanted = (kind or suffix).lower()
    allowed = (*PICTURES, *(TEXTS if is_table else ("html",)))
    if wanted not in allowed:
        raise UserError(sentence("format", f"one of {', '.join(allowed)}", wanted, "--format"))
    if suffix != wanted and suffix in (*PICTURES, *TEXTS):
        fix = f"Leave --format out, or give a file ending in .{wanted}."
        raise UserError(sentence("format", f"{suffix}, as {path.name} ends so", wanted, "--format", fix))
    return wanted


def write_images(run: Paths, kind: str) -> list[Path]:
    """Every figure that can be drawn as `figures/<name>.<kind>` in the run directory (`kind`: png, svg or pdf).

    Raises `UserError` where kaleido or a browser is missing."""
    check_images(kind)
    written: list[Path] = []
    if (auto := load_one(run)) is not None:
        run = list(auto.searches.values())
    for one in load_runs(run):
        labels = Labels.of([one])
        made = [(n, f.draw([one], labels)) for n, f in figures().items() if not f.many and f.drawable(one)]
        folder = one.path / "figures"
        targets = [folder / f"{n}.{kind}" for n, _ in made]
        for _, figure in made:
            figure.update_layout(width=WIDTH, paper_bgcolor=style.PAPER)
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be written: {error.strerror or error}.") from error
        draw_pictures([f for _, f in made], targets, kind)
        written += targets
    return written


def write_picture(figure: go.Figure, path: Path, kind: str) -> Path:
    """Writes a figure as a picture, whole or not at all. Raises `UserError` where that is not possible."""
    figure.update_layout(width=figure.layout.width or WIDTH, paper_bgcolor=style.PAPER)
    with temporary_folder("fedtune-figure") as (folder, _):
        made = folder / f"figure.{kind}"
        draw_pictures([figure], [made], kind)
        return write(path, made.read_bytes())


def write_figure(drawn: go.Figure, of: Figure[Any], path: Path, kind: str) -> Path:
    """Writes what `of` drew: as a page that says how it is read, or as a picture. Raises as `write_picture`."""
    return write(path, figure_page(drawn, of.title, of.read)) if kind == "html" else write_picture(drawn, path, kind)


def draw_pictures(figures: Sequence[go.Figure], targets: Sequence[Path], kind: str) -> None:
    """Draws all figures with one browser. Raises `UserError` where kaleido or a browser is missing."""
    try:
        import kaleido  # noqa: F401
        import plotly.io as pio
    except ImportError:
        raise UserError("Pictures need the package kaleido. Install it with: pip install 'fedtune[images]'.") from None
    if not figures:
        return
    try:
        # Kaleido's own size would win over that of the layout.
        sizes = [(figure.layout.width or WIDTH, figure.layout.height or 500) for figure in figures]
        widths, heights = map(list, zip(*sizes, strict=True))
        scale = 2 if kind == "png" else 1
        pio.write_images(list(figures), list(targets), format=kind, scale=scale, width=widths, height=heights)
    except OSError as error:
        raise cannot_write(targets[0].parent, error, "Give another place with -o.") from error
    except Exception as error:
        if any(word in str(error).lower() or word in type(error).__name__.lower() for word in ("chrome", "browser")):
            raise UserError(_NO_BROWSER) from error
        raise


def figure_page(figure: go.Figure, title: str, read: Sequence[str]) -> str:
    """A page with one figure, that needs no network."""
    made = Page(title)
    made.figure("figure", title, figure, read)
    if words := explained(made.told, *mentioned(json.dumps(made.figures["figure"], ensure_ascii=False))):
        made.add(f'<section class="card">{words}</section>')
    return made.html()


def table_page(title: str, inner: str) -> str:
    """A page of one table."""
    made = Page(title)
    words = explained(made.told, *mentioned(inner))
    made.add(f'<section class="card"><h1>{escape(title)}</h1>{inner}{words}</section>')
    return made.html()
