"""What `fedtune status` prints, and what the other commands also say of a run: and its winner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from analysis.auto import Auto, explained
from analysis.estimate import ahead_sentence, sentences
from analysis.labels import told
from analysis.reproduce.folder import Made
from analysis.runs import Run
from analysis.runs.best import Best, ahead_of, best_by_condition, best_of
from analysis.runs.conditions import named
from analysis.stats import summarise
from fedtune.console import tables
from fedtune.record.experiment import Experiment
from search_spaces.files import shown
from search_spaces.metrics import twin
from search_spaces.shell import quote


def status(read: Run | Auto | Made, found: Mapping[str, Any], as_json: bool) -> None:
    """Prints how far a run has come; `found` is what `fedtune.status` says of it."""
    if as_json:
        tables.print_json(found)
        return
    folder = shown(read.path)
    if isinstance(read, Auto):
        tables.say(f"{folder}: {found['state']}. {trials(read)}.")
        board(read)
    elif isinstance(read, Made):
        cells, ended = found["cells"], f"{found['done']} federations trained, {found['failed']} failed"
        over = f"{cells['over']} of {cells['planned']} runs ended"
        tables.say(f"{folder}: {found['state']}. {found['title']}: {over}, {ended}.")
    else:
        tables.say(f"{folder}: {found['state']}. {_how_far(found)}.")
        _of_run(read, found)
    if found["state"] == "resumable":
        tables.say("Go on with:", f"fedtune resume {quote(folder)}")


def trials(auto: Auto) -> str:
    """How many trials have ended, and how."""
    done, stopped, failed = (sum(getattr(row, name) for row in auto.rows) for name in ("done", "stopped", "failed"))
    return f"{done} trials done, {stopped} stopped early, {failed} failed"


def board(auto: Auto) -> None:
    """The leaderboard and what is said below it."""
    table = auto.table()
    tables.draw(table)
    for line in explained(auto):
        tables.say(line)
    for note in table.notes:
        tables.say(note)


def _how_far(found: Mapping[str, Any]) -> str:
    """How many trials have ended and how many run."""
    race, final, live = found["seed_rounds"], found["kind"] == "run", found["state"] == "running"
    done = f"{found['done']}" if race else f"{found['done']} of {found['trials']}"
    parts = [f"{done} {'seeds' if final else 'trials'} done", f"{found['pruned']} stopped early"][: 1 if final else 2]
    parts.append(f"{found['failed']} failed")
    if live or found["running"]:
        parts.append(f"{len(found['running'])} {'running' if live else 'to be resumed'}")
    return ", ".join(parts) + (f"; {race['spent']} of {race['budget']} seed-rounds" if race else "")


def _of_run(run: Run, found: Mapping[str, Any]) -> None:
    """The trials that run and those that failed, and what is best; of a final run the mean over seeds."""
    experiment, final = Experiment.of(run), found["kind"] == "run"
    for trial in found["running"]:
        at = f"round {trial['round']} of {trial['rounds']}"
        tables.say(f"  {experiment.called(trial['trial'])}: {at}{_having(trial['params'], ', ')}")
    for error in found["errors"]:
        tables.say(f"  {experiment.called(error['trial'])} failed: {error['error']}")
    if final:
        _say_means(run)
    else:
        say_found(best_of(run), ahead_of(run), best_by_condition(run), experiment)


def _say_means(run: Run) -> None:
    """The means over the seeds of a final run that have ended, none of which is the best."""
    over = {name: run.over_seeds(name) for metric in run.metrics for name in (metric, twin(metric))}
    means = []
    for name, by_seed in over.items():
        if by_seed:
            mean = summarise(list(by_seed.values()))
            means.append(f"{name} {told(name, mean.mean)}" + (f" ± {told(name, mean.std)}" if mean.n > 1 else ""))
    if means:
        count = len(run.chosen)
        tables.say(f"Mean over {count} seed{'s' * (count != 1)}: {', '.join(means)}.")


def say_found(best: Best | None, ahead: Best | None, by_condition: Sequence[Best], experiment: Experiment) -> None:
    """The best trial of a search, one that has not ended and is ahead of it, and the best under each condition; under a
    condition where nothing was searched its result."""
    metric = experiment.metric[0]
    if best is not None:
        origin = f" ({best.origin})" if best.origin else ""
        tables.say(f"Best: trial {best.number}{origin}, {_measured(best)}{_having(best.params, ', with ')}.")
        _say_how_sure(best, metric)
    if ahead is not None:
        rounds, value = (ahead.round or 0, experiment.rounds), ahead.values[metric]
        sentence = ahead_sentence(ahead.number, rounds, value, ahead.estimate, partial(told, metric))
        tables.say(f"{sentence} It has {params_text(ahead.params)}.")
    for one in by_condition:
        trial = f"{'best: ' if one.params else ''}trial {one.number}"
        tables.say(f"Under {named(one.condition)}: {trial}, {_measured(one)}{_having(one.params, ', with ')}.")
        _say_how_sure(one, metric)


def _measured(best: Best) -> str:
    """Its values, and beside those on validation data the same on the test set."""
    tests = {name: test for name in best.values if (test := name.removeprefix("val_")) != name and test in best.metrics}
    return ", ".join(
        f"{name} {told(name, value)}" + (f" (test {told(name, best.metrics[tests[name]])})" if name in tests else "")
        for name, value in best.values.items()
    )


def _say_how_sure(best: Best, metric: str) -> None:
    """What a search says of its winner beyond the value of one trial."""
    if best.estimate is not None and best.params:
        for line in sentences(best.estimate, partial(told, metric)):
            tables.say(f"  {line}")
    for one in best.kept:
        tables.say(f"  {one.sentence()}")


def _having(params: Mapping[str, Any], before: str) -> str:
    return f"{before}{params_text(params)}" if params else ""


def params_text(params: Mapping[str, Any]) -> str:
    """`alpha=0.5, lambda=0.7`."""
    return ", ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in params.items()
    )
