"""`fedtune.auto`: which method, which hyper-parameters, how sure, and the model, within one budget.

Three stages, each of which is left out when it was done before, so that what was interrupted goes on:

1. a search over all methods (`fedtune.decisions.method_allocation`), each with a run directory of its own below
   `search/`;
2. every method's best configuration (`best/METHOD.yaml`) on fresh seeds below `fresh/`, the same for all, and on
   further ones those that cannot be told apart (`fedtune.decisions.fresh_seeds`);
3. the leader on further seeds below `final/`, with its models.

Where time runs out of a budget by the clock, no further seeds are begun; the final run has fewer seeds, at least one,
and the methods fewer fresh ones. No run has fewer rounds than another, so that all values can be compared.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis import auto as reading
from analysis.auto import Auto
from analysis.auto import LeaderboardRow as Row
from analysis.auto.record import AutoRecord
from analysis.runs import Run
from analysis.runs import load_run as load
from analysis.runs.mappings import read_yaml
from fedtune.api.export import export
from fedtune.api.extend import changes
from fedtune.api.run import Final, report
from fedtune.api.search import Speaker, mirrored, result_of, stage_of
from fedtune.console import progress
from fedtune.console.busy import busy
from fedtune.console.progress import AutoDisplay
from fedtune.decisions import fresh_seeds, prices
from fedtune.decisions.history import Part
from fedtune.decisions.shared_budget import OVERRUN, Allocation, ByClock, Clock
from fedtune.execution import driver
from fedtune.execution.queue import Queue
from fedtune.machine import cluster
from fedtune.option import fields_of
from fedtune.options import AutoRequest, Mirrored, Progress, ResumeRequest, RunRequest
from fedtune.planning.auto_plan import AutoPlan, plan_auto
from fedtune.planning.plan import plan
from fedtune.planning.resumption import going_on, part_of
from fedtune.record.experiment import Experiment, final_seeds
from fedtune.record.mirror import check_new, check_same
from fedtune.record.provenance import extended
from fedtune.record.run_directory import lock, write_document
from fedtune.record.storage import check_uri
from search_spaces import run_folder
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.files import check_replaceable
from search_spaces.metrics import METRICS

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from optuna.trial import FrozenTrial


@fields_of(AutoRequest, cluster.ahead)
def auto(request: AutoRequest) -> AutoResult:
    """Searches over `methods` (names, or `all`) within a `budget` (a length of time such as `30m`, a count such as
    `600rounds`, traffic such as `2GB`), compares the best configuration of each on fresh seeds and trains the leader.

    Raises `UserError`, before anything is created, with every problem of the request. Ctrl-C ends it cleanly, and
    `resume` goes on."""
    with busy(progress.style(request.plain, request.quiet), "planning") as say:
        planned = plan_auto(request, say)
    return carry_out_auto(planned, request)


def carry_out_auto(plan: AutoPlan, shown: Progress) -> AutoResult:
    """Creates the folder of a plan and drives it to its end."""
    lead = plan.searches[0].experiment
    storage = shown.storage if isinstance(shown, Mirrored) else None
    cluster.check_address(lead.address)
    check_new(storage, plan.folder)
    plan.create()
    return _driven(plan.folder, plan.record, lead.address, shown, plan.notes, storage)


def resume_auto(request: ResumeRequest, fetched: str | None = None) -> AutoResult:
    """`fedtune.resume` of what `auto` began. What it finds is what it would have found uninterrupted. fetched: a line
    that is told first."""
    problems: list[str] = []
    check_uri(request.storage, problems)
    found = reading.load(request.run)
    for folder in (found.path / top / name for top in (run_folder.FRESH, run_folder.FINAL) for name in found.searches):
        if folder.exists() and not folder.is_dir():
            load(folder)  # which says so
    runs = [*found.searches.values(), *found.fresh.values(), *([] if found.final is None else [found.final])]
    goes_on = going_on(
        runs,
        request.address,
        other_versions=request.other_versions,
        options=not found.over,
        storage=request.storage,
        problems=problems,
    )
    if (best := found.path / run_folder.BEST).exists() and not best.is_dir():
        raise UserError(sentence(str(best), "a folder", Shown("a file"), fix="Move it away; it is written again."))
    check_replaceable(best / f"{method}.yaml" for method in found.searches)
    check_same(request.storage, found.path)
    notes = goes_on.notes if fetched is None else [fetched, *goes_on.notes]
    return _driven(found.path, found.record, request.address, request, notes, request.storage)


def _driven(
    folder: Path,
    record: AutoRecord,
    address: str | None,
    shown: Progress,
    notes: Sequence[str],
    storage: str | None,
) -> AutoResult:
    style = progress.style(shown.plain, shown.quiet)
    for note in notes:
        progress.tell(note, style)
    with lock(folder):
        stages = Stages(folder, record, address, style, shown.simulate)
        with mirrored(storage, folder, stages.say) as mirror:
            found = stages.result()
        return dataclasses.replace(found, unsent=mirror.unsent)


class Stages:
    """The three stages in a folder whose lock is held."""

    def __init__(
        self,
        folder: Path,
        record: AutoRecord,
        address: str | None,
        style: progress.Style,
        simulate: Callable[..., Any] | None,
    ) -> None:
        """address: of the cluster that was named when this command was given; those of records are not joined."""
        self.folder, self.record, self.address, self.style, self.simulate = folder, record, address, style, simulate
        self.say = Speaker(style)
        self._searches = [part_of(folder / run_folder.SEARCHES / method.name) for method in record.methods]
        self._lead = dataclasses.replace(self._searches[0].experiment, name=record.name, address=address)
        self._clock = None if record.clock is None else Clock(record.clock, self._trials())

    def result(self) -> AutoResult:
        """Takes the stages that are left."""
        started = time.monotonic()
        outcome = driver.drive(self.folder, map(self.say.beside, self._stages()), simulate=self.simulate)
        return dataclasses.replace(
            read_auto(self.folder),
            finished=outcome.finished,
            interrupted=not outcome.finished,
            seconds=time.monotonic() - started,
        )

    # -- the stages ------------------------------------------------------------------------------------------------

    def _stages(self) -> Iterator[Callable[[], driver.Stage | None]]:
        """Each is asked for when the one before it has ended."""
        yield self._search
        yield self._fresh
        while self._goes_on():
            yield self._fresh_stage
        yield self._final

    def _search(self) -> driver.Stage | None:
        queue = Queue(self._searches, allocation_of(self.record, self._lead.concurrency), clock=self._clock)
        if queue.finished and not queue.damaged():
            return None
        costs = dict(zip(self._names, self.record.costs(self.record.unit), strict=True))
        watch = AutoDisplay(
            self._lead,
            self.style,
            costs,
            self.record.search_budget + (self.record.clock or 0.0),
            lambda number: queue.at(number)[0].experiment.method,
            None if self._clock is None else self._clock.reading,
        )
        return driver.Stage(queue, watch, self._lead.placement)

    def _fresh(self) -> driver.Stage | None:
        """The first fresh seeds of every method."""
        found = reading.load(self.folder)
        listed, count = [row.method for row in found.rows if row.trial is not None], self.record.fresh
        if self._clock is not None and any(run.frozen for run in found.fresh.values()):
            listed = list(found.fresh)  # who has time was decided when they began
        elif self._clock is not None and listed:
            starts = _starts(found)
            each = [self._price(found.searches[name], starts) for name in listed]
            late = OVERRUN * (self.record.deadline or 0.0)
            left = self._left() + late - max(each) - 2 * starts.cold
            count, most = fresh_seeds.first_count(each, count, left, self._lead.concurrency)
            self._tell_fewer(listed, count, most)
            listed = listed[:most]
        for name in listed:
            self._run(name, run_folder.FRESH, count, 0)
        return self._fresh_stage()

    def _fresh_stage(self) -> driver.Stage | None:
        """What is left of the fresh seeds."""
        folders = [self.folder / run_folder.FRESH / name for name in self._names]
        begun = [folder for folder in folders if folder.exists()]
        return self._trained(begun, "fresh seeds") if begun else None

    def _goes_on(self) -> bool:
        """Whether the methods that cannot be told from the leader get further fresh seeds, which are planned here."""
        if self._final_begun():
            return False
        found = reading.load(self.folder)
        if not (names := self._rivals(found)):
            return False
        runs = {name: self.folder / run_folder.FRESH / name for name in names}
        had = Experiment.read(runs[names[0]]).trials
        for count in range(fresh_seeds.next_count(had, self.record.most_fresh), had, -1):
            if self._pays_for(found, names, count - had):
                for folder in runs.values():
                    more_seeds(folder, count, self.record.seed)
                return True
        return False

    def _final(self) -> driver.Stage | None:
        found = reading.load(self.folder)
        if found.leader is None:
            return None
        most = max(self.record.fresh, self.record.most_fresh)
        self._run(found.leader, run_folder.FINAL, self._final_count(found), most)
        return self._trained([self.folder / run_folder.FINAL / found.leader], f"final run of {found.leader}")

    # -- what is left of the budget --------------------------------------------------------------------------------

    def _trials(self) -> list[FrozenTrial]:
        """All trials there are."""
        found = reading.load(self.folder)
        runs = [*found.searches.values(), *found.fresh.values(), *([] if found.final is None else [found.final])]
        return [trial for run in runs for trial in run.frozen]

    def _left(self) -> float:
        """Seconds that are left of a budget by the clock."""
        assert self._clock is not None and self.record.deadline is not None
        return self.record.deadline - self._clock.reading()

    def _price(self, run: Run, starts: prices.Starts) -> float:
        """The seconds that one seed takes of the best configuration of a search, or of what a final run trains, in a
        process that is there, with the test set measured in every round."""
        trials = [trial for trial in run.frozen if run.kind == "run" or trial.number == run.best]
        inside = fmean(float(trial.user_attrs.get("seconds", 0.0)) + spared(run, trial.number) for trial in trials)
        return starts.warm + (inside if run.kind == "run" else inside / self.record.seeds)

    def _rivals(self, found: Auto) -> list[str]:
        """The methods that cannot be told from the leader, where more than one is left and may have further seeds."""
        rows = [row for row in found.rows if row.method in found.fresh and row.missed == found.rows[0].missed]
        most = max((len(found.fresh[row.method].frozen) for row in rows), default=0)
        rows = [row for row in rows if len(found.fresh[row.method].frozen) == most]
        names = fresh_seeds.rivals({row.method: row.fresh for row in rows}, allocation_of(self.record).sign)
        return names if len(names) > 1 and most < self.record.most_fresh else []

    def _pays_for(self, found: Auto, names: Sequence[str], more: int) -> bool:
        """Whether the budget pays for so many more fresh seeds of each of these methods."""
        if self._clock is None:
            costs = {one.name: one.costs[self.record.unit] * self.record.rounds for one in self.record.methods}
            spent = sum(costs[name] * len(run.frozen) for name, run in found.fresh.items())
            return spent + more * sum(costs[name] for name in names) <= self.record.fresh_budget * (1 + 1e-9)
        starts = _starts(found)
        listed = [self._price(found.fresh[name], starts) for name in names]
        needed = fresh_seeds.together(listed * more, self._lead.concurrency) + max(listed) + 2 * starts.cold
        return needed <= self._left()

    def _final_begun(self) -> bool:
        return any((self.folder / run_folder.FINAL).iterdir())

    def _final_count(self, found: Auto) -> int:
        """Seeds of the leader's final run: as planned, or as many as there is time for, at least one."""
        planned = self.record.final
        if self._clock is None or found.leader is None or self._final_begun():
            return planned
        starts, slots = _starts(found), self._lead.concurrency
        price, left = self._price(found.fresh[found.leader], starts), self._left() - starts.cold
        fits = [n for n in range(1, planned + 1) if fresh_seeds.together([price] * n, slots) <= left]
        if (count := max(fits, default=1)) < planned:
            self.say(f"Time has run out: the final run has {count} of {planned} planned seeds.")
        return count

    def _tell_fewer(self, listed: Sequence[str], count: int, most: int) -> None:
        """Says which fresh seeds there is no time for."""
        few = f"{count} fresh seed{'s' * (count > 1)} in place of {self.record.fresh}"
        if most < len(listed):
            out = ", ".join(listed[most:])
            self.say(
                f"Time has run out: {out} expected least of the search, get no fresh seeds; the others have {few}."
            )
        elif count < self.record.fresh:
            self.say(f"Time has run out: every method has {few}.")

    # -- their parts -----------------------------------------------------------------------------------------------

    @property
    def _names(self) -> list[str]:
        return [method.name for method in self.record.methods]

    def _run(self, method: str, where: str, count: int, after: int) -> None:
        """Makes the run of a method's best configuration below `where`, if it is not there."""
        target = self.folder / where / method
        best = self.folder / run_folder.BEST / f"{method}.yaml"
        if target.exists():
            _write_again(best, Experiment.read(target).source)
            return
        search = self.folder / run_folder.SEARCHES / method
        export(search, best)
        e = Experiment.read(search)
        left = e.address is not None and self.address is None  # so many trials may not fit on this machine
        request = RunRequest(
            str(best),
            name=str(target),
            seed=self.record.seed,
            seeds=count,
            data_dir=e.data_dir,
            slots=None if left else e.concurrency,
            per_trial={"gpus": e.gpus_per_trial, **({} if left else {"cpus": e.cpus_per_trial})},
            address=self.address,
            storage=e.storage,
        )
        plan(request, after=after).create()

    def _trained(self, folders: Sequence[Path], what: str) -> driver.Stage | None:
        """Final runs that are to come to their end."""
        parts = [part_of(folder) for folder in folders]
        trials, name = sum(part.experiment.trials for part in parts), f"{self.record.name}: {what}"
        lead = dataclasses.replace(parts[0].experiment, name=name, trials=trials, address=self.address)
        return stage_of(parts, lead, self.style, seed_name, self._clock)


def spared(run: Run, number: int) -> float:
    """The seconds that a trial was spared as it measured the test set in few of its evaluated rounds, by what it took
    for both kinds."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for line in run.lines.get(number, {}).values():
        of_both = [name.removeprefix("val_") in line for name in line if name.startswith("val_")]
        if of_both:
            seconds[any(of_both)].append(float(line.get("seconds_evaluation", 0.0)))
    if not (seconds[False] and seconds[True]):
        return 0.0
    return len(seconds[False]) * max(0.0, fmean(seconds[True]) - fmean(seconds[False]))


def _starts(found: Auto) -> prices.Starts:
    """What the search says that trials need beside their rounds."""
    return prices.starts([trial for run in found.searches.values() for trial in run.frozen])


def seed_name(part: Part, own: int) -> str:
    """What a trial of a final run is called among those of other methods."""
    return f"seed {part.experiment.seeds[own]} of {part.experiment.method}"


def more_seeds(folder: Path, count: int, seed: int) -> None:
    """Gives the run of a configuration on fresh seeds, in this folder, so many of them in all. Nothing of those that it
    has is changed."""
    begun = Experiment.read(folder)
    made = dataclasses.replace(begun, trials=count, seeds=final_seeds(seed, count))
    write_document(folder / run_folder.EXPERIMENT, made.to_yaml())
    extended(folder, changes(begun, made))


def _write_again(best: Path, source: Mapping[str, Any]) -> None:
    """Writes the exported configuration `source`, which a run was made from, to its file where that says something
    else: it is damaged or gone."""
    try:
        found = read_yaml(best)
    except UserError:
        found = {}
    if source and found != source:
        best.parent.mkdir(exist_ok=True)
        write_document(best, source)


def allocation_of(record: AutoRecord, slots: int = 1) -> Allocation:
    """What decides which method a trial of the search goes to. slots: how many run at the same time, by which a budget
    by the clock is shared."""
    kept = record.fresh_budget + record.final_budget
    clock = None
    if record.clock is not None and record.deadline is not None:
        clock = ByClock(record.clock, record.deadline, kept, record.fresh / record.seeds, slots)
    return Allocation(
        clock=clock,
        costs=record.costs(record.cost),
        prices=record.costs(record.unit),
        budget=record.search_budget,
        rounds=record.rounds,
        least=record.least,
        equal=record.equal,
        sign=1.0 if METRICS[record.metric].direction == "maximize" else -1.0,
    )


@dataclass(frozen=True)
class AutoResult:
    """How far it has come after a command, and what is to be read of it."""

    folder: Path
    finished: bool
    interrupted: bool = False
    seconds: float = 0.0
    #: What there is to read: leaderboard, runs, figures.
    auto: Auto = dataclasses.field(kw_only=True, repr=False)
    #: The leader's final run.
    final: Final | None = None
    #: A sentence where the mirror of the folder (`storage`) lacks something.
    unsent: str | None = None

    @property
    def best(self) -> Row | None:
        """The leader's row of the leaderboard."""
        return None if self.auto.leader is None else self.auto.rows[0]

    @property
    def leader(self) -> str | None:
        """The best method's name."""
        return self.auto.leader

    @property
    def leaderboard(self) -> pd.DataFrame:
        """A row per method, the leader first, see `analysis.auto.Auto.leaderboard`."""
        return self.auto.leaderboard

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial of all methods, see `analysis.auto.Auto.trials`."""
        return self.auto.trials

    @property
    def figures(self) -> Mapping[str, go.Figure]:
        """The Plotly figures leaderboard, budget and expected; `auto.searches[METHOD]` has the runs of the methods."""
        return self.auto.figures

    def report(self, output: str | Path | None = None) -> Path:
        """Writes the report and returns its path, by default `report.html` in the folder."""
        from analysis.report import build

        return build(self.folder, output)

    def model(self, seed: int | None = None, client: int | None = None) -> Any:
        """The leader's global model of the final run, or the own model of a client, of its first seed or the one that
        is named, as of `fedtune.load_model`. Raises `UserError` where there is none."""
        if self.final is None:
            raise UserError(f"{self.folder} has no final run yet. Go on with fedtune.resume.")
        return self.final.model(seed, client)

    def _repr_html_(self) -> str:
        """For a notebook: the leaderboard."""
        table = self.auto.table()
        titles = [column.title for column in table.columns]
        return pd.DataFrame(table.cells(), columns=titles).to_html(index=False)

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json."""
        return {
            "folder": str(self.folder),
            "finished": self.finished,
            "interrupted": self.interrupted,
            "seconds": self.seconds,
            "leader": self.auto.leader,
            "leaderboard": self.auto.table().json(),
            "excluded": dict(self.auto.excluded),
            "final": None if self.final is None else self.final.to_json(),
            "unsent": self.unsent,
        }


def read_auto(folder: str | Path) -> AutoResult:
    """What `auto` wrote to `folder`."""
    found = reading.load(folder)
    final = found.final
    done = report(result_of(final.path, driver.Outcome(True))) if found.over and final is not None else None
    return AutoResult(found.path, found.over, auto=found, final=done)
