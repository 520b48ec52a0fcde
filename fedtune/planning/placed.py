"""A run that goes on, placed anew: whether this machine has what it began with, and what is said where it is placed
otherwise."""

from __future__ import annotations

from fedtune.machine import resources
from fedtune.record.experiment import Experiment
from search_spaces.errors import Shown, sentence


def left_cluster(begun: Experiment, address: str | None, *, option: bool = True) -> str | None:
    """What is said where a run was begun on a cluster and goes on without. A recorded address is not joined: whoever
    wrote the run directory would choose to whom this user's code and data are sent. `option`: whether the command has
    --address."""
    if begun.address is None or address is not None:
        return None
    said = f"This run was begun on the Ray cluster at {begun.address!r} and goes on on this machine."
    return f"{said} Give --address to join a cluster." if option else said


def crowded(placed: Experiment, problems: list[str], asked: int | None) -> str | None:
    """A warning where the trials of a resumed run will have more threads than there are cores. Where the user `asked`
    for so many trials at the same time, it is a problem instead."""
    if placed.address is not None:
        return None
    cores, threads = resources.cores(), placed.threads
    told = resources.crowding(placed.concurrency, threads, cores)
    if told and asked is not None:
        why = f"as each trial of this run has {threads} thread{'s' * (threads > 1)} and there are {cores} cores"
        problems.append(sentence("concurrency", f"at most {max(1, cores // threads)}, {why}", asked, "--concurrency"))
    return told


def check_placement(experiment: Experiment, problems: list[str], *, fix: str | None = None) -> None:
    """Adds a problem for everything that was possible where the run began and is not possible on this machine. `fix`
    replaces the options of `resume` as the way out, where they are not to be had."""
    if experiment.concurrency < 1 or experiment.looks_back and experiment.concurrency > experiment.lag:
        problems.append(
            sentence(
                "concurrency",
                f"a whole number in [1, {experiment.lag}], as {experiment.lag} is the lag of the run",
                experiment.concurrency,
                "--concurrency",
            )
        )
    if experiment.address is None:
        here = resources.machine()
        if experiment.gpus_per_trial > here.gpus:
            problems.append(
                sentence(
                    "gpus-per-trial",
                    f"at most {here.gpus}, the number of GPUs of this machine",
                    Shown(f"{experiment.gpus_per_trial:g}"),
                    "",
                    fix or "Give --gpus-per-trial 0 to go on without.",
                )
            )
        if not 0 < experiment.cpus_per_trial <= here.cores:
            problems.append(
                sentence(
                    "cpus-per-trial",
                    f"above 0 and at most {here.cores}, the number of cores of this machine",
                    Shown(f"{experiment.cpus_per_trial:g}"),
                    "",
                    fix or "Give --cpus-per-trial.",
                )
            )
