"""`fedtune.auto`: which method, which hyper-parameters, how sure, and the model, within one budget.

Three steps, each of which is left out when it was done before, so that what was interrupted goes on:

1. a search over all methods (`fedtune.trials.auto_queue`), each with a run directory of its own below `search/`;
2. every method's best configuration (`best/METHOD.yaml`) on fresh seeds, the same for all, below `fresh/`;
3. the leader on further seeds below `final/`, with its models.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis import auto as reading
from analysis.auto import Auto, Row
from analysis.runs import load
from analysis.runs.mappings import read_yaml
from fedtune.api.export import export
from fedtune.api.run import Final, plan_run, report
from fedtune.api.search import complete, result_of
from fedtune.console import progress
from fedtune.console.auto_progress import AutoDisplay, FreshDisplay
from fedtune.console.busy import busy
from fedtune.machine import cluster
from fedtune.machine.address import check_address
from fedtune.machine.process import ready
from fedtune.machine.servers import Watch, patience
from fedtune.planning.auto_plan import AutoPlan, plan_auto
from fedtune.planning.auto_request import AutoRequest
from fedtune.planning.placed import check_placement, crowded, left_cluster
from fedtune.planning.request import Request
from fedtune.planning.unchanged import check_unchanged
from fedtune.record.auto_record import AutoRecord, Part, create_auto
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import provenance
from fedtune.record.run_directory import create, lock, write_document
from fedtune.trials import driver
from fedtune.trials.allocation import Allowance
from fedtune.trials.auto_queue import AutoQueue
from fedtune.trials.damaged import damaged
from fedtune.trials.interrupts import Interrupts
from fedtune.trials.lost import Lost, kept, resuming
from fedtune.trials.queue import TrialQueue
from fedtune.trials.racing import is_over
from fedtune.trials.together import Together
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from search_spaces.space import Space

if TYPE_CHECKING:
    import plotly.graph_objects as go


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


def auto(
    dataset: str | Path | None = None,
    *,
    budget: str,
    methods: str | Sequence[str] = "all",
    plain: bool = False,
    quiet: bool = False,
    simulate: Callable[..., Any] | None = None,
    **options: Any,
) -> AutoResult:
    """Searches over `methods` (names, or `all`) within a `budget` (a length of time such as `30m`, a count such as
    `600rounds`, traffic such as `2GB`), compares the best configuration of each on fresh seeds and trains the leader;
    further options as in `fedtune.planning.auto_request.AutoRequest`.

    Raises `UserError`, before anything is created, with every problem of the request. Ctrl-C ends it cleanly, and
    `resume` goes on."""
    ready()
    strangers = sorted(options.keys() - {item.name for item in dataclasses.fields(AutoRequest)})
    if strangers:
        raise TypeError(f"auto() got unknown options: {', '.join(strangers)}")
    listed = (methods,) if isinstance(methods, str) else tuple(methods)
    named = None if dataset is None else str(dataset)
    required = options.get("require", ())
    options["require"] = (required,) if isinstance(required, str) else tuple(required)
    request = AutoRequest(dataset=named, budget=budget, methods=listed, **options)
    return carry_out_auto(planned(request, plain=plain, quiet=quiet), plain=plain, quiet=quiet, simulate=simulate)


def planned(request: AutoRequest, *, plain: bool = False, quiet: bool = False) -> AutoPlan:
    """The plan of a request, made while a display says what is being measured."""
    with busy(progress.style(plain, quiet), "planning") as say:
        return plan_auto(request, say)


def carry_out_auto(
    plan: AutoPlan, *, plain: bool = False, quiet: bool = False, simulate: Callable[..., Any] | None = None
) -> AutoResult:
    """Creates the folder of a plan and drives it to its end."""
    check_address(plan.searches[0][0].address)
    style = progress.style(plain, quiet)
    for note in plan.notes:
        progress.ProgressDisplay(plan.searches[0][0], style).say(note)
    create_auto(plan.folder, plan.record, [_part(*search) for search in plan.searches])
    with lock(plan.folder):
        return _Driven(plan.folder, plan.record, plan.searches[0][0].address, style, simulate).result()


def _part(experiment: Experiment, space: Space, facts: Mapping[str, Any]) -> Part:
    made = provenance(device="cuda" if experiment.gpus_per_trial else "cpu", **facts)
    return Part(experiment.method, experiment.to_yaml(), space.to_json(), made, experiment.directions)


def resume_auto(
    folder: str | Path,
    *,
    address: str | None = None,
    other_versions: bool = False,
    plain: bool = False,
    quiet: bool = False,
    simulate: Callable[..., Any] | None = None,
) -> AutoResult:
    """Goes on with what `auto` began in `folder`, on this machine or on the Ray cluster at `address`; an address in
    the record is not joined. What it finds is what it would have found uninterrupted.

    Raises `UserError`, before anything is written, as `fedtune.api.search.resume`."""
    ready()
    found = reading.load(folder)
    record = AutoRecord.read(found.path)
    searches = {name: Experiment.of(run) for name, run in found.searches.items()}
    placed = {name: dataclasses.replace(begun, address=address) for name, begun in searches.items()}
    lead = next(iter(placed.values()))
    says = [] if found.over else _placed(lead, address)
    says += [left_cluster(begun, address) or "" for begun in searches.values()]
    for name, run in found.searches.items():
        says += check_unchanged(run, *complete(run.path, placed[name]), other_versions=other_versions)
    says += _unchanged_later(found, address, other_versions=other_versions)
    style = progress.style(plain, quiet)
    for note in filter(None, dict.fromkeys(says)):
        progress.ProgressDisplay(lead, style).say(note)
    with lock(found.path):
        return _Driven(found.path, record, address, style, simulate).result()


def _unchanged_later(found: Auto, address: str | None, *, other_versions: bool) -> list[str]:
    """Notes on the runs that came after the search and are to go on: half-finished ones, and finished ones with damaged
    rows, which are computed again. Raises `UserError` where one cannot go on as it was begun, or cannot be read."""
    says: list[str] = []
    for run in (*found.fresh.values(), *([] if found.final is None else [found.final])):
        begun = Experiment.of(run)
        here = complete(run.path, dataclasses.replace(begun, address=address))
        if not is_over(run.frozen, begun) or damaged(run.path, begun, run.frozen):
            says += check_unchanged(run, *here, other_versions=other_versions)
    return says


def _placed(lead: Experiment, address: str | None) -> list[str]:
    """What is said of how the trials are placed. Raises `UserError` where they cannot be placed so."""
    problems: list[str] = []
    check_placement(lead, problems, fix="Give --address to join a cluster that has them, or go on where it was begun.")
    told = crowded(lead, problems, asked=None)
    if problems:
        raise UserError(*problems)
    check_address(address)
    return [told or ""]


def read_auto(folder: str | Path) -> AutoResult:
    """What `auto` wrote to `folder`."""
    found = reading.load(folder)
    final = found.final
    done = report(result_of(final.path, driver.Outcome(True))) if found.over and final is not None else None
    return AutoResult(found.path, found.over, auto=found, final=done)


class _Driven:
    """The three steps in a folder whose lock is held."""

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
        self._joined = False
        self._lost = Lost(resuming(folder))

    def result(self) -> AutoResult:
        """Takes the steps that are left."""
        started = time.monotonic()
        finished, interrupted = False, False
        with self._lost, ExitStack() as ray:
            try:
                finished = all(step(ray) for step in (self._search, self._fresh, self._final))
                interrupted = not finished
            except KeyboardInterrupt:
                interrupted = True
        found = read_auto(self.folder)
        return dataclasses.replace(
            found, finished=finished, interrupted=interrupted, seconds=time.monotonic() - started
        )

    # -- the steps: each says whether it came to its end -----------------------------------------------------------

    def _search(self, ray: ExitStack) -> bool:
        runs = [complete_search(self.folder, method.name) for method in self.record.methods]
        queue = auto_queue(self.record, runs)
        with _closing(queue):
            if queue.finished and not queue.damaged():
                return True
            lead = dataclasses.replace(runs[0][1], name=self.record.name, address=self.address)
            prices = dict(zip(self._names, self.record.costs(self.record.unit), strict=True))
            watch = AutoDisplay(
                lead,
                self.style,
                prices,
                self.record.search_budget,
                lambda number: queue.home(number).experiment.method,
            )
            return self._driven(ray, self.folder, lead, queue, watch)

    def _fresh(self, ray: ExitStack) -> bool:
        for method in self.record.methods:
            search = self.folder / run_folder.SEARCHES / method.name
            if load(search).best is not None:
                self._run(method.name, run_folder.FRESH, self.record.fresh, 0)
        folders = [self.folder / run_folder.FRESH / name for name in self._names]
        there = [folder for folder in folders if folder.exists()]
        return not there or self._trained(ray, there, "fresh seeds")

    def _final(self, ray: ExitStack) -> bool:
        leader = reading.load(self.folder).leader
        if leader is None:
            return True
        self._run(leader, run_folder.FINAL, self.record.final, self.record.fresh)
        return self._trained(ray, [self.folder / run_folder.FINAL / leader], f"final run of {leader}")

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
        request = Request(
            str(best),
            name=method,
            seed=self.record.seed,
            runs_dir=str(target.parent),
            data_dir=e.data_dir,
            concurrency=None if left else e.concurrency,
            cpus_per_trial=None if left else e.cpus_per_trial,
            gpus_per_trial=e.gpus_per_trial,
            address=self.address,
        )
        plan = plan_run(request, count, after=after)
        made = provenance(device="cuda" if e.gpus_per_trial else "cpu", **plan.facts)
        create(target, plan.experiment.to_yaml(), plan.space.to_json(), made, plan.experiment.directions)

    def _trained(self, ray: ExitStack, folders: Sequence[Path], what: str) -> bool:
        """Drives final runs to their end."""
        runs = [(folder, *complete(folder, Experiment.read(folder))) for folder in folders]
        queue = Together([TrialQueue(*run) for run in runs])
        with _closing(queue):
            if queue.finished and not queue.damaged():
                return True
            trials = sum(run[1].trials for run in runs)
            named = f"{self.record.name}: {what}"
            lead = dataclasses.replace(runs[0][1], name=named, trials=trials, address=self.address)
            watch = progress.ProgressDisplay(lead, self.style)
            if len(runs) > 1:
                watch = FreshDisplay(lead, self.style, lambda n: (queue.home(n).experiment, queue.home(n).number))
            return self._driven(ray, self.folder, lead, queue, watch)

    def _driven(
        self,
        ray: ExitStack,
        folder: Path,
        lead: Experiment,
        queue: Together,
        watch: progress.ProgressDisplay,
    ) -> bool:
        """One session of Ray Tune, in a Ray that stays for the next one."""
        with watch, Interrupts() as interrupts, kept(self._lost.again):
            if not self._joined:
                ray.enter_context(
                    cluster.joined(
                        lead.address, trials=lead.concurrency, cpus=lead.cpus_per_trial, gpus=lead.gpus_per_trial
                    )
                )
                # Between two sessions too: until Ray has been left, whatever waits for a server may wait for ever.
                ray.enter_context(Watch(self._lost.note, patience=patience(lead.address)))
                self._joined = True
            interrupts.hold()
            interrupts.check()
            outcome = driver.drive_queue(folder, lead, queue, watch, lost=self._lost, simulate=self.simulate)
            interrupts.check()
        return outcome.finished


def _write_again(best: Path, source: Mapping[str, Any]) -> None:
    """Writes the exported configuration `source`, which a run was made from, to its file where that says something
    else: it is damaged or gone."""
    try:
        found = read_yaml(best)
    except UserError:
        found = {}
    if source and found != source:
        write_document(best, source)


@contextmanager
def _closing(queue: Together) -> Iterator[None]:
    try:
        yield
    finally:
        queue.close()


def complete_search(folder: Path, method: str) -> tuple[Path, Experiment, Space]:
    """The search of a method below `folder`."""
    search = folder / run_folder.SEARCHES / method
    return (search, *complete(search, Experiment.read(search)))


def auto_queue(record: AutoRecord, runs: Sequence[tuple[Path, Experiment, Space]]) -> AutoQueue:
    """The queue over the searches of all methods, which are in the order of the record."""
    allowance = Allowance(
        costs=record.costs(record.cost),
        rounds=record.rounds,
        least=record.least,
        equal=record.equal,
        sign=1.0 if METRICS[record.metric].direction == "maximize" else -1.0,
    )
    return AutoQueue(runs, allowance, record.search_budget).priced(record.costs(record.unit))
