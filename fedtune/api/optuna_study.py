"""A run for the tools of Optuna: what `fedtune dashboard` opens, and `fedtune export --study` writes.

Notes are Markdown, in attributes of the study as optuna-dashboard's `save_note` keeps them:

    dashboard:note_ver, dashboard:note_str:0, …              of the study
    dashboard:<id>:note_ver, dashboard:<id>:note_str:0, …    of the trial that has this id in the storage

A text stands there in parts of `PART` letters, and the version says how often it was written.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis import style
from analysis.estimate import configuration, sentences, verdict
from analysis.labels import Labels, number
from analysis.runs import Run
from analysis.runs.race import first_of, is_repeated, trials_named
from analysis.tables.typesetting import markdown
from search_spaces.metrics import SHARES
from search_spaces.shell import quote

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

PART = 2045
#: As `analysis.estimate.configuration` has it.
Configuration = tuple[object, ...]


def trials(run: Run, names: Mapping[str, str] | None = None) -> list[FrozenTrial]:
    """The run's trials, each with the last value of every metric, mean over seeds, as the user attribute
    `metric:<name>`; parameters have the `names` that are given for theirs."""
    found = []
    for trial in run.frozen:
        made = copy.copy(trial)
        measured = {f"metric:{name}": value for name, value in run.ends.get(trial.number, {}).items()}
        made.user_attrs = {**trial.user_attrs, **measured}
        if names is not None:
            made.params = {names[name]: value for name, value in trial.params.items()}
            made.distributions = {names[name]: value for name, value in trial.distributions.items()}
        found.append(made)
    return found


def titles(run: Run) -> dict[str, str]:
    """What people call the parameters, by name: `λ (lambda)`. Their names where two of them are called the same."""
    labels = Labels.of([run], markup=False)
    names = dict.fromkeys(name for trial in run.frozen for name in trial.params)
    found = {name: labels.parameter(name) for name in names}
    return found if len(set(found.values())) == len(found) else {name: name for name in names}


def facts(run: Run) -> dict[str, str]:
    """The user attributes of a study, which optuna-dashboard shows beside the trial of the highest value: which one won
    by its estimate, and how sure that is."""
    found, labels = run.estimate, Labels.of([run], markup=False)
    if found is None:
        return {}
    mean, low, high = (labels.shown(run.metrics[0], value) for value in (found.mean, found.low, found.high))
    told = verdict(found, lambda value: labels.shown(run.metrics[0], value))
    shown = {
        "winner": trials_named(run.chosen),
        "estimate": f"{mean}, {100 * found.level:.0f} % interval {low} to {high}",
    }
    return shown if told is None else {"verdict": told} | shown


def notes(run: Run, ids: Sequence[int]) -> dict[str, Any]:
    """The attributes of a study that hold the notes of the run and of its trials. ids: of the trials, in order."""
    labels = Labels.of([run], markup=False)
    found = _kept("dashboard:", _of_run(run, labels))
    numbers = () if run.standing is None else run.standing.numbers
    places = {configuration(run.trial(first)): place for place, first in enumerate(numbers)}
    for trial, key in zip(run.frozen, ids, strict=True):
        found |= _kept(f"dashboard:{key}:", _of_trial(run, trial, labels, places))
    return found


def _kept(place: str, text: str) -> dict[str, Any]:
    parts = {f"{place}note_str:{at // PART}": text[at : at + PART] for at in range(0, len(text), PART)}
    return {f"{place}note_ver": 1} | parts


def _of_run(run: Run, labels: Labels) -> str:
    """What was searched, on what, what won and how sure that is, and the next command."""
    asked = run.experiment
    how = [str(run.value("dataset", "")), f"{number(run.value('rounds'))} rounds", _seeds(asked.get("seeds"))]
    how += [str(word) for word in (asked.get("sampler"), asked.get("scheduler")) if word and run.kind != "run"]
    lines = [f"# {markdown(run.name)}", "", markdown(run.heading), ""]
    lines += [markdown(" · ".join(filter(None, how))), "", *_answer(run, labels), ""]
    lines += ["Searched:", "", *(_meaning(labels, key) for key in run.keys)] if run.keys else []
    return "\n".join([*lines, "", f"`fedtune report {quote(run.shown)}` shows it with its figures."])


def _seeds(seeds: object) -> str:
    if not isinstance(seeds, list):
        return ""
    return f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"


def _answer(run: Run, labels: Labels) -> list[str]:
    if run.crossed:
        return [f"Trials are under {len(run.conditions)} conditions, and no configuration wins under all of them."]
    if run.best is None:
        return ["No trial has run to its end."]
    values = ", ".join(labels.setting(key, value) for key, value in run.parameters(run.best).items())
    if len(run.directions) > 1:
        front = ", ".join(map(str, run.front))
        return [f"Trials {front} are Pareto-optimal; trial {run.best} gives up least: {markdown(values)}."]
    if run.kind == "run" or run.estimate is None:
        return [f"Trial {run.best}: {markdown(values)}." if values else f"Trial {run.best}."]

    def shown(value: float) -> str:
        return labels.shown(run.metrics[0], value)

    told = verdict(run.estimate, shown)
    lines = [f"**{markdown(told)}**", ""] if told else []
    lines += [f"Winner: {trials_named(run.chosen)} with {markdown(values)}.", ""]
    return lines + [f"- {markdown(line)}" for line in sentences(run.estimate, shown)]


def _meaning(labels: Labels, key: str) -> str:
    doc = str(labels.parameters.get(key, {}).get("doc") or "")
    return f"- {markdown(labels.parameter(key))}" + (f": {markdown(doc)}" if doc else "")


def _of_trial(run: Run, trial: FrozenTrial, labels: Labels, places: Mapping[Configuration, int]) -> str:
    """How it ended and why, on which seed, where its values come from, and what is known of its configuration."""
    known = trial.user_attrs
    outcome = style.OUTCOMES[style.outcome(trial.state.name, known.get("stop_reason") or "")][2]
    rounds, planned = known.get("rounds"), run.experiment.get("rounds")
    ended = f"{outcome[0].upper()}{outcome[1:]}" + (f" after {rounds} of {planned} rounds" if rounds else "")
    seeds = _seeds([known["seed"]] if "seed" in known else run.experiment.get("seeds"))
    of, whence = first_of(trial), run.origin(trial)
    lines = [f"{', '.join(filter(None, [ended, seeds]))}."]
    again = "Trial {}, run to its end." if is_repeated(trial, run.frozen) else "A further seed of trial {}."
    lines += [again.format(of)] if of is not None else []
    lines += [f"Its values are {markdown(whence)}."] if whence else []
    lines += [_known(run, trial, labels, places)]
    lines += [f"Error: {markdown(str(known['error']))}"] if known.get("error") else []
    return "\n\n".join(filter(None, lines))


def _known(run: Run, trial: FrozenTrial, labels: Labels, places: Mapping[Configuration, int]) -> str:
    """The estimate of its configuration, and whether that is told from the winner. places: of configurations in the
    search's standing."""
    found, standing, place = run.estimate, run.standing, places.get(configuration(trial))
    if found is None or standing is None or place is None:
        return ""

    def shown(value: float) -> str:
        return labels.shown(run.metrics[0], value)

    first = standing.numbers[place]
    if first == found.trial:
        interval = f"{100 * found.level:.0f} % interval {shown(found.low)} to {shown(found.high)}"
        return f"**The winner.** Estimated mean over all seeds: {shown(found.mean)}, {interval}."
    mean = standing.sign * float(standing.belief.mean[place])
    if run.metrics[0] in SHARES:
        mean = min(1.0, max(0.0, mean))
    tied = "; it cannot be told from the winner" if first in found.tied else ""
    return f"Estimated mean over all seeds: {shown(mean)}{tied}."
