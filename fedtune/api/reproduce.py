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
from fedtune.api.search import Speaker, mirrored, stage_of
from fedtune.console import progress
from fedtune.console.busy import busy
from fedtune.decisions.history import Part
from fedtune.execution.driver import Outcome, drive
from fedtune.machine import cluster
from fedtune.option import fields_of
from fedtune.options import Progress, ReproduceRequest, ResumeRequest
from fedtune.planning.plan import AMX, FASTER, Plan, placement, plan
from fedtune.planning.reproduction import ReproductionPlan, plan_reproduction, planned_again
from fedtune.planning.reproduction import command as command_of
from fedtune.planning.resumption import going_on, part_of
from fedtune.planning.time_left import TimeLeft, time_left
from fedtune.record.experiment import Experiment
from fedtune.record.journal import ELSEWHERE
from fedtune.record.mirror import check_new, check_same
from fedtune.record.run_directory import lock, write_document
from fedtune.record.storage import check_uri
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.files import cannot_write, check_replaceable, given

#: How many images an attack rebuilds of each run.
IMAGES = 3
#: What is said where another arithmetic would make a server several times as fast: a reproduction has the papers'.
FLOAT32 = (
    "This processor computes with bfloat16 (AMX). A reproduction computes in float32, as the papers did; "
    f"`fedtune run METHOD --paper --set precision=bf16` runs the server {FASTER}."
)


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
    #: A sentence where the mirror of the folder (`storage`) lacks something.
    unsent: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json."""
        from analysis.reproduce.tables import numbers, verdicts

        return {
            "folder": str(self.folder),
            "finished": self.finished,
            "not_run": self.made.missing,
            "interrupted": self.interrupted,
            "seconds": self.seconds,
            "unsent": self.unsent,
            "record": self.made.record.to_yaml(),
            "claims": [
                {"says": c.claim.says, "source": c.claim.source, "verdict": c.verdict, "told": c.told, "why": c.why}
                for c in self.claims
            ],
            "verdicts": verdicts(self.made, self.claims).json(),
            "numbers": numbers(self.made).json(),
        }


@fields_of(ReproduceRequest, cluster.ahead)
def reproduce(request: ReproduceRequest) -> Reproduced:
    """Makes the figure or table `name` of a paper again (`fedtune reproduce` lists all), in `runs_dir/name`, and
    decides the paper's sentences about it; with `small` on the embedded digits, else with the paper's data, model,
    rounds and seeds. `rows` and `columns` name a part of a table, `["FedAvg", "LT"]` and `"omega=1,0.1"`; another part
    adds to the same folder.

    Ctrl-C ends it cleanly, and the same call goes on. Raises `UserError`, before anything is created, with every
    problem of the request, and where the folder holds another plan."""
    with busy(progress.style(request.plain, request.quiet), "planning") as say:
        planned = plan_reproduction(request)
        plans, notes = _checked(planned)
        if any(AMX in made.notes for made in plans):
            notes = [*notes, FLOAT32]
        if request.simulate is None:
            found = time_left(planned, say)
            notes = [*notes, found if isinstance(found, str) else found.sentence()]
    return _carried_out(planned, plans, notes, request, request.storage)


def resume_reproduction(request: ResumeRequest, fetched: str | None = None) -> Reproduced:
    """`fedtune.resume` of what `reproduce` began: of the rows and columns that it began with. fetched: a line that is
    told first."""
    planned = planned_again(given(request.run))
    planned = dataclasses.replace(planned, asked=dataclasses.replace(planned.asked, storage=request.storage))
    plans, notes = _checked(planned, request.address, other_versions=request.other_versions)
    notes = notes if fetched is None else [fetched, *notes]
    return _carried_out(planned, plans, notes, request, request.storage, request.address)


def estimate(asked: ReproduceRequest, say: Callable[[str], object]) -> tuple[ReproductionPlan, TimeLeft | str]:
    """What a request would run and how long that takes; `say` is told what is being timed. Nothing is created.

    Raises `UserError` as `reproduce` does."""
    planned = plan_reproduction(asked)
    _checked(planned)
    return planned, time_left(planned, say, thorough=True)


def _checked(
    planned: ReproductionPlan, address: str | None = None, *, other_versions: bool = False
) -> tuple[list[Plan], Sequence[str]]:
    """The plans of the runs that are not there, and notes on those that are. Raises `UserError` where one cannot go on
    as it was begun, or cannot be read."""
    plans = [plan(part.request, part.settings) for part in planned.parts if not part.exists]
    runs = [load(part.folder) for part in planned.parts if part.exists]
    problems: list[str] = []
    check_uri(planned.asked.storage, problems)
    notes = going_on(
        runs,
        address,
        other_versions=other_versions,
        options=False,
        storage=planned.asked.storage,
        problems=problems,
    ).notes
    check_replaceable(planned.folder / name for name in run_folder.WRITTEN)
    return plans, notes


def _carried_out(
    planned: ReproductionPlan,
    plans: Sequence[Plan],
    notes: Sequence[str],
    shown: Progress,
    storage: str | None,
    address: str | None = None,
) -> Reproduced:
    """Makes the folder and the runs that are not there, drives what is left, and decides. The caller has checked
    all."""
    style, begun = progress.style(shown.plain, shown.quiet), time.monotonic()
    cluster.check_address(address)
    record = planned.folder / run_folder.REPRODUCTION
    (check_same if record.exists() else check_new)(storage, planned.folder)
    try:
        planned.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(planned.folder, error, ELSEWHERE) from error
    if not record.exists():
        write_document(record, planned.record.to_yaml())
    with lock(planned.folder):
        for made in plans:
            made.create()
        say = Speaker(style)
        with ExitStack() as held:
            for part in planned.parts:  # so that nobody resumes one of them meanwhile
                held.enter_context(lock(part.folder))
            for note in notes:
                progress.tell(note, style)
            mirror = held.enter_context(mirrored(storage, planned.folder, say))
            parts = [part_of(part.folder) for part in planned.parts]
            lead = _lead(planned, parts, address)
            stages = [say.beside(lambda: stage_of(parts, lead, style, lambda part, own: f"cell {part.folder.name}"))]
            outcome = drive(planned.folder, stages, again=command_of(planned.asked), simulate=shown.simulate)
            if outcome.finished and planned.reproduction.is_attacked and shown.simulate is None:
                _attack(planned)
            with busy(style, "deciding"):
                found = _result(planned, outcome, time.monotonic() - begun)
    return dataclasses.replace(found, unsent=mirror.unsent)


def _attack(planned: ReproductionPlan) -> None:
    """Attacks what the clients of every run upload, where that has not been done: under the first seed, so that all
    methods are attacked on the same images."""
    for part in planned.parts:
        if not (part.folder / run_folder.ATTACK).exists():
            attack(part.folder, images=IMAGES, trial=0, plain=planned.asked.plain, quiet=planned.asked.quiet)


def _lead(planned: ReproductionPlan, parts: Sequence[Part], address: str | None) -> Experiment:
    """How all trials together are placed. An address in the record of a cell is not joined
    (`fedtune.planning.resumption.left_cluster`)."""
    problems: list[str] = []
    trials = sum(part.experiment.trials for part in parts)
    request = dataclasses.replace(planned.parts[0].request, slots=planned.asked.slots, address=address)
    packing = placement(request, problems, trials=trials)
    if problems:
        raise UserError(*problems)
    return dataclasses.replace(
        parts[0].experiment,
        name=planned.folder.name,
        trials=trials,
        concurrency=packing.concurrency,
        address=address,
    )


def _result(planned: ReproductionPlan, outcome: Outcome, seconds: float) -> Reproduced:
    """Reads what there is, decides the sentences and writes page and tables."""
    from analysis.reproduce.page import write_all

    made = load_made(planned.folder)
    decided = claims.decide(made)
    whole = command_of(planned.asked, rows=(), columns=())
    write_all(made, decided, whole, finished=outcome.finished and not made.missing)
    command = whole if outcome.finished else command_of(planned.asked)
    return Reproduced(planned.folder, command, made, decided, outcome.finished, outcome.interrupted, seconds)
