"""What a person sees while trials run: a live panel in a terminal or below a notebook's cell, else a line now and then
on stderr.

The driver tells the display of every event. A separate thread draws it, so that something is shown while Ray starts or
while a round is long.
"""

from __future__ import annotations

import math
import statistics
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from analysis.labels import told
from fedtune.console.notebook import CellOutput, is_notebook
from fedtune.record.experiment import Experiment
from search_spaces.errors import visible
from search_spaces.metrics import METRICS, is_unreached
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from rich.console import RenderableType

Style = Literal["live", "notebook", "plain", "quiet"]
#: Seconds between two lines where there is no terminal.
HEARTBEAT = 4.0
#: Rounds per second are counted over the last so many seconds.
WINDOW = 60.0


def style(plain: bool = False, quiet: bool = False) -> Style:
    """The style to use: live only if stderr is a terminal that can redraw, `notebook` in one, and neither where `plain`
    or `quiet` is set."""
    import os

    if quiet:
        return "quiet"
    if not plain and is_notebook():
        return "notebook"
    return "live" if not plain and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" else "plain"


@dataclass
class Running:
    """A trial that has begun and not ended."""

    values: Mapping[str, Value]
    round: int = 0
    #: What it measured last, and in which round.
    metrics: tuple[float, ...] | None = None
    measured: int = 0


@dataclass
class ProgressDisplay:
    """The state of a search, kept from the events the driver tells, and its display."""

    experiment: Experiment
    style: Style
    phase: str = "starting Ray"
    ended: Counter[str] = field(default_factory=Counter)
    #: Rounds of the trials that have ended.
    spent: int = 0
    running: dict[int, Running] = field(default_factory=dict)
    #: Under the condition where there was a new one last.
    best: tuple[int, tuple[float, ...], Mapping[str, Value]] | None = None
    #: Of a final run the values of all trials that ran to their end.
    values: list[tuple[float, ...]] = field(default_factory=list)
    #: The conditions of the experiment, by key.
    varied: Collection[str] = ()
    #: Seconds that a round of each running trial takes by its price, and one of trials to come; None until it is known.
    expected: tuple[Mapping[int, float], float] | None = None

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        #: When it is asked next what rounds are expected to take.
        self._asked_again = 0.0
        self._ticks: deque[float] = deque()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._live: Any = None
        self._cell: CellOutput | None = None
        self._told: int | None = None
        self._said: set[str] = set()
        self._bests: dict[str, tuple[int, tuple[float, ...], Mapping[str, Value]]] = {}

    # -- events ----------------------------------------------------------------------------------------------------

    def past(
        self, number: int, state: str, values: Sequence[float] | None, params: Mapping[str, Value], rounds: int = 0
    ) -> None:
        """A trial that had ended before this session, after so many rounds that count in a race's budget."""
        with self._lock:
            self._end(number, state, values, params, rounds)

    def started(self, number: int, params: Mapping[str, Value]) -> None:
        with self._lock:
            self.phase = ""
            self.running[number] = Running(params)

    def round(self, number: int, round_: int, values: Sequence[float] | None) -> None:
        with self._lock:
            trial = self.running.get(number)
            if trial is None:
                return
            if round_ > trial.round:
                self._ticks.append(time.monotonic())
                self._forget(self._ticks[-1])
            trial.round = round_
            if values is not None:
                trial.metrics, trial.measured = tuple(values), round_

    def expect(self, forecast: Callable[[], tuple[Mapping[int, float], float] | None]) -> None:
        """Takes in what rounds are expected to take (`expected`), as seldom as asking takes a twentieth of the time:
        beside a thousand trials it takes tens of milliseconds."""
        if (now := time.monotonic()) < self._asked_again:
            return
        found = forecast()
        self._asked_again = now + 20 * (time.monotonic() - now)
        with self._lock:
            self.expected = found

    def put_back(self, number: int) -> None:
        """A trial that stopped, to be started again later."""
        with self._lock:
            self.running.pop(number, None)

    def finished(self, number: int, state: str, values: Sequence[float] | None, error: str | None) -> None:
        with self._lock:
            trial = self.running.pop(number, None) or Running({})
            self._end(number, state, values, trial.values, trial.round)
        if error and state == "FAIL":
            self.say(f"{self._named(number).capitalize()} failed: {error}")

    def say(self, text: str) -> None:
        """Prints a line that stays (`tell`)."""
        if (live := self._live) is not None:  # (another thread may end it)
            live.console.print(visible(text), markup=False, highlight=False)
        else:
            tell(text, self.style)

    def say_once(self, text: str | None) -> None:
        """The same, if there is a text that was not said so before, such as what is said of a machine."""
        if text and text not in self._said:
            self._said.add(text)
            self.say(text)

    def _end(
        self, number: int, state: str, values: Sequence[float] | None, params: Mapping[str, Value], rounds: int
    ) -> None:
        """Counts a trial that has ended, after so many rounds."""
        self.ended[state] += 1
        self.spent += rounds
        if state == "COMPLETE" and values:
            self._consider(number, values, params)

    def _consider(self, number: int, values: Sequence[float], params: Mapping[str, Value]) -> None:
        if self._is_final:
            self.values.append(tuple(values))
        sign = self.experiment.signs[0]
        # Of two equal trials the earlier one is the best, in whichever order they ended.
        best = self._bests.get(condition := self._condition(params))
        if best is None or (sign * values[0], -number) > (sign * best[1][0], -best[0]):
            self.best = self._bests[condition] = (number, tuple(values), params)

    def _condition(self, params: Mapping[str, Value]) -> str:
        """The condition that these values are under, in words; empty where nothing is varied."""
        return ", ".join(f"{key}={_short(params[key])}" for key in self.varied if key in params)

    # -- drawing ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> None:
        if self.style == "live":
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True), get_renderable=self._panel, refresh_per_second=4, transient=True
            )
            self._live.start()
        elif self.style == "notebook":
            self._cell = CellOutput(self._below_cell)
            self._cell.start()
        elif self.style == "plain":
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._cell is not None:
            self._cell.stop()
        if self._thread is not None:
            self._thread.join()
            if self.ended:
                print(visible(self.line()), file=sys.stderr, flush=True)

    def _below_cell(self) -> RenderableType:
        """The panel, and the last line once all is over."""
        from rich.text import Text

        return Text(visible(self.line())) if self._stop.is_set() else self._panel()

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT if self.phase == "" else HEARTBEAT / 2):
            print(visible(self.line()), file=sys.stderr, flush=True)

    def line(self) -> str:
        """One line with the best values first, so that a narrow terminal shows them: `12.3 s  best 81.00 % (trial 7)  4
        of 30 trials: 3 done, 1 pruned, 0 failed, 2 running  3.1 rounds/s  about 2 min left`."""
        with self._lock:
            parts = [f"{time.monotonic() - self._started:6.1f} s"]
            if self.phase:
                return "  ".join([*parts, self.phase])
            parts += [self._short_best(), self._ahead(), self._counts(), self._speed()]
            if self.best is not None and not self._is_final and self.best[0] != self._told:
                # What it is is told only when it is new; a log does not need it in every line.
                self._told = self.best[0]
                parts.append(f"new {self._best_under(self.best[2])}: {self._describe(*self.best)}")
        return "  ".join(part for part in parts if part)

    def _ahead(self) -> str:
        """Of the trials that run the one with the best last value, as long as none that has ended has a better one:
        `running: 65.20 % (trial 1, round 4 of 6)`. Nothing where trials are not to be compared by one value: of several
        metrics, under several conditions, and of a final run, whose seeds are none the best."""
        e, sign = self.experiment, self.experiment.signs[0]
        if self._is_final or len(e.metric) > 1 or self.varied:
            return ""
        last = {number: (one.metrics[0], one.measured) for number, one in self.running.items() if one.metrics}
        known = {n: at for n, at in last.items() if math.isfinite(at[0]) and not is_unreached(at[0])}
        number = max(known, key=lambda n: (sign * known[n][0], -n), default=None)
        if number is None:
            return ""
        value, round_ = known[number]
        if self.best is not None and sign * value <= sign * self.best[1][0]:
            return ""
        return f"running: {told(e.metric[0], value)} (trial {number}, round {round_} of {e.rounds})"

    def _best_under(self, params: Mapping[str, Value]) -> str:
        condition = self._condition(params)
        return f"best under {condition}" if condition else "best"

    @property
    def _is_final(self) -> bool:
        """Whether trials are the seeds of one configuration, of which none is the best."""
        return self.experiment.kind == "run"

    def _counts(self) -> str:
        e, all_ended = self.ended, sum(self.ended.values())
        if self._is_final:
            of = f"{all_ended} of {self.experiment.trials} seeds"
            return f"{of}: {e['COMPLETE']} done, {e['FAIL']} failed, {len(self.running)} running"
        done = f"{all_ended} of {self.experiment.trials} trials"
        if self.experiment.races:
            done = "{} of {} seed-rounds".format(*self._rounds())
        return f"{done}: {e['COMPLETE']} done, {e['PRUNED']} pruned, {e['FAIL']} failed, {len(self.running)} running"

    def _short_best(self) -> str:
        """`best 0.81 (trial 7)`; of a final run `mean val_global_accuracy 0.71 ± 0.02`, over the seeds that have ended.
        In the end there are means on test data, so these are told apart."""
        if self._is_final and self.values:
            columns = dict(zip(self.experiment.metric, zip(*self.values, strict=True), strict=True))
            return "mean " + ", ".join(
                f"{name} {told(name, statistics.fmean(column))}"
                + (f" ± {told(name, statistics.stdev(column))}" if column[1:] else "")
                for name, column in columns.items()
            )
        if self._is_final or self.best is None:
            return ""
        shown = map(told, self.experiment.metric, self.best[1])
        return f"{self._best_under(self.best[2])} {', '.join(shown)} (trial {self.best[0]})"

    def _named(self, number: int) -> str:
        return self.experiment.called(number)

    def _describe(self, number: int, values: Sequence[float], params: Mapping[str, Value]) -> str:
        shown = ", ".join(
            f"{name} {told(name, value)}" for name, value in zip(self.experiment.metric, values, strict=True)
        )
        return f"trial {number}: {shown}" + (
            f" ({', '.join(f'{k}={_short(v)}' for k, v in params.items())})" if params else ""
        )

    def rate(self) -> float:
        """Rounds per second over the last `WINDOW` seconds; 0 while too few have ended."""
        now = time.monotonic()
        self._forget(now)
        if len(self._ticks) < 2:
            return 0.0
        return (len(self._ticks) - 1) / max(1e-9, now - self._ticks[0])

    def _forget(self, now: float) -> None:
        """Lets go of the rounds that ended before the last `WINDOW` seconds."""
        while self._ticks and now - self._ticks[0] > WINDOW:
            self._ticks.popleft()

    def _speed(self) -> str:
        rate, left = self.rate(), self._left()
        parts = [f"{rate:.2g} rounds/s"] if rate > 0 else []
        return "  ".join([*parts, f"about {duration(left)} left"] if left is not None else parts)

    def _left(self) -> float | None:
        """Seconds that what is left takes, by the prices of the trials that run and of those that ended before."""
        if self.expected is None:
            return None
        prices, coming = self.expected
        e, (done, total) = self.experiment, self._rounds()
        under_way = {number: e.rounds - trial.round for number, trial in self.running.items()}
        own = [rounds * prices.get(number, coming) for number, rounds in under_way.items()]
        rest = max(0, total - done - sum(under_way.values())) * coming
        return max([(sum(own) + rest) / e.concurrency, *own])

    def _rounds(self) -> tuple[int, int]:
        """How many rounds are over, those that stopped trials were spared included, and of how many."""
        e, under_way = self.experiment, sum(trial.round for trial in self.running.values())
        if e.races:
            return self.spent + under_way, e.budget
        return sum(self.ended.values()) * e.rounds + under_way, e.trials * e.rounds

    def _panel(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        with self._lock:
            elapsed = duration(time.monotonic() - self._started)
            head = Text.assemble(
                (f"{visible(self.experiment.name)}  ", "bold"), self._counts(), f"  {elapsed}  ", (self._speed(), "dim")
            )
            if self.phase:
                return Group(head, Text(f"{self.phase} …", "dim"))
            done, total = self._rounds()
            ahead = [Text(found)] if (found := self._ahead()) else []
            return Group(head, ProgressBar(total=total, completed=done, width=60), *ahead, *self._details())

    def _details(self) -> list[RenderableType]:
        """The best trial, and a table of those that run."""
        from rich.table import Table
        from rich.text import Text

        e, best = self.experiment, Text(self._short_best(), "green")
        if self.best is not None and not self._is_final:
            best = Text(visible(f"{self._best_under(self.best[2])}: {self._describe(*self.best)}"), "green")
        table = Table(box=None, padding=(0, 1), show_header=bool(self.running))
        number = "seed" if self._is_final else "trial"
        for title in (number, "round", *[METRICS[name].title for name in e.metric], "configuration"):
            table.add_column(title, style="dim" if title == "configuration" else "", overflow="ellipsis", no_wrap=True)
        for place, trial in sorted(self.running.items())[:20]:
            shown = [*map(told, e.metric, trial.metrics)] if trial.metrics else [""] * len(e.metric)
            table.add_row(
                self._named(place).split()[1],
                f"{trial.round}/{e.rounds}",
                *shown,
                Text(visible(", ".join(f"{k}={_short(v)}" for k, v in trial.values.items()))),
            )
        return [best, table]


def tell(text: str, style: Style) -> None:
    """Prints a line on stderr; in a notebook on stdout, as there stderr looks like a fault."""
    if style != "quiet":
        print(visible(text), file=sys.stdout if style == "notebook" else sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class AutoDisplay(ProgressDisplay):
    """The display of a search over several methods."""

    def __init__(
        self,
        experiment: Experiment,
        style: Style,
        costs: Mapping[str, float],
        budget: float,
        method_of: Callable[[int], str],
        clock: Callable[[], float] | None = None,
    ) -> None:
        """costs: what a round of a trial takes of the budget, by method; method_of: the method of a trial; clock: of a
        budget by the clock, its reading, with which the search ends when it shows the budget."""
        self.costs, self.budget, self.method_of, self.clock = dict(costs), budget, method_of, clock
        self.used, self._metric = 0.0, experiment.metric[0]
        #: By method: trials by outcome, and the best complete one.
        self.outcomes: dict[str, Counter[str]] = {method: Counter() for method in costs}
        self.leaders: dict[str, tuple[int, float]] = {}
        super().__init__(experiment, style)

    def _end(
        self, number: int, state: str, values: Sequence[float] | None, params: Mapping[str, Value], rounds: int
    ) -> None:
        method = self.method_of(number)
        self.outcomes[method][state] += 1
        self.used += self.costs[method] * rounds
        super()._end(number, state, values, params, rounds)

    def _consider(self, number: int, values: Sequence[float], params: Mapping[str, Value]) -> None:
        super()._consider(number, values, params)
        method, sign = self.method_of(number), self.experiment.signs[0]
        before = self.leaders.get(method)
        if before is None or (sign * values[0], -number) > (sign * before[1], -before[0]):
            self.leaders[method] = (number, values[0])

    def _rounds(self) -> tuple[int, int]:
        """In thousandths of the budget."""
        if self.clock is not None:
            return min(1000, int(1000 * self.clock() / self.budget)), 1000
        live = sum(self.costs[self.method_of(number)] * trial.round for number, trial in self.running.items())
        return min(1000, int(1000 * (self.used + live) / self.budget)), 1000

    def _speed(self) -> str:
        return ""

    def _counts(self) -> str:
        e, share = self.ended, self._rounds()[0] / 10
        return (
            f"{share:.0f} % of the budget: {e['COMPLETE']} done, {e['PRUNED']} pruned, {e['FAIL']} failed, "
            f"{len(self.running)} running"
        )

    def _describe(self, number: int, values: Sequence[float], params: Mapping[str, Value]) -> str:
        ranked = self._ranked()
        return ", ".join(
            f"{method} {told(self._metric, self.leaders[method][1])}" for method in ranked if method in self.leaders
        )

    def _ranked(self) -> list[str]:
        sign = self.experiment.signs[0]
        return sorted(
            self.costs,
            key=lambda method: (
                method not in self.leaders,
                -sign * self.leaders[method][1] if method in self.leaders else 0.0,
            ),
        )

    def _details(self) -> list[RenderableType]:
        """A table of the methods, the best one first."""
        from rich.table import Table

        table = Table(box=None, padding=(0, 1))
        for title in ("method", METRICS[self._metric].title, "trial", "done", "pruned", "running"):
            table.add_column(title, justify="left" if title == "method" else "right", no_wrap=True)
        live = Counter(map(self.method_of, self.running))
        for place, method in enumerate(self._ranked()):
            number, value = self.leaders.get(method, (None, None))
            counts = self.outcomes[method]
            table.add_row(
                method,
                "" if value is None else told(self._metric, value),
                "" if number is None else str(number),
                str(counts["COMPLETE"]),
                str(counts["PRUNED"]),
                str(live[method] or ""),
                style="green" if place == 0 and value is not None else "",
            )
        return [table]


class SeveralDisplay(ProgressDisplay):
    """The display of several runs, whose trials are numbered from one run to the next: none is better than another, as
    they are of different methods or under different conditions."""

    def __init__(self, experiment: Experiment, style: Style, name_of: Callable[[int], str]) -> None:
        """name_of: what a trial is called."""
        self.name_of = name_of
        super().__init__(experiment, style)

    def _consider(self, number: int, values: Sequence[float], params: Mapping[str, Value]) -> None:
        """Nothing is told of all together."""

    def _ahead(self) -> str:
        """Nor of those that run."""
        return ""

    def _named(self, number: int) -> str:
        return self.name_of(number)
