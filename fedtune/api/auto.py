"""`fedtune.auto`: which method, which hyper-parameters, how sure, and the model, within one budget.

Three stages, each of which is left out when it was done before, so that what was interrupted goes on:

1. a search over all methods (`fedtune.decisions.method_allocation`), each with a run directory of its own below
   `search/`;
2. every method's best configuration (`best/METHOD.yaml`) on fresh seeds, the same for all, below `fresh/`;
3. the leader on further seeds below `final/`, with its models.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis import auto as reading
from analysis.auto import Auto
from analysis.auto import LeaderboardRow as Row
from analysis.auto.record import AutoRecord
from analysis.runs import load_run as load
from analysis.runs.mappings import read_yaml
from fedtune.api.export import export
from fedtune.api.run import Final, report
from fedtune.api.search import result_of, stage_of
from fedtune.console import progress
from fedtune.console.busy import busy
from fedtune.console.progress import AutoDisplay
from fedtune.decisions.history import Part
from fedtune.decisions.method_allocation import Allocation
from fedtune.execution import driver
from fedtune.execution.queue import open_queue
from fedtune.machine.cluster import check_address
from fedtune.option import fields_of
from fedtune.options import AutoRequest, Progress, ResumeRequest, RunRequest
from fedtune.planning.auto_plan import AutoPlan, plan_auto
from fedtune.planning.plan import plan
from fedtune.planning.resumption import going_on, part_of
from fedtune.record.experiment import Experiment
from fedtune.record.run_directory import lock, write_document
from search_spaces import run_folder
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.files import check_replaceable
from search_spaces.metrics import METRICS

if TYPE_CHECKING:
    import plotly.graph_objects as go


@fields_of(AutoRequest)
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
    check_address(lead.address)
    plan.create()
    return _driven(plan.folder, plan.record, lead.address, shown, plan.notes)


def resume_auto(request: ResumeRequest) -> AutoResult:
    """`fedtune.resume` of what `auto` began. What it finds is what it would have found uninterrupted."""
    found = reading.load(request.run)
    for folder in (found.path / top / name for top in (run_folder.FRESH, run_folder.FINAL) for name in found.searches):
        if folder.exists() and not folder.is_dir():
            load(folder)  # which says so
    runs = [*found.searches.values(), *found.fresh.values(), *([] if found.final is None else [found.final])]
    goes_on = going_on(runs, request.address, other_versions=request.other_versions, options=not found.over)
    if (best := found.path / run_folder.BEST).exists() and not best.is_dir():
        raise UserError(sentence(str(best), "a folder", Shown("a file"), fix="Move it away; it is written again."))
    check_replaceable(best / f"{method}.yaml" for method in found.searches)
    return _driven(found.path, found.record, request.address, request, goes_on.notes)


def _driven(folder: Path, record: AutoRecord, address: str | None, shown: Progress, notes: Sequence[str]) -> AutoResult:
    style = progress.style(shown.plain, shown.quiet)
    for note in notes:
        progress.tell(note, style)
    with lock(folder):
        return Stages(folder, record, address, style, shown.simulate).result()


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
        self._searches = [part_of(folder / run_folder.SEARCHES / method.name) for method in record.methods]
        self._lead = dataclasses.replace(self._searches[0].experiment, name=record.name, address=address)

    def result(self) -> AutoResult:
        """Takes the stages that are left."""
        started = time.monotonic()
        stages = (self._search, self._fresh, self._final)
        outcome = driver.drive(self.folder, stages, simulate=self.simulate)
        return dataclasses.replace(
            read_auto(self.folder),
            finished=outcome.finished,
            interrupted=not outcome.finished,
            seconds=time.monotonic() - started,
        )

    # -- the stages ------------------------------------------------------------------------------------------------

    def _search(self) -> driver.Stage | None:
        queue = open_queue(self._searches, allocation_of(self.record))
        if queue.finished and not queue.damaged():
            return None
        prices = dict(zip(self._names, self.record.costs(self.record.unit), strict=True))
        watch = AutoDisplay(
            self._lead,
            self.style,
            prices,
            self.record.search_budget,
            lambda number: queue.at(number)[0].experiment.method,
        )
        return driver.Stage(queue, watch, self._lead.placement)

    def _fresh(self) -> driver.Stage | None:
        for search in self._searches:
            if load(search.folder).best is not None:
                self._run(search.folder.name, run_folder.FRESH, self.record.fresh, 0)
        folders = [self.folder / run_folder.FRESH / name for name in self._names]
        return self._trained([folder for folder in folders if folder.exists()], "fresh seeds")

    def _final(self) -> driver.Stage | None:
        leader = reading.load(self.folder).leader
        if leader is None:
            return None
        self._run(leader, run_folder.FINAL, self.record.final, self.record.fresh)
        return self._trained([self.folder / run_folder.FINAL / leader], f"final run of {leader}")

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
        )
        plan(request, after=after).create()

    def _trained(self, folders: Sequence[Path], what: str) -> driver.Stage | None:
        """Final runs that are to come to their end."""
        parts = [part_of(folder) for folder in folders]
        trials, name = sum(part.experiment.trials for part in parts), f"{self.record.name}: {what}"
        lead = dataclasses.replace(parts[0].experiment, name=name, trials=trials, address=self.address)
        return stage_of(parts, lead, self.style, seed_name)


def seed_name(part: Part, own: int) -> str:
    """What a trial of a final run is called among those of other methods."""
    return f"seed {part.experiment.seeds[own]} of {part.experiment.method}"


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


def allocation_of(record: AutoRecord) -> Allocation:
    """What decides which method a trial of the search goes to."""
    return Allocation(
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
        }


def read_auto(folder: str | Path) -> AutoResult:
    """What `auto` wrote to `folder`."""
    found = reading.load(folder)
    final = found.final
    done = report(result_of(final.path, driver.Outcome(True))) if found.over and final is not None else None
    return AutoResult(found.path, found.over, auto=found, final=done)
