"""fedtune runs [FOLDER]: the runs of a folder, how far they have come, and their best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from analysis.labels import told
from fedtune.option import Argument
from fedtune.options import AsJson

GUIDE = "search"
EXAMPLES = """\
# All runs below runs/:
fedtune runs
# For a program:
fedtune runs --json
"""


def command(
    folder: Annotated[str, Argument(help="A folder with run directories.")] = "runs", *, as_json: AsJson = False
) -> None:
    """List the runs of a folder, a line each. This reads the folder only, so it also works while runs go on."""
    from fedtune.console import tables
    from fedtune.console.busy import reading
    from search_spaces.files import shown

    with reading("reading the runs"):
        from fedtune.api.status import runs

        rows = runs(folder)
    if as_json:
        tables.print_json(rows)
        return
    if not rows:
        tables.say("There are no runs in it yet.")
        return
    columns = {"run": "run", "state": "state", "trials": "trials", "best": "estimate of the best", "what": "what"}
    tables.brief("Runs", [_cells(row) | {"run": shown(Path(row["run"]))} for row in rows], columns)


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """A row as it is shown."""
    if row["problem"] is not None:
        return {"state": "unreadable", "trials": "", "best": "", "what": row["problem"]}
    if row["kind"] == "auto":
        return _of_auto(row)
    if row["kind"] == "reproduction":
        what = f"reproduction, {row['title']}, {row['cells']['over']} of {row['cells']['planned']} runs ended"
        return {"state": row["state"], "trials": f"{row['done']}", "best": "", "what": what}
    ended = row["done"] + row["pruned"] + row["failed"]
    final = row["kind"] == "run"
    metric = "" if row["best"] is None or final else f", by {' and '.join(row['best']['values'])}"
    if several := len(row["by_condition"]):
        metric = f", {several} conditions"
    return {
        "state": row["state"],
        "trials": f"{ended}" if row["seed_rounds"] else f"{ended}/{row['trials']}",
        "best": "" if final else _best(row["best"]),
        "what": f"{row['method']}, {'seeds of a final run' if final else row['space']}{metric}",
    }


def _of_auto(row: dict[str, Any]) -> dict[str, str]:
    """A search over several methods: the leader's mean over fresh seeds, where there are any."""
    (metric,), (leader, *others) = row["metric"], row["leaderboard"]
    mean, half = leader["mean"], leader["half"]
    fresh = (
        None if mean is None or half is None else [told(metric, value) for value in (mean, mean - half, mean + half)]
    )
    what = f"{row['leader']} leads {len(others)} other methods, by {metric}" if row["leader"] else f"by {metric}"
    return {
        "state": row["state"],
        "trials": f"{row['done'] + row['stopped'] + row['failed']}",
        "best": "" if fresh is None else "{} [{}, {}]".format(*fresh),
        "what": f"auto, {what}",
    }


def _best(best: dict[str, Any] | None) -> str:
    """The winner's estimate with its interval, or the values of a search that has none. (Of a final run no seed is the
    best: `fedtune compare` gives its mean.)"""
    if best is None:
        return ""
    if (found := best["estimate"]) is not None:
        metric = next(iter(best["values"]))
        return f"{told(metric, found['mean'])} [{told(metric, found['low'])}, {told(metric, found['high'])}]"
    return ", ".join("not reached" if value is None else told(name, value) for name, value in best["values"].items())
