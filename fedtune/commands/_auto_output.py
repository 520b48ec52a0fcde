"""What `fedtune auto` prints on stdout, and the exit code that goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.labels import told
from analysis.next_commands import run_command
from fedtune.commands._output import leave, models
from fedtune.commands._status_output import board, trials
from fedtune.console import tables
from fedtune.console.progress import duration
from search_spaces import run_folder
from search_spaces.files import shown
from search_spaces.shell import quote

if TYPE_CHECKING:
    from fedtune.api.auto import AutoResult


def result(found: AutoResult, as_json: bool) -> None:
    """Prints the leaderboard, the leader's final run and what to do next."""
    folder = shown(found.folder)
    if as_json:
        tables.print_json(found.to_json())
    else:
        tables.say(f"{folder}: {trials(found.auto)} in {duration(found.seconds)}.")
        board(found.auto)
        if found.finished:
            _final(found)
        else:
            tables.say("Interrupted. Go on with:", f"fedtune resume {quote(folder)}")
    leave(found, found.finished and found.auto.leader is None)


def _final(found: AutoResult) -> None:
    auto, folder = found.auto, shown(found.folder)
    if auto.leader is None or found.final is None:
        tables.say(f"No trial ran to its end. `fedtune report {quote(folder)}` says why each failed.")
        return
    row = auto.rows[0]
    values = row.record()["configuration"]
    tables.say(f"Leader: {row.title} ({row.method}){f', with {values}' if values else ''}.")
    name = next((name for name in (auto.metric.removeprefix("val_"),) if name in found.final.metrics), None)
    if name is not None:
        spread = found.final.metrics[name]
        count = len(spread.values)
        tables.say(
            f"Final run on {count} further seed{'s' * (count != 1)}: {name} {told(name, spread.mean)}"
            + (f" ± {told(name, spread.std)}" if count > 1 else "")
            + " on test data."
        )
    models(found.final)
    best = found.folder / run_folder.BEST / f"{auto.leader}.yaml"
    steps = [f"fedtune report {quote(folder)}", run_command(shown(best))]
    tables.say("Next:", *steps)
