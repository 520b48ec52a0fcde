"""What a figure is.

A figure is one file in `analysis/figures`; its name there is its name everywhere. It holds

    data(runs)        -> DataFrame        what is drawn, tidy; columns and units in its docstring
    plot(df, labels)  -> plotly Figure    the drawing and nothing else
    needs(runs)       -> str | None       a sentence why it cannot be drawn yet
    FIGURE = Figure(title, read)          `read` are the sentences under it: how to read it

and is picked up by being there (see `analysis.figures`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """The record a figure's file assigns to `FIGURE`."""

    title: str
    #: Two sentences on how to read it.
    read: tuple[str, str]
    #: Where it stands in a report whose space asks for no order; lower is earlier.
    order: int = 100
    #: One run (False) or several runs in one drawing (True).
    many: bool = False
