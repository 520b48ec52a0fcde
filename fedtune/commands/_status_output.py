"""What `fedtune status` prints, and what the other commands also say of a run: and its winner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.estimate import Estimate, ahead_sentence, sentences
from analysis.labels import told
from analysis.runs.conditions import named
from fedtune.console import tables
from search_spaces.files import shown
from search_spaces.shell import quote


def status(found: dict[str, Any], as_json: bool) -> None:
    """Prints how far a run has come."""
    if as_json:
        tables.print_json(found)
        return
    folder = shown(Path(found["run"]))
    if found["kind"] == "reproduction":
        cells, ended = found["cells"], f"{found['done']} federations trained, {found['failed']} failed"
        over = f"{cells['over']} of {cells['planned']} runs ended"
        tables.say(f"{folder}: {found['state']}. {found['title']}: {over}, {ended}.")
    else:
        _of_run(found, folder)
    if found["state"] == "resumable":
        tables.say("Go on with:", f"fedtune resume {quote(folder)}")


def _of_run(found: dict[str, Any], folder: str) -> None:
    race = found["seed_rounds"]
    done = f"{found['done']}" if race else f"{found['done']} of {found['trials']}"
    tables.say(
        f"{folder}: {found['state']}. {done} trials done, {found['pruned']} stopped early, {found['failed']} failed, "
        f"{len(found['running'])} {'running' if found['state'] == 'running' else 'to be resumed'}"
        + (f"; {race['spent']} of {race['budget']} seed-rounds" if race else "")
        + "."
    )
    for trial in found["running"]:
        at = f"round {trial['round']} of {trial['rounds']}"
        tables.say(f"  trial {trial['trial']}: {at}, {params_text(trial['params'])}")
    for error in found["errors"]:
        tables.say(f"  trial {error['trial']} failed: {error['error']}")
    if found["best"] is not None:
        values = ", ".join(f"{name} {told(name, value)}" for name, value in found["best"]["values"].items())
        tables.say(f"Best: trial {found['best']['trial']}, {values}, {params_text(found['best']['params'])}")
        say_estimate(found["best"]["estimate"] and Estimate(**found["best"]["estimate"]), found["metric"][0])
    if (ahead := found["ahead"]) is not None:
        said = ahead["estimate"] and Estimate(**ahead["estimate"])
        rounds = ahead["round"], ahead["rounds"]
        say_ahead(ahead["trial"], rounds, ahead["values"], ahead["params"], said, found["metric"][0])
    for one in found["by_condition"]:
        said = one["estimate"] and Estimate(**one["estimate"])
        say_under(one["condition"], one["trial"], one["values"], one["params"], said, found["metric"][0])


def say_estimate(found: Estimate | None, metric: str) -> None:
    """What a search says of its winner beyond the value of one trial."""
    if found is not None:
        for line in sentences(found, lambda value: told(metric, value)):
            tables.say(f"  {line}")


def say_ahead(
    number: int, rounds: tuple[int, int], values: Any, params: Any, said: Estimate | None, metric: str
) -> None:
    """The trial that has not ended and is ahead of the best one."""
    sentence = ahead_sentence(number, rounds, values[metric], said, lambda value: told(metric, value))
    tables.say(f"{sentence} It has {params_text(params)}.")


def say_under(condition: Any, number: int, values: Any, params: Any, said: Estimate | None, metric: str) -> None:
    """The best under one condition of the experiment; where nothing was searched, its result."""
    measured = ", ".join(f"{name} {told(name, value)}" for name, value in values.items())
    best = f"best: trial {number}, {measured}, with {params_text(params)}" if params else f"trial {number}, {measured}"
    tables.say(f"Under {named(condition)}: {best}.")
    if params:
        say_estimate(said, metric)


def params_text(params: Any) -> str:
    """`alpha=0.5, lambda=0.7`."""
    return ", ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in params.items()
    )
