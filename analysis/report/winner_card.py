"""The first screen of a run's report: which configuration won, how sure that is, and what to do next; of a run without
a result how far it came, what went wrong, and what to do next."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from analysis.estimate import Estimate, ahead_sentence, apart, between, sentences, unseen, unseen_sentence, verdict
from analysis.figure import Figure
from analysis.figures.importance import FIGURE as IMPORTANCE
from analysis.figures.surface import FIGURE as SURFACE
from analysis.labels import Labels, number
from analysis.next_commands import BASELINES, baseline, run_command, same_problem
from analysis.report.anonymous import AnonymousRun
from analysis.report.anonymous import anonymous as without_names
from analysis.report.page import Page, command, escape
from analysis.report.summary import spread
from analysis.runs import Run
from analysis.runs.final_runs import FinalRun, final_runs, fresh_gain
from analysis.runs.race import trials_named
from analysis.stats import summarise
from search_spaces.metrics import twin
from search_spaces.shell import join, quote

#: Of so many parameters a reader asks first which of them matter.
MANY_PARAMETERS = 16
#: So many trials are named one by one.
NAMED = 8
NOT_TRIED = "Not tried yet. The value of a winner on the seeds that chose it is optimistic."
#: Ticks drawn at most; more would be one bar.
TICKS = 400
#: So many different errors are named.
ERRORS_NAMED = 3


def winner_card(page: Page, run: Run, labels: Labels, prefix: str) -> None:
    """Adds the card, where a trial of a search has run to its end."""
    if run.kind == "run" or run.best is None:
        return
    finals = final_runs(run)
    rows = [
        ("How sure that is", [*_sure(run, labels), *_ties(run, labels)]),
        ("On fresh seeds", fresh(run, labels, finals) or [NOT_TRIED]),
        ("Stopped early", [*stops(run), *stops_cost(run)]),
    ]
    who = f"{'Winner' if len(run.directions) == 1 else 'The knee of the Pareto front'}: {trials_named(run.chosen)}"
    title = fresh_verdict(run, labels, finals) or _verdict(run, labels)
    chips = f"<b>{escape(who)}</b> " * (title is not None) + _configuration(run, labels)
    inner = f'<p class="winner">{chips}</p>{_value(run, labels)}{_paragraphs(_ahead(run, labels))}'
    inner += _picture(page, run, prefix) + told([], next_step(run, finals))
    inner += f"<details><summary>Why, and how sure that is</summary>{told(rows)}</details>"
    page.card(f"{prefix}answer", title or who, inner, "Answer" if not prefix else "")


def told(rows: Sequence[tuple[str, Sequence[str]]], step: tuple[str, str] | None = None) -> str:
    """What there is to say, by its heading, and the next command with its reason."""
    shown = "".join(f"<dt>{title}</dt><dd>{_paragraphs(lines)}</dd>" for title, lines in rows if lines)
    if step is not None:
        line, why = step
        shown += f"<dt>Next</dt><dd><p>{escape(why)}</p>{command(line)}</dd>"
    return f'<dl class="told">{shown}</dl>'


def _verdict(run: Run, labels: Labels) -> str | None:
    """Whether the search gained anything over the paper's values, by its own model."""
    return None if run.estimate is None else verdict(run.estimate, lambda value: labels.shown(run.metrics[0], value))


def fresh_verdict(run: Run, labels: Labels, finals: Sequence[FinalRun]) -> str | None:
    """Whether it gained anything on fresh seeds, in one line; None where the paper's values have not been trained on
    those of the winner."""
    measured = fresh_gain(run, finals)
    if measured is None:
        return None
    found, metric = measured

    def shown(value: float) -> str:
        return labels.shown(metric, value)

    p = "" if math.isnan(found.t_p) else f", p = {found.t_p:.2g}"
    gained = f"{apart(shown, found.difference)} on {found.n} fresh seeds, 95 % interval "
    gained += f"{between(shown, found.low, found.high)}{p}"
    if found.low > 0:
        return f"Better than the paper's values by {gained}"
    return f"No better than the paper's values, as far as can be told: {gained}"


def _picture(page: Page, run: Run, prefix: str) -> str:
    """What the search knows of its space over two parameters; of many, which of them matter."""
    known: dict[str, Figure[Any]] = {"importance": IMPORTANCE, "surface": SURFACE}
    order = ("importance", "surface") if len(run.keys) >= MANY_PARAMETERS else ("surface",)
    for name in order:
        if known[name].drawable(run):
            drawn = known[name].draw([run], Labels.of([run]))
            return page.drawn(f"{prefix}{name}", known[name].title, drawn, known[name].read)
    return ""


def next_step(run: Run, finals: Sequence[FinalRun]) -> tuple[str, str]:
    """The command that a reader should give next, and why."""
    if unfinished(run):
        return resume(run)
    mine = [final for final in finals if final.trial == run.best]
    if not mine:
        return (
            run_command(run.shown),
            "A search flatters its winner. Final numbers come from seeds that it never saw.",
        )
    if run.paper not in (None, run.best, *(final.trial for final in finals)) and len(run.metrics) == 1:
        return (
            _paper_beside(run, mine[0].run),
            "The winner has been trained on fresh seeds. The paper's values on the same seeds say what was gained.",
        )
    # A neighbour is read as it is; on a page without names it has none either.
    final = without_names(mine[0].run) if isinstance(run, AnonymousRun) else mine[0].run
    if run.method in BASELINES:
        return (
            f"fedtune report {quote(final.shown)}",
            "The winner has been trained on fresh seeds; this is their report.",
        )
    return (
        _beside(final),
        "The winner has been trained on fresh seeds. Beside another method on the same problem and seeds it can be "
        "argued about.",
    )


def _paper_beside(run: Run, final: Run) -> str:
    """Trains the paper's values on the seeds of the winner's final run, and makes the report anew."""
    asked = final.experiment
    file = f"{run.name}-paper"
    words = ["fedtune", "run", f"{file}.yaml", "--seeds", str(len(final.chosen))]
    words += ["--seed", str(asked["seed"])] if asked.get("seed") else []
    words += ["--name", os.path.join(os.path.dirname(run.shown), file)]
    export = ["fedtune", "export", run.shown, "--trial", str(run.paper), "-o", f"{file}.yaml"]
    return " && ".join(map(join, (export, words, ["fedtune", "report", run.shown])))


def _beside(final: Run) -> str:
    """Trains a baseline on the problem and the seeds of a final run, and compares the two."""
    values = final.config(final.chosen[0])
    method, folder = baseline(values), os.path.dirname(final.shown) or "."
    words = ["fedtune", "run", method, *same_problem(method, values), "--seeds", str(len(final.chosen))]
    asked = final.experiment
    words += ["--seed", str(asked["seed"])] if asked.get("seed") else []
    files = f"FEDTUNE_DATA={quote(str(asked['data_dir']))} " if asked.get("data_dir") else ""
    default = f"{method}-final"
    names = (default if n == 1 else f"{default}-{n}" for n in itertools.count(1))
    # One that is there may be of another problem.
    name = next(name for name in names if not (final.path.parent / name).exists())
    made = os.path.join(folder, name)
    words += ["--name", name if folder == "runs" else made] if (folder, name) != ("runs", default) else []
    beside = ["fedtune", "compare", final.shown, made]
    return f"{files}{join(words)} && {join(beside)}"


def unfinished(run: Run) -> bool:
    """Whether trials of the search are still to be run."""
    return bool(run.trials["state"].isin(["RUNNING", "WAITING"]).any()) or _planned(run) > len(run.trials)


def resume(run: Run) -> tuple[str, str]:
    """The command that goes on with it, and why."""
    return (
        f"fedtune resume {quote(run.record.resumed)}",
        "Trials of this search are unfinished; this goes on with them.",
    )


def _planned(run: Run) -> int:
    """How many trials were asked for; 0 where a race counts rounds instead."""
    asked = run.experiment.get("trials")
    return asked if isinstance(asked, int) and not run.raced else 0


def _paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _configuration(run: Run, labels: Labels) -> str:
    """`α = 0.27   λ = 0.87`, as HTML."""
    assert run.best is not None
    values = run.parameters(run.best)
    shown = [f"{labels.symbol(key)} = {number(values[key])}" for key in run.keys if key in values]
    return "".join(f"<span>{escape(one)}</span>" for one in shown)


def _value(run: Run, labels: Labels) -> str:
    """The estimate in large with its interval, and where it lies among all trials; without one, the winner's values."""
    metric, found = run.metrics[0], run.estimate
    if found is None:
        means = [(name, spread(labels, name, run.over_seeds(name))) for name in run.metrics]
        shown = ", ".join(f"{labels.metric(name, split=True, unit=False)} {value}" for name, value in means)
        return f'<p class="estimate"><b>{escape(shown)}</b></p>'
    interval = f"{labels.shown(metric, found.low)} to {labels.shown(metric, found.high)}"
    title = labels.metric(metric, split=True, unit=False)
    done = run.trials[(run.trials["state"] == "COMPLETE") & run.trials["value"].notna()]
    values = (run.levelled[metric] if run.single else done["value"]).dropna().tolist()
    what = f"{'configuration' if run.single else 'trial'}{'s' * (len(values) != 1)}"
    return (
        f'<p class="estimate"><b>{escape(labels.shown(metric, found.mean))}</b> <span>{escape(title)}, estimated mean '
        f"over all seeds; {100 * found.level:.0f} % interval {escape(interval)}</span></p>"
        + _interval_strip(found, values, what, lambda value: labels.shown(metric, value))
    )


def _ahead(run: Run, labels: Labels) -> list[str]:
    """The trial that has not ended and is ahead, if there is one."""
    if run.ahead is None:
        return []
    curve = run.trial(run.ahead).intermediate_values
    rounds = max(curve), int(run.experiment["rounds"])
    found = run.ahead_estimate
    metric = run.metrics[0]
    return [ahead_sentence(run.ahead, rounds, curve[rounds[0]], found, lambda value: labels.shown(metric, value))]


def _sure(run: Run, labels: Labels) -> list[str]:
    """What cannot be told from the winner, and why."""
    found = run.estimate
    if found is None:
        if len(run.directions) == 1:
            return ["There is no estimate yet: it needs two trials that ran to their end."]
        front = ", ".join(map(str, run.front))
        return [
            f"{len(run.front)} trials are Pareto-optimal, as no other one is better in every objective: {front}. The "
            f"one above gives up least of one objective for what it gains in the others."
        ]
    said = sentences(found, lambda value: labels.shown(run.metrics[0], value))[1:]
    if len(found.tied) > 1:
        named = ", ".join(map(str, found.tied[:NAMED]))
        more = f" and {len(found.tied) - NAMED} more" if len(found.tied) > NAMED else ""
        said.append(f"The configurations that cannot be told apart are, the best estimate first, trials {named}{more}.")
    return said


def _ties(run: Run, labels: Labels) -> list[str]:
    """Says where several trials share the highest value, and why one of them is named."""
    if len(run.directions) > 1:
        return []
    done = run.trials[(run.trials["state"] == "COMPLETE") & run.trials["value"].notna()]
    top = done["value"].max() if run.maximise else done["value"].min()
    same = done.loc[done["value"] == top, "number"].tolist()
    if len(same) < 2:
        return []
    named = ", ".join(map(str, same[:NAMED])) + (f" and {len(same) - NAMED} more" if len(same) > NAMED else "")
    why = (
        "the estimate, which knows their neighbours and the noise, decides"
        if run.estimate is not None
        else "the first of them is named"
    )
    return [f"A tie: trials {named} ended at the same best value, {labels.shown(run.metrics[0], top)}; {why}."]


def fresh(run: Run, labels: Labels, finals: Sequence[FinalRun]) -> list[str]:
    """The search's own score against that on fresh seeds: how optimistic it was. Nothing where no final run is."""
    if not finals:
        return []
    lines = []
    for final in finals:
        for metric in run.metrics:
            name = next((m for m in (metric, twin(metric)) if final.over_seeds(m) and run.last(final.trial, m)), None)
            if name is not None:
                lines.append(_optimism(run, labels, final, name))
    return lines or ["The final runs beside this search did not measure what it selected on."]


def _optimism(run: Run, labels: Labels, final: FinalRun, metric: str) -> str:
    fresh = final.over_seeds(metric)
    found, searched = summarise(list(fresh.values())), summarise(list(run.last(final.trial, metric).values())).mean
    apart = (1 if run.maximise else -1) * (searched - found.mean)
    size = labels.shown(metric, abs(apart)).replace(" %", " points")
    verdict = f"{size} too good" if apart > 0 else f"{size} too bad" if apart < 0 else "right"
    title = labels.metric(metric, split=True, unit=False)
    several = f"{len(fresh)} fresh seeds" if len(fresh) > 1 else "one fresh seed"
    line = (
        f"{title} of trial {final.trial}: {labels.shown(metric, searched)} in the search, "
        f"{spread(labels, metric, fresh)} on {several} ({final.run.name}). The search's value was {verdict}."
    )
    estimate = run.estimate_for(len(fresh))
    if estimate is None or final.trial != estimate.trial or metric != run.metrics[0] or not math.isfinite(found.mean):
        return line
    where = "inside" if estimate.low <= found.mean <= estimate.high else "outside"
    what = "as many" if len(fresh) > 1 else "one"
    return (
        f"{line} The mean on fresh seeds lies {where} what the search expected of {what}, "
        f"{100 * estimate.level:.0f} % interval {labels.shown(metric, estimate.low)} to "
        f"{labels.shown(metric, estimate.high)}."
    )


def stops(run: Run) -> list[str]:
    """How many trials were stopped, and what that saved."""
    stopped = run.trials[run.trials["state"] == "PRUNED"]
    if stopped.empty:
        return []
    rounds = run.experiment.get("rounds")
    said = f"{len(stopped)} of {len(run.trials)} trials were stopped early"
    if isinstance(rounds, int) and not isinstance(rounds, bool):
        saved = int((rounds - stopped["rounds"]).clip(lower=0).sum())
        said += f", which saved {saved} rounds of {len(run.trials) * rounds}"
    return [f"{said}."]


def stops_cost(run: Run) -> list[str]:
    """What stopping probably cost, where a trial was stopped."""
    if not (run.trials["state"] == "PRUNED").any():
        return []
    believed = None if run.standing is None else unseen(run.standing)
    return [] if believed is None else [unseen_sentence(believed)]


def _interval_strip(found: Estimate, values: Sequence[float], what: str, shown: Callable[[float], str]) -> str:
    """An SVG as wide as its column. `values`: of all trials or configurations (`what`) that ran to their end; `shown`
    writes one."""
    low, high = min([found.low, *values]), max([found.high, *values])
    span = (high - low) or 1.0

    def at(value: float) -> str:
        return f"{1 + 98 * (value - low) / span:.2f}%"

    step = max(1, len(values) // TICKS)
    ticks = "".join(f'<line class="tick" x1="{at(v)}" x2="{at(v)}" y1="24" y2="36"/>' for v in sorted(values)[::step])
    told = (
        f"The estimate {shown(found.mean)} and its interval from {shown(found.low)} to {shown(found.high)}, above the "
        f"values of {len(values)} {what} from {shown(low)} to {shown(high)}."
    )
    return (
        f'<svg class="strip" height="40" role="img" aria-label="{escape(told)}"><title>{escape(told)}</title>'
        f'<line class="axis" x1="0.5%" x2="99.5%" y1="30" y2="30"/>{ticks}'
        f'<line class="interval" x1="{at(found.low)}" x2="{at(found.high)}" y1="12" y2="12"/>'
        f'<circle class="mean" cx="{at(found.mean)}" cy="12" r="6"/></svg>'
        f'<p class="ends small"><span>{escape(shown(low))}</span><span>bar: estimate and interval · ticks: {what} that '
        f"ran to their end</span><span>{escape(shown(high))}</span></p>"
    )


def no_result_card(page: Page, run: Run, labels: Labels, prefix: str) -> None:
    """Adds the card of a run of which no trial has run to its end."""
    rows = [("What happened", [_outcomes(run), *_ahead(run, labels)]), ("Errors", _errors(run))]
    title = "There is no result yet" if unfinished(run) else "There is no result"
    page.card(f"{prefix}answer", title, told(rows, _next_without_result(run)), "Answer" if not prefix else "")


def _outcomes(run: Run) -> str:
    found = Counter(trial.state.name for trial in run.frozen)
    planned = run.experiment.get("trials")
    if not found:
        return f"No trial has begun{f' of the {planned} that are planned' if isinstance(planned, int) else ''}."
    words = {"FAIL": "failed", "PRUNED": "stopped early", "RUNNING": "under way", "WAITING": "waiting"}
    if set(found) == {"FAIL"}:
        count = found["FAIL"]
        return "The only trial failed." if count == 1 else f"All {count} trials failed."
    counted = ", ".join(f"{found[state]} {word}" for state, word in words.items() if found[state])
    return f"No trial has run to its end: {counted}."


def _errors(run: Run) -> list[str]:
    """Every error once, the most frequent first, with the trial that met it first."""
    first: dict[str, int] = {}
    count: Counter[str] = Counter()
    for trial in run.frozen:
        if trial.state.name == "FAIL":
            error = str(trial.user_attrs.get("error") or "no reason was recorded")
            first.setdefault(error, trial.number)
            count[error] += 1
    lines = [
        f"{error} ({f'trial {first[error]}' if many == 1 else f'{many} trials, the first is trial {first[error]}'})"
        for error, many in count.most_common(ERRORS_NAMED)
    ]
    more = len(count) - ERRORS_NAMED
    return [*lines, *([f"{more} further errors are in the table of failures."] if more > 0 else [])]


def _next_without_result(run: Run) -> tuple[str, str]:
    """The command that a reader should give next, and why."""
    if unfinished(run):
        line, _ = resume(run)
        return line, "Trials of this run are still to be run; this goes on with them."
    if run.kind == "run" or run.raced or run.record.sampler == "grid" or run.experiment.get("part"):
        return (
            f"fedtune status {quote(run.shown)}",
            "It lists what every trial failed with. Mend that, and start the run again.",
        )
    return (
        f"fedtune extend {join([run.shown, '--trials', str(len(run.frozen))])}",
        "Mend what the errors name. Trials that failed stay as they are; this adds as many new ones.",
    )
