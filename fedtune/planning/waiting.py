"""What it means for a search that its trials wait for one another (`Experiment.seen`): how long it takes, and what is
said where that leaves a part of the machine idle."""

from __future__ import annotations

from fedtune.machine import resources
from fedtune.record.experiment import Experiment


def turns(e: Experiment, whole: int) -> int:
    """After how many times a trial's duration so many trials have ended, where all take equally long and none is
    stopped: each waits for a slot, and for the trials that it looks at."""
    ended = [0] * e.taken
    for number in range(e.taken, e.taken + whole):
        before = [number - e.concurrency, *([e.seen(number) - 1] if e.looks_back else [])]
        ended.append(1 + max((ended[other] for other in before if other >= 0), default=0))
    return ended[-1] if ended else 0


def waiting_notes(e: Experiment, here: resources.Machine | None) -> list[str]:
    """Notes for the user where fewer trials run at once than could: at first (`resources.EARLY`), or because of the
    lag. here: None is a cluster."""
    if not e.looks_back:
        return []
    held = here and resources.held_back(here, e.concurrency, e.threads, e.gpus_per_trial, lag=e.lag, trials=e.to_run)
    advice = [held] if held else []
    if e.concurrency <= 2 or e.taken >= e.early:
        return advice
    slow = e.early + 2 - e.taken
    which = f"The first {slow} trials run" if slow < e.to_run else "Trials run"
    said = f"{which} two at a time, as every result counts while little is known"
    if held:  # which names a lag already
        return [f"{said}.", *advice]
    then = f"; then {e.concurrency} do" if slow < e.to_run else ""
    return [f"{said}{then}. With --lag {e.lag}, {e.concurrency} run from the beginning; it changes what is proposed."]
