"""`fedtune.figure`: one figure or table of a run, or of several, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.loaded import load
from fedtune.console import busy
from fedtune.console.progress import style
from fedtune.option import fields_of, several
from fedtune.options import FigureRequest
from search_spaces.errors import UserError, sentence, short
from search_spaces.parameter import pairs

#: What only the pivot table has: the field, what `analysis.loaded.Loaded.save` calls it, and the option.
PIVOT = {"by": ("by", "--by"), "variant": ("variants", "--variant"), "down": ("down", "--down")}
PIVOT |= {"brackets": ("brackets", "--brackets")}


@fields_of(FigureRequest)
def figure(request: FigureRequest) -> Path:
    """Writes the figure or table `name` of a run, or of several, to `output`, and returns its path;
    `fedtune.load(runs).figure(name)` is the same as an object.

    Raises `UserError` where there is no such figure, it cannot be drawn, or the file cannot be written."""
    name, kind = request.name, request.kind
    if request.output is None and kind is None:
        raise UserError("fedtune figure writes one file. Name it with -o, such as -o fig5.png.")
    options: dict[str, Any] = {called: getattr(request, field) for field, (called, _) in PIVOT.items()}
    if name != "pivot" and any(options.values()):
        named = f"{', '.join(flag for _, flag in PIVOT.values())} belong to the table pivot"
        raise UserError(f"{named}, got {short(name)}.")
    problems: list[str] = []
    where = dict(pairs(request.where, "--where", problems))
    problems += [sentence("--where", "name=value", f"{key}=") for key, value in where.items() if value == ""]
    options |= {"metrics": request.metric, "where": where}
    if problems:
        raise UserError(*problems)
    with busy.busy(style(), "reading the run") as tell:
        loaded = load(several(request.runs))
        tell(f"drawing {name}")
        given = {key: value for key, value in options.items() if value}
        return loaded.save(name, request.output or f"{name}.{kind}", kind=kind, **given)
