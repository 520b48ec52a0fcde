"""What `fedtune reproduce` prints on stdout, within 80 columns where there is no wider terminal, and its exit code."""

from __future__ import annotations

import dataclasses
import os
import sys
import textwrap
from typing import Any

from analysis.figures._common import two_keys
from analysis.labels import number
from analysis.reproduce.folder import Made
from analysis.reproduce.tables import HeatCell, agreement, both, heat, pivots
from fedtune.api.reproduce import Reproduced
from fedtune.commands._output import leave
from fedtune.console import tables
from fedtune.console.progress import duration
from fedtune.planning.reproduction import ReproductionPlan
from fedtune.planning.time_left import TimeLeft
from search_spaces import run_folder
from search_spaces.errors import visible
from search_spaces.files import shown
from search_spaces.shell import quote

#: Columns that are written where there is no terminal.
WIDTH = 80
#: Of a number with its deviation, and of a row's name.
_CELL, _NAME = 18, 22


def result(found: Reproduced, as_json: bool) -> None:
    """Prints our table beside the paper's, the verdicts, and where the page is."""
    if as_json:
        tables.print_json(found.to_json())
    else:
        _print(found)
    leave(found, found.finished and not found.made.done)


def estimate(planned: ReproductionPlan, found: TimeLeft | str, as_json: bool) -> None:
    """Prints what --dry-run has found."""
    folder, here = shown(planned.folder), planned.record.here
    if as_json:
        left = {"note": found} if isinstance(found, str) else found.to_json()
        tables.print_json({"folder": folder, "cells": len(planned.parts), "here": dict(vars(here)), **left})
        return
    _say(f"{planned.reproduction.source}: {planned.reproduction.title}", bold=True)
    _say(f"here:  {here.said(planned.reproduction.columns)}")
    if isinstance(found, str):
        _say(found)
    else:
        _say(found.sentence())
        for pace in found.paces:
            _say(f"    {pace.row}: {pace.seconds:.2g} s a round, {pace.known}")
    _say(f"The folder is {folder}. Nothing was created.")


def _print(found: Reproduced) -> None:
    made, folder = found.made, shown(found.folder)
    _say(f"{made.reproduction.source}: {made.reproduction.title}", bold=True)
    _say(f"here:  {made.here.said(made.reproduction.columns)}")
    _say(f"paper: {made.paper.said(made.reproduction.columns)}")
    if made.reproduction.heatmap:
        for table in _heatmaps(made):
            _console().print(table)
        _say("Values in per cent. [ ] is the region that the paper names. The page has the colours.")
        _say("")
    else:
        for table in _drawn(made):
            _console().print(table)
        _say(_key(made))
        if told := agreement(made):
            _say(told)
        _say("")
    for one in found.claims:
        _say(f"{one.told}: {one.claim.says}.", bold=True)
        _say(f"    {one.claim.source}. {one.why}")
    _say("")
    _say(f"{made.done} federations trained, in {duration(found.seconds)} now.")
    for path, count in made.failed.items():
        tables.say(f"{count} failed in {shown(path)}. `fedtune status {quote(shown(path))}` says why.")
    for name in (run_folder.REPORT, run_folder.VERDICTS, run_folder.NUMBERS, *run_folder.TABLES.values()):
        if (found.folder / name).is_file():
            tables.say(f"{os.path.join(folder, name)}")
    if not found.finished:
        tables.say(f"{'Interrupted. ' if found.interrupted else ''}Go on with:", found.command)
    elif made.missing:
        tables.say(f"{made.missing} of {made.planned} cells are not run yet. All of them:", found.command)


def _key(made: Made) -> str:
    """How to read a cell of the tables."""
    marks = "* is the best, = is not told from it."
    if made.reproduction.published is None:
        return f"The paper prints no numbers. {marks}"
    if (inside := made.reproduction.brackets) is None:
        return f"First line: here, second line: the paper. {marks}"
    return f"In every cell first here, then the paper; {made.labels.metric(inside)} in brackets. {marks}"


def _drawn(made: Made) -> list[Any]:
    """Our tables with the paper's number below each of ours, as many columns side by side as there is room for; rows
    and columns of which nothing has been run are left out."""
    rows = [i for i, row in enumerate(made.reproduction.rows) if any(row.name == there for there, _ in made.runs)]
    columns = [i for i, place in enumerate(made.reproduction.places) if any(place == there for _, there in made.runs)]
    at_once = max(1, (_console().width - _NAME) // _CELL)
    parts = [columns[start : start + at_once] for start in range(0, len(columns), at_once)]
    ours = pivots(made)
    titled = [
        dataclasses.replace(whole, title=made.labels.metric(table.metric, split=True))
        for table, whole in zip(ours, both(made, ours), strict=True)
    ]
    # A bracket has a line of its own, as two values with their deviations are wider than a column.
    return [whole.part(rows, part).rich(stacked=True) for whole in titled for part in parts]


def _heatmaps(made: Made) -> list[Any]:
    """The heat map's cells as numbers: a column per value of the one parameter, a row per value of the other."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    found = []
    for metric in made.reproduction.metrics:
        cells = {(cell.x, cell.y): cell for cell in heat(made, metric)}
        if made.heatmap is None:
            continue
        x, y, _ = two_keys(made.heatmap)
        across, up = (sorted({place[i] for place in cells}) for i in (0, 1))
        drawn = Table(
            title=Text(visible(made.labels.metric(metric, split=True))),
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        drawn.add_column(f"{made.labels.symbol(y)} \\ {made.labels.symbol(x)}")
        for value in across:
            drawn.add_column(number(value), justify="right")
        for value in reversed(up):
            row = [_heat(made, metric, cells.get((at, value))) for at in across]
            drawn.add_row(number(value), *map(Text, row))
        found.append(drawn)
    return found


def _heat(made: Made, metric: str, cell: HeatCell | None) -> str:
    if cell is None:
        return "–"
    shown = f"{made.labels.scale(metric) * cell.measured.mean:.2f}"
    return f"[{shown}]" if cell.inside else f" {shown} "


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else WIDTH)


def _say(text: str, bold: bool = False) -> None:
    """One paragraph, broken where the terminal ends; what follows an indentation stays indented."""
    from rich.text import Text

    console = _console()
    indent = " " * (len(text) - len(text.lstrip()))
    lines = textwrap.wrap(visible(text.strip()), console.width - len(indent)) or [""]
    for line in lines:
        console.print(Text(indent + line, style="bold" if bold else ""), soft_wrap=True)
