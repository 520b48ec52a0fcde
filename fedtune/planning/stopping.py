"""What `--grace auto` and `--audit` need of a search, and what the user is told of them before it starts."""

from __future__ import annotations

from fedtune.options import SearchRequest
from fedtune.record.experiment import Experiment
from fedtune.trials.grace import AUTO, FIRST, LEAST, candidates


def needs_stopping(request: SearchRequest, scheduler: str, rounds: int, metrics: int, problems: list[str]) -> None:
    """Adds a problem where one of the two options was given to a search in which it means nothing."""
    asked = [option for option, given in (("--grace auto", request.grace == AUTO), ("--audit", request.audit)) if given]
    for option in asked:
        if scheduler == "none":
            problems.append(
                f"{option} needs a search that stops trials early, and with the scheduler none all trials run to their "
                f"end. Leave it out, or give --scheduler asha."
            )
        if metrics > 1:
            problems.append(f"{option} compares trials by one metric. Give one --metric, or leave the option out.")
        if not candidates(rounds):
            problems.append(f"{option} needs trials of at least 2 rounds, so that one can be stopped. Raise --rounds.")


def stopping_notes(experiment: Experiment) -> list[str]:
    """What is said when the search starts."""
    e, found = experiment, []
    if e.grace == AUTO:
        found.append(
            f"The grace is chosen from the search's own trials. At least the first {FIRST} run to their end, and "
            f"trials may be stopped from the first round on whose rank correlation with the end is surely above "
            f"{LEAST:g}."
        )
    if e.audit:
        found.append(
            f"Of the trials that would be stopped, a random share of {e.audit:g} runs to its end, to measure what "
            f"stopping costs."
        )
    return found
