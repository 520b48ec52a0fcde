"""`fedtune.reproduce`: a figure or table of a paper, made again and set beside it.

Every cell is a run directory of its own. What is missing is made, what is half-finished goes on, and what is finished
is taken as it is; all of it in one session of Ray.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.reproduce import claims
from analysis.reproduce.claims import Decided
from analysis.reproduce.folder import Made, load_made
from analysis.runs import load_run as load
from fedtune.api.attack import attack
from fedtune.api.going_on import going_on
from fedtune.api.run import plan_run
from fedtune.api.search import complete
from fedtune.console import progress
from fedtune.console.busy import busy
from fedtune.console.cells_progress import CellsDisplay
from fedtune.execution import driver
from fedtune.execution.queue import TrialQueue
from fedtune.execution.together import Together
from fedtune.machine.server_watch import ServerLoss
from fedtune.option import fields_of
from fedtune.options import ReproduceRequest, SearchRequest
from fedtune.planning.placed import left_cluster
from fedtune.planning.plan import Plan, placement, plan
from fedtune.planning.reproduction import Part, Planned, plan_reproduction
from fedtune.planning.reproduction import command as command_of
from fedtune.planning.time_left import TimeLeft, time_left
from fedtune.planning.unchanged import check_unchanged
from fedtune.record.experiment import Experiment
from fedtune.record.journal import ELSEWHERE
from fedtune.record.provenance import provenance
from fedtune.record.run_directory import create, lock, write_document
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.files import cannot_write, check_replaceable
from search_spaces.space import Space

#: How many images an attack rebuilds of each run.
IMAGES = 3
#: A run directory with its experiment and its space.
_Whole = tuple[Path, Experiment, Space]


@dataclass(frozen=True)
class Reproduced:
    """How far it has come after a command, and what is to be read of it."""

    folder: Path
    #: The command line that goes on; after a part of a table, the one that makes the rest of it.
    command: str
    made: Made = dataclasses.field(repr=False)
    #: The paper's sentences and what became of them.
    claims: Sequence[Decided]
    #: Whether all rows and columns that were asked for have been run.
    finished: bool
    interrupted: bool = False
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json."""
        from analysis.reproduce.tables import numbers, verdicts

        return {
            "folder": str(self.folder),
            "finished": self.finished,
            "not_run": self.made.missing,
            "interrupted": self.interrupted,
            "seconds": self.seconds,
            "record": self.made.record.to_yaml(),
            "claims": [
                {"says": c.claim.says, "source": c.claim.source, "verdict": c.verdict, "told": c.told, "why": c.why}
                for c in self.claims
            ],
            "verdicts": verdicts(self.made, self.claims).json(),
            "numbers": numbers(self.made).json(),
        }


@fields_of(ReproduceRequest)
def reproduce(request: ReproduceRequest) -> Reproduced:
    """Makes the figure or table `name` of a paper again (`fedtune reproduce` lists all), in `runs_dir/name`, and
    decides the paper's sentences about it; with `small` on the embedded digits, else with the paper's data, model,
    rounds and seeds. `rows` and `columns` name a part of a table, `["FedAvg", "LT"]` and `"omega=1,0.1"`; another part
    adds to the same folder.

    Ctrl-C ends it cleanly, and the same call goes on. Raises `UserError`, before anything is created, with every
    problem of the request, and where the folder holds another plan."""
    style = progress.style(request.plain, request.quiet)
    with busy(style, "planning") as say:
        planned, plans, notes = _checked(request)
        if request.simulate is None:
            found = time_left(planned, say)
            notes = [*notes, found if isinstance(found, str) else found.sentence()]
    _begin(planned)
    begun = time.monotonic()
    with lock(planned.folder):
        for made in plans:
            _create(made)
        whole = [(part.folder, *complete(part.folder, Experiment.read(part.folder))) for part in planned.parts]
        outcome = _driven(planned, whole, style, notes, request.simulate)
        if outcome.finished and planned.reproduction.is_attacked and request.simulate is None:
            _attack(planned)
        with busy(style, "deciding"):
            return _result(planned, outcome, time.monotonic() - begun)


def estimate(asked: ReproduceRequest, say: Callable[[str], object]) -> tuple[Planned, TimeLeft | str]:
    """What a request would run and how long that takes; `say` is told what is being timed. Nothing is created.

    Raises `UserError` as `reproduce` does."""
    planned, *_ = _checked(asked)
    return planned, time_left(planned, say, thorough=True)


def _checked(asked: ReproduceRequest) -> tuple[Planned, list[Plan], list[str]]:
    """What is to be made, the plans of the runs that are not there, and notes on those that are."""
    planned = plan_reproduction(asked)
    plans = [_plan(part) for part in planned.parts if not part.exists]
    notes = _unchanged([part.folder for part in planned.parts if part.exists])
    check_replaceable(planned.folder / name for name in run_folder.WRITTEN)
    return planned, plans, notes


def _plan(part: Part) -> Plan:
    request = part.request
    return plan(request) if isinstance(request, SearchRequest) else plan_run(request, request.seeds)


def _unchanged(folders: Sequence[Path]) -> list[str]:
    """Notes on the runs that are to go on. Raises `UserError` where one cannot go on as it was begun, or cannot be
    read."""
    notes: list[str] = []
    for run, experiment, space in going_on(map(load, folders), address=None):
        notes.append(left_cluster(Experiment.of(run), None, option=False) or "")
        notes += check_unchanged(run, experiment, space)
    return list(dict.fromkeys(filter(None, notes)))


def _begin(planned: Planned) -> None:
    """Makes the folder with its record, where it is not there."""
    record = planned.folder / run_folder.REPRODUCTION
    try:
        planned.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(planned.folder, error, ELSEWHERE) from error
    if not record.exists():
        write_document(record, planned.record.to_yaml())


def _create(planned: Plan) -> None:
    e = planned.experiment
    made = provenance(device="cuda" if e.gpus_per_trial else "cpu", **planned.facts)
    create(planned.folder, e.to_yaml(), planned.space.to_json(), made, e.directions, planned.taken)


def _driven(
    planned: Planned,
    whole: Sequence[_Whole],
    style: progress.Style,
    notes: Sequence[str],
    simulate: Callable[..., Any] | None,
) -> driver.Outcome:
    """Runs what is left. The caller holds the lock of the folder; here those of the runs are held too, so that nobody
    resumes one of them meanwhile."""
    lead = _lead(planned, whole)
    with ExitStack() as held:
        for folder, *_ in whole:
            held.enter_context(lock(folder))
        queue = Together([TrialQueue(*run) for run in whole])
        if queue.finished and not queue.damaged():
            return driver.Outcome(finished=True)
        watch = CellsDisplay(lead, style, lambda number: queue.home(number).folder.name)
        for note in notes:
            watch.say(note)
        with watch, ServerLoss(command_of(planned.asked)) as lost:
            try:
                return driver.drive_queue(planned.folder, lead, queue, watch, lost=lost, simulate=simulate)
            except KeyboardInterrupt:  # before Ray took over the signal: nothing was under way
                return driver.Outcome(finished=False, interrupted=True)


def _attack(planned: Planned) -> None:
    """Attacks what the clients of every run upload, where that has not been done: under the first seed, so that all
    methods are attacked on the same images."""
    for part in planned.parts:
        if not (part.folder / run_folder.ATTACK).exists():
            attack(part.folder, images=IMAGES, trial=0, plain=planned.asked.plain, quiet=planned.asked.quiet)


def _lead(planned: Planned, whole: Sequence[_Whole]) -> Experiment:
    """How all trials together are placed on this machine. An address in the record of a cell is not joined, as in
    `fedtune.planning.placed.left_cluster`."""
    problems: list[str] = []
    trials = sum(experiment.trials for _, experiment, _ in whole)
    request = dataclasses.replace(planned.parts[0].request, concurrency=planned.asked.concurrency)
    packing, _ = placement(request, problems, trials=trials, lag=None, looks_back=False)
    if problems:
        raise UserError(*problems)
    first = whole[0][1]
    return dataclasses.replace(
        first,
        name=planned.folder.name,
        kind="search",
        trials=trials,
        concurrency=packing.concurrency,
        address=None,
        source={},
    )


def _result(planned: Planned, outcome: driver.Outcome, seconds: float) -> Reproduced:
    """Reads what there is, decides the sentences and writes page and tables."""
    from analysis.reproduce.page import write_all

    made = load_made(planned.folder)
    decided = claims.decide(made)
    whole = command_of(planned.asked, rows=(), columns=())
    write_all(made, decided, whole, finished=outcome.finished and not made.missing)
    command = whole if outcome.finished else command_of(planned.asked)
    return Reproduced(planned.folder, command, made, decided, outcome.finished, outcome.interrupted, seconds)
