"""What a figure is.

A figure is one file in `analysis/figures`; its name there is its name everywhere. It holds three functions and a record
that names them:

    needs(runs)            -> str | None       a sentence why it cannot be drawn yet, None where it can
    data(runs)             -> drawing          what is drawn, and everything `plot` needs to know about it
    plot(drawing, labels)  -> plotly Figure    the drawing and nothing else: it reads no run
    FIGURE = Figure(title=..., read=..., needs=needs, data=data, plot=plot)

The drawing is a `pandas.DataFrame` where that is all `plot` needs. Otherwise it is a frozen dataclass of the file's
own, called `Drawing`, whose field `table` is the DataFrame and whose other fields are named and typed. A table is tidy,
and its columns and their units stand in the docstring of `data`. `Figure` is generic in the drawing's type, so mypy
reports a `plot` that does not take what `data` returns.

A figure whose metrics can be asked for (`fedtune figure NAME RUN --metric amp`) names in `of` a function that
takes them as its second argument; `data` itself can be that function.

The file is found because it is there (see `analysis.figures`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from analysis.labels import Labels
    from analysis.runs import Run


class HasTable(Protocol):
    """A drawing that is more than its table."""

    @property
    def table(self) -> pd.DataFrame: ...


DrawingType = TypeVar("DrawingType", bound="pd.DataFrame | HasTable")


@dataclass(frozen=True, kw_only=True)
class Figure(Generic[DrawingType]):
    """The record that a figure's file assigns to `FIGURE`."""

    title: str
    #: Two sentences on how to read it.
    read: tuple[str, str]
    needs: Callable[[Sequence[Run]], str | None]
    data: Callable[[Sequence[Run]], DrawingType]
    plot: Callable[[DrawingType, Labels], go.Figure]
    #: The drawing of the metrics that were asked for; None where the figure alone chooses what it draws.
    of: Callable[[Sequence[Run], Sequence[str]], DrawingType] | None = None
    #: Where it stands in a report whose space asks for no order; lower is earlier.
    order: int = 100
    #: One run (False) or several runs in one drawing (True).
    many: bool = False
    #: Whether trials under different conditions of the experiment may stand in one drawing; else a report draws it for
    #: each condition by itself.
    across: bool = False

    def drawable(self, run: Run) -> bool:
        """Whether it can be drawn of this run; of one under several conditions of the experiment, of all of them."""
        return (self.across or not run.crossed) and self.needs([run]) is None

    def draw(self, runs: Sequence[Run], labels: Labels, metrics: Sequence[str] = ()) -> go.Figure:
        """The figure of these runs, of these metrics where `of` takes any; ask `needs` first whether it can be drawn.
        Raises `UserError` where one of the metrics was not measured."""
        return self.plot(self.data(runs) if not metrics or self.of is None else self.of(runs, metrics), labels)
