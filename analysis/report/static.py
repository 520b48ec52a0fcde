"""Figures and tables as files that stand alone: PNG, SVG, PDF, and pages of one figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import style
from analysis.labels import text
from analysis.report.page import Page, escape, write
from analysis.report.terms import explained, mentioned
from search_spaces.errors import UserError
from search_spaces.files import cannot_write
from search_spaces.leftovers import temporary_folder

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from analysis.figure import Figure

#: Formats of pictures.
KINDS = ("png", "svg", "pdf")
#: Of a picture, in pixels.
WIDTH = 1000
_NO_BROWSER = (
    "Pictures are drawn by a Chrome or Chromium browser, and none was found. Install one (Debian: apt install "
    "chromium), or save figures from the report."
)


def image(figure: go.Figure, path: Path, kind: str) -> Path:
    """Writes a figure as a picture, whole or not at all. Raises `UserError` where that is not possible."""
    figure.update_layout(width=figure.layout.width or WIDTH, paper_bgcolor=style.PAPER)
    with temporary_folder("fedtune-figure") as (folder, _):
        made = folder / f"figure.{kind}"
        images([figure], [made], kind)
        return write(path, made.read_bytes())


def save(drawn: go.Figure, of: Figure[Any], path: Path, kind: str) -> Path:
    """Writes what `of` drew: as a page that says how it is read, or as a picture. Raises as `image`."""
    return write(path, page(drawn, of.title, of.read)) if kind == "html" else image(drawn, path, kind)


def images(figures: Sequence[go.Figure], targets: Sequence[Path], kind: str) -> None:
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


def page(figure: go.Figure, title: str, read: Sequence[str]) -> str:
    """A page with one figure, that needs no network."""
    made = Page(title)
    made.figure("figure", title, figure, read)
    if words := explained(made.told, *mentioned(json.dumps(made.figures["figure"], ensure_ascii=False))):
        made.add(f'<section class="card">{words}</section>')
    return made.html()


def bare(title: str, inner: str) -> str:
    """A page of one table."""
    made = Page(title)
    words = explained(made.told, *mentioned(inner))
    made.add(f'<section class="card"><h1>{escape(title)}</h1>{inner}{words}</section>')
    return made.html()


def drawn_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """A table as a figure, for pictures. Cells may hold the markup that Plotly reads."""
    import plotly.graph_objects as go

    widest = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    line = {"color": style.GRID}
    figure = go.Figure(
        go.Table(
            columnwidth=[min(40, max(9, width)) for width in widest],
            header={
                "values": [f"<b>{text(title)}</b>" for title in head],
                "align": "left",
                "fill": {"color": style.PAPER},
                "line": line,
            },
            cells={
                "values": [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in head],
                "align": "left",
                "fill": {"color": style.PAPER},
                "line": line,
                "height": 26,
            },
        )
    )
    style.base(figure)
    figure.update_layout(height=70 + 27 * len(rows), margin={"l": 10, "r": 10, "t": 10, "b": 10})
    return figure
