"""How long what is left of a figure or table takes on this machine.

A round costs what rounds of the same row took that the folder holds. Of a row that has none a few are timed now, or the
parts of one. The small form on the embedded digits declares what its rounds cost, so that nothing of it is timed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.runs import Run
from analysis.runs import load_run as load
from fedtune.console.progress import duration
from fedtune.planning.estimate import START_UP, timed_cost
from fedtune.planning.plan import placement
from fedtune.planning.reproduction import PlannedRun, ReproductionPlan
from fedtune.planning.short_round import Known, taking_part
from search_spaces.errors import UserError

#: Where fewer rounds of a row are left, timing two or three of them would take a tenth as long as all, or longer.
WORTH = 20
#: From where the cost of a round is known, in words.
RECORDED, TIMED, DECLARED = (
    "as rounds in this folder took",
    "timed here now",
    "measured once, a mean over rows",
)
#: What all of it may take, as a multiple of what is expected. Rounds are timed alone, and trials run side by side; what
#: is declared was measured on another machine. Fewer recorded rounds than `WORTH` tell no more than timed ones.
SPREAD = {RECORDED: (0.7, 1.5), TIMED: (0.7, 2.0), DECLARED: (0.5, 2.0)}


@dataclass(frozen=True)
class Pace:
    """The seconds of a round of one seed: what is expected, and from where to where it may be."""

    row: str
    seconds: float
    low: float
    high: float
    known: str


@dataclass(frozen=True)
class TimeLeft:
    """How long it takes, in seconds: what is expected, and from where to where it may be.

    `4 trials with 400 rounds of single seeds: about 3.4 h (2.4 h to 6.8 h), 2 at the same time. A round …`"""

    seconds: float
    low: float
    high: float
    #: Trials that have not ended, and the rounds of single seeds that they have left.
    trials: int
    rounds: int
    at_once: int
    #: Of every row; a row under several numbers of clients is there several times.
    paces: Sequence[Pace]

    def sentence(self) -> str:
        """What a person is told."""
        rows = sorted(self.paces, key=lambda pace: pace.seconds)
        ends = [f"{pace.seconds:.2g} s ({pace.row})" for pace in (rows[0], rows[-1])]
        each = " to ".join(dict.fromkeys(ends))
        known = " and ".join(dict.fromkeys(pace.known for pace in rows))
        if known == DECLARED:
            each = f"{rows[0].seconds:.2g} s"
        took = f"{duration(self.seconds)} ({duration(self.low)} to {duration(self.high)})"
        return (
            f"{_counted(self.trials, self.rounds)}: about {took}, {self.at_once} at the same time. A round of one seed "
            f"takes {each}, {known}."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "paces": [dict(vars(pace)) for pace in self.paces]}


@dataclass
class _Group:
    """Runs whose rounds cost alike: of one row, under equally many clients that take part."""

    first: PlannedRun
    row: str
    #: The rounds of single seeds that each trial has left, and the seconds of those that were recorded.
    left: list[int] = field(default_factory=list)
    recorded: list[float] = field(default_factory=list)


def time_left(planned: ReproductionPlan, say: Callable[[str], object], *, thorough: bool = False) -> TimeLeft | str:
    """What is to be run now; in its place a sentence where nothing is left, or where nothing is known and timing would
    take about as long as running, unless it is to be `thorough`. `say` is told what is being timed.

    Raises `UserError` where a configuration cannot be run, or a run in the folder cannot be read."""
    groups: dict[tuple[str, int], _Group] = {}
    for part in planned.parts:
        # Rows that vary a number each are all of one method, whose rounds cost alike.
        row = part.row.method if part.row.varies else part.row.name
        group = groups.setdefault((row, taking_part(part.values())), _Group(part, row))
        run = load(part.folder) if part.exists else None
        group.left += _left(part, run)
        group.recorded += _seconds(run) if run is not None else []
    due = [group for group in groups.values() if group.left]
    trials, rounds = sum(len(group.left) for group in due), sum(sum(group.left) for group in due)
    if not due:
        return "Nothing is left to be run."
    problems: list[str] = []
    request = planned.parts[0].request
    packing = placement(request, problems, trials=sum(part.trials for part in planned.parts))
    if problems:
        raise UserError(*problems)
    declared = planned.is_declared and not packing.gpus
    if not thorough and not declared and any(sum(g.left) < WORTH and not g.recorded for g in due):
        return (
            f"{_counted(trials, rounds)}: how long they take is not told, as timing some would take about as long. "
            "--dry-run times them."
        )
    paces, known = [], Known()
    for group in due:
        if group.recorded:
            paces.append(_pace(group.row, group.recorded, RECORDED))
        elif declared:
            paces.append(_pace(group.row, [planned.reproduction.seconds], DECLARED))
        else:
            say(f"timing rounds of {group.row}")
            device = "cuda" if packing.gpus else "cpu"
            found = timed_cost(
                group.first.row.method,
                group.first.values(),
                0,
                device=device,
                threads=packing.threads,
                data_dir=request.data_dir,
                known=known,
            )
            paces.append(_pace(group.row, [found.seconds], TIMED))

    def total(costs: Sequence[float]) -> float:
        lengths = [cost * left for group, cost in zip(due, costs, strict=True) for left in group.left]
        return START_UP + max(sum(lengths) / packing.concurrency, *lengths)

    seconds, low, high = (total([getattr(pace, name) for pace in paces]) for name in ("seconds", "low", "high"))
    return TimeLeft(seconds, low, high, trials, rounds, packing.concurrency, paces)


def _left(part: PlannedRun, run: Run | None) -> list[int]:
    """The rounds of single seeds that each trial has left which has not ended."""
    rounds, each = int(part.values()["rounds"]), part.each
    if run is None:
        return [rounds * each] * part.trials
    begun = {trial.number: trial.state.is_finished() for trial in run.frozen}
    return [
        each * (rounds - (run.completed(number) if number in begun else 0))
        for number in range(part.trials)
        if not begun.get(number, False)
    ]


def _seconds(run: Run) -> list[float]:
    """Of every recorded round of a seed."""
    return [line["seconds"] for lines in run.lines.values() for line in lines.values() if "seconds" in line]


def _pace(row: str, found: Sequence[float], known: str) -> Pace:
    """A mean and a spread: that of the recorded quarters, and at least `SPREAD`."""
    mean = statistics.fmean(found)
    first, _, third = statistics.quantiles(found) if len(found) > 1 else (mean, mean, mean)
    low, high = SPREAD[TIMED if known == RECORDED and len(found) < WORTH else known]
    return Pace(row, mean, min(first, low * mean), max(third, high * mean), known)


def _counted(trials: int, rounds: int) -> str:
    return f"{trials} trial{'s' * (trials > 1)} with {rounds:,} round{'s' * (rounds > 1)} of single seeds"
