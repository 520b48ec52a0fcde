"""Small images side by side in one picture, and where such a picture stands in a figure."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from analysis import style


@dataclass(frozen=True)
class ImageGrid:
    """A picture of tiles in rows and columns, and the middles of these in its pixels."""

    #: The PNG as an address.
    source: str
    width: int
    height: int
    columns: tuple[float, ...]
    rows: tuple[float, ...]


def image_grid(tiles: Sequence[Sequence[NDArray[np.uint8] | None]], below: float = 0.1) -> ImageGrid:
    """Rows of images `(ch, H, W)` of one size; None leaves a place empty. What is empty lets the page through, so a
    sheet stands on a bright page and on a dark one. Unless there are three channels, the first is shown as grey.
    `below` is the room under each row, as a part of an image."""
    from PIL import Image

    first = next(tile for row in tiles for tile in row if tile is not None)
    _, height, width = first.shape
    gap = max(1, round(0.1 * max(height, width)))
    under = max(1, round(below * height))
    down, across = height + under, width + gap
    last = under if below > 0.1 else 0
    canvas = np.zeros((len(tiles) * down - under + last, max(map(len, tiles)) * across - gap, 4), dtype=np.uint8)
    for i, row in enumerate(tiles):
        for j, tile in enumerate(row):
            if tile is not None:
                place = canvas[i * down : i * down + height, j * across : j * across + width]
                place[..., :3] = (tile if len(tile) == 3 else np.repeat(tile[:1], 3, axis=0)).transpose(1, 2, 0)
                place[..., 3] = 255
    buffer = io.BytesIO()
    Image.fromarray(canvas).save(buffer, format="PNG", optimize=True)
    return ImageGrid(
        "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode(),
        canvas.shape[1],
        canvas.shape[0],
        tuple(j * across + (width - 1) / 2 for j in range(max(map(len, tiles)))),
        tuple(i * down + (height - 1) / 2 for i in range(len(tiles))),
    )


def place_grid(
    figure: go.Figure, panel: int, one: ImageGrid, x: str, columns: Sequence[str], y: str, rows: Sequence[str]
) -> None:
    """Draws a sheet into a panel: pixels stay square and sharp. `x`, `y` are the axes' titles, `columns`, `rows` what
    stands at each."""
    n = "" if panel == 1 else str(panel)
    figure.add_trace(go.Image(source=one.source, hoverinfo="skip", **style.axes(panel)))
    plain = {"showgrid": False, "zeroline": False, "tickmode": "array", "constrain": "domain"}
    style.title_axes(
        figure,
        panel,
        x,
        y,
        xaxis=plain
        | {
            "range": [-0.5, one.width - 0.5],
            "tickvals": list(one.columns),
            "ticktext": list(columns),
            "constraintoward": "left",
        },
        yaxis=plain
        | {
            "range": [one.height - 0.5, -0.5],
            "tickvals": list(one.rows),
            "ticktext": list(rows),
            "scaleanchor": f"x{n}",
            "constraintoward": "top",
        },
    )


def without_axes(figure: go.Figure) -> go.Figure:
    """Without lines and ticks along the axes, once `style.panels` has placed the panels: the images stand alone."""
    figure.update_xaxes(showline=False, ticks="")
    figure.update_yaxes(showline=False, ticks="")
    return figure


def height_of(one: ImageGrid, width: float, most: int = 620) -> int:
    """How high a panel of that width in pixels is to be."""
    return int(min(most, max(90, width * one.height / one.width)))
