"""The first screen of a run without a result: how far it came, what went wrong, and what to do next."""

from __future__ import annotations

from collections import Counter

from analysis.report.answer import resume, told, unfinished
from analysis.report.page import Page
from analysis.runs import Run
from search_spaces.shell import join, quote

#: So many different errors are named.
NAMED = 3


def nothing(page: Page, run: Run, prefix: str) -> None:
    """Adds the card of a run of which no trial has run to its end."""
    rows = [("What happened", [_outcomes(run)]), ("Errors", _errors(run))]
    page.card(f"{prefix}answer", "There is no result", told(rows, _next(run)), "Answer" if not prefix else "")


def _outcomes(run: Run) -> str:
    found = Counter(trial.state.name for trial in run.frozen)
    planned = run.experiment.get("trials")
    if not found:
        return f"No trial has begun{f' of the {planned} that are planned' if isinstance(planned, int) else ''}."
    words = {"FAIL": "failed", "PRUNED": "stopped early", "RUNNING": "under way", "WAITING": "waiting"}
    if set(found) == {"FAIL"}:
        count = found["FAIL"]
        return "The only trial failed." if count == 1 else f"All {count} trials failed."
    told_ = ", ".join(f"{found[state]} {word}" for state, word in words.items() if found[state])
    return f"No trial has run to its end: {told_}."


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
        for error, many in count.most_common(NAMED)
    ]
    more = len(count) - NAMED
    return [*lines, *([f"{more} further errors are in the table of failures."] if more > 0 else [])]


def _next(run: Run) -> tuple[str, str]:
    """The command that a reader should give next, and why."""
    if unfinished(run):
        line, _ = resume(run)
        return line, "Trials of this run are still to be run; this goes on with them."
    if run.kind == "run" or run.raced or run.sampler == "grid" or run.experiment.get("part"):
        return (
            f"fedtune status {quote(run.shown)}",
            "It lists what every trial failed with. Mend that, and start the run again.",
        )
    return (
        f"fedtune extend {join([run.shown, '--trials', str(len(run.frozen))])}",
        "Mend what the errors name. Trials that failed stay as they are; this adds as many new ones.",
    )
