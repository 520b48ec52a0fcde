"""The facts about a run in short, below the first card of its report (`winner_card.py`)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from analysis import style
from analysis.estimate import configuration
from analysis.labels import Labels, duration, number
from analysis.report.page import escape
from analysis.report.terms import KEYS
from analysis.runs import Run
from analysis.stats import summarise
from analysis.tables.partitions import one_partition
from search_spaces import run_folder
from search_spaces.metrics import twin
from search_spaces.shell import quote

#: What is said of the data's spread: parameter and words.
SPREAD = (("clients", "clients"), ("omega", "ω"), ("rho", "ρ"))
#: Partitions that have no such number.
WITHOUT_OMEGA = ("iid", "natural", "pathological")


@dataclass(frozen=True)
class Fact:
    """One fact: a title, its value, and a smaller line below."""

    title: str
    value: str
    small: str = ""
    #: Whether it stands out.
    key: bool = False


def searched(run: Run, labels: Labels) -> str:
    """Which parameters were searched, as HTML."""
    if run.crossed and not run.keys:
        return f"one configuration under {len(run.conditions)} conditions"
    # Before its first trial a run has no values of what it is to search.
    keys = run.keys if run.frozen else [str(item["key"]) for item in run.searched]
    if not keys:
        return "no parameter searched"
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    return "searched " + escape(", ".join(labels.symbol(k) for k in keys[:6])) + more


def _conditions(run: Run, labels: Labels) -> list[Fact]:
    """Under how many conditions of the experiment."""
    if not run.crossed:
        return []
    keys = dict.fromkeys(key for condition in run.conditions for key in condition)
    values = " · ".join(f"{labels.symbol(key)} {run.value(key)}" for key in keys)
    return [Fact("Conditions", str(len(run.conditions)), values, key=True)]


def notices(run: Run) -> list[str]:
    """What a reader must know before looking at any number."""
    found = list(run.record.damaged)
    if run.selects_on_test:
        found.append(
            "Trials were selected on test data, as the paper did. The best value is therefore optimistic; "
            "without --paper, searches select on a validation share."
        )
    running = int(run.trials["state"].isin(["RUNNING", "WAITING"]).sum())
    if running:
        found.append(
            f"{running} {'trial is' if running == 1 else 'trials are'} unfinished: the search is still going on or was "
            f"interrupted. `fedtune resume {quote(run.record.resumed)}` continues it." + _waiting(run)
        )
    return found


def _waiting(run: Run) -> str:
    """Why trials that had ended have no result now, where the search was given more rounds."""
    before = run.experiment.get("rounds_before")
    if not before:
        return ""
    return (
        f" It was extended from {before[-1]} to {run.experiment.get('rounds')} rounds: trials that had ended after "
        f"{before[-1]} go on, and have no final value until they have run all rounds."
    )


def facts(run: Run, labels: Labels, told: set[str] | None = None) -> str:
    """The facts as HTML. `told`: what the page has explained already (`analysis.report.terms`)."""
    found = [
        *_conditions(run, labels),
        *_results(run, labels),
        _trials(run),
        *_budget(run),
        _data(run, set() if told is None else told),
        _time(run),
        *_strategy(run),
    ]
    return '<dl class="facts">' + "".join(map(_html, found)) + "</dl>"


def _html(fact: Fact) -> str:
    small = f"<small>{escape(fact.small)}</small>" if fact.small else ""
    title, value = escape(fact.title), escape(fact.value)
    return f'<div class="fact{" key" if fact.key else ""}"><dt>{title}</dt><dd>{value}{small}</dd></div>'


def _results(run: Run, labels: Labels) -> list[Fact]:
    """What was measured on test data, and the local accuracy, of a final run's trials. Of a search the first card and
    that of its best configuration say it."""
    if run.best is None or run.kind != "run":
        return []
    found = []
    for metric in run.metrics:
        for name in dict.fromkeys([metric, twin(metric)]):
            values = run.over_seeds(name)
            if name.startswith("val_") or not (name == metric or values):
                continue
            text = (
                spread(labels, name, values)
                if values
                else labels.shown(name, run.trials.set_index("number")["value"].get(run.best))
            )
            found.append(_result(labels, name, text, _fresh(run, len(values)), True))
    local = run.over_seeds("local_accuracy")
    if local and not {"local_accuracy", "val_local_accuracy"} & set(run.metrics):
        text = spread(labels, "local_accuracy", local)
        found.append(_result(labels, "local_accuracy", text, _fresh(run, len(local)), False))
    return found


def _fresh(run: Run, seeds: int) -> str:
    """How many seeds a final run has a metric of, and whether they share one partition."""
    shared = one_partition(run.experiment.get("values") or {}, seeds)
    return f"{seeds} fresh seeds" if shared is None else f"{seeds} fresh seeds, all on one partition"


def _result(labels: Labels, metric: str, text: str, small: str, key: bool) -> Fact:
    return Fact(labels.metric(metric, split=True, unit=False), text, small, key)


def _trials(run: Run) -> Fact:
    """How many trials of those asked for have ended, and how."""
    endings = [style.outcome(s, r) for s, r in zip(run.trials["state"], run.trials["stop_reason"], strict=True)]
    kinds = pd.Series(endings, dtype=object).value_counts()
    counted = ", ".join(f"{kinds[k]} {style.OUTCOMES[k][2]}" for k in style.OUTCOMES if k in kinds)
    taken = f"; {run.taken} of them with results of earlier runs" if run.taken else ""
    asked, ended = run.experiment.get("trials"), int(run.trials["state"].isin(["COMPLETE", "PRUNED", "FAIL"]).sum())
    of = asked if isinstance(asked, int) and not run.raced and asked > ended else len(run.trials)
    return Fact("Trials", f"{ended} of {of}" if of > ended else str(ended), counted + taken)


def _budget(run: Run) -> list[Fact]:
    """Rounds and seeds."""
    used = sorted(run.rounds["seed"].unique().tolist()) if len(run.rounds) else []
    seeds = len(used or run.experiment.get("seeds") or [])  # before the first round those that were asked for
    listed = "seed " + ", ".join(map(str, used[:6])) if used else ""
    run_in_all = int(_run_here(run)["rounds"].sum())
    of = f" of {run.experiment['budget']}" if run.raced else ""
    before = run.experiment.get("rounds_before") or []
    extended = f"; {', then '.join(map(str, before))} before the search was extended" if before else ""
    return [
        Fact("Rounds per trial", number(run.value("rounds")), f"{run_in_all}{of} rounds run in all{extended}"),
        _seeds_of_configurations(run) if run.single else Fact("Seeds per trial", str(seeds), listed),
    ]


def _seeds_of_configurations(run: Run) -> Fact:
    """How many federations of a configuration ran to their end, where further ones have a seed of their own."""
    done = Counter(configuration(trial) for trial in run.frozen if trial.state.name == "COMPLETE")
    counts = [done[configuration(run.trial(number))] for number in run.ranked]
    several = f"{min(counts)} to {max(counts)}" if counts and min(counts) < max(counts) else str(max(counts, default=0))
    ended = f"{len(counts)} configurations ran to their end"
    confirm = sum(bool(trial.user_attrs.get(run_folder.CONFIRMS)) for trial in run.frozen)
    said = [*(["a race"] if run.raced else []), ended, *([f"{confirm} trials confirm the best"] if confirm else [])]
    return Fact("Seeds per configuration", several, "; ".join(said))


def _data(run: Run, told: set[str]) -> Fact:
    """The data set, a file by its own name, and how it is spread over clients."""
    name, _, columns = str(run.value("dataset", "–")).partition("?")
    said = [columns.replace("&", ", ").replace("=", " ")] if columns else []
    for key, words in SPREAD:
        if key == "omega" and run.value("partition") in WITHOUT_OMEGA:
            continue
        if (value := run.value(key)) is not None:
            hint = f" ({KEYS[key]})" if key in KEYS and key not in told else ""
            said.append(f"{words} {number(value)}{hint}")
            told.add(key)
    return Fact("Data set", os.path.basename(name) if os.path.isabs(name) else name, " · ".join(said))


def _time(run: Run) -> Fact:
    """From the first start to the last end, and the sum over trials."""
    start, end = pd.to_datetime(run.trials["start"]).min(), pd.to_datetime(run.trials["end"]).max()
    wall = (end - start).total_seconds() if pd.notna(start) and pd.notna(end) else None
    seconds = _run_here(run)["seconds"]
    return Fact("Time", duration(wall), f"{duration(float(seconds.sum()))} in trials" if seconds.notna().any() else "")


def _run_here(run: Run) -> pd.DataFrame:
    """The trials that were not taken from earlier runs."""
    return run.trials[~run.trials["taken"].astype(bool)]


def _strategy(run: Run) -> list[Fact]:
    """Who proposed configurations and who stopped trials, for a search."""
    strategy = " · ".join(str(v) for v in (run.experiment.get("sampler"), run.experiment.get("scheduler")) if v)
    if not strategy or run.kind == "run":
        return []
    seed = f"search seed {run.experiment['seed']}" if "seed" in run.experiment else ""
    return [Fact("Sampler · scheduler", strategy, seed)]


def spread(labels: Labels, metric: str, values: Mapping[int, float]) -> str:
    """A metric's mean over seeds, with its standard deviation where it is shown in per cent: `87.31 ± 0.42 %`."""
    found = summarise(list(values.values()))
    scale = labels.scale(metric)
    return f"{found.shown(scale)} %" if scale == 100 else labels.shown(metric, found.mean)
