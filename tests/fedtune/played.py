"""Whole runs on the fake simulation without Ray: every trial is simulated here, and its files are written."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from analysis.runs import Run, load_run
from fedtune.decisions.history import Part
from fedtune.decisions.shared_budget import Allocation
from fedtune.execution.queue import Proposal, Queue
from fedtune.planning.warm_start import known
from fedtune.record import provenance
from fedtune.record.experiment import Experiment
from fedtune.record.run_directory import TakenTrial, create
from search_spaces import run_folder
from search_spaces.space import Space
from tests.fedtune.conftest import experiment, space
from tests.fedtune.fake import Fake
from tests.fedtune.queues import drive
from trainables.worker import rounds_jsonl
from trainables.worker.job import Ending
from trainables.worker.trial_values import TrialValues

#: What a plan records of the data.
FACTS: dict[str, Any] = {"dataset": {"name": "toy", "hash": "d1"}, "partition": {"0": "p1"}}
VERSIONS = {"versions": {"torch": "2.0"}, "git": "abc", "created": "2026-01-01T00:00:00+00:00"}


def play(
    folder: Path,
    width: int = 1,
    sessions: int = 1,
    allocation: Allocation | None = None,
    simulate: type[Fake] = Fake,
    most: int | None = None,
) -> Run:
    """Runs what is left of a run, or `most` trials of it, `width` trials at once, in more than one session as if its
    driver were killed."""
    made, where = Experiment.read(folder), Space.from_json(json.loads((folder / run_folder.SPACE).read_text()))
    drive(
        lambda: Queue([Part(folder, made, where)], allocation),
        lambda queue, proposal: _simulate(queue, made, folder, proposal, simulate),
        width,
        place=-1,
        every=2 if sessions > 1 else 0,
        most=most,
    )
    return load_run(folder)


def _simulate(queue: Queue, made: Experiment, folder: Path, proposal: Proposal, simulate: type[Fake] = Fake) -> None:
    values = {**made.values, **proposal.values}
    simulation, measured = simulate(made.method, values, proposal.seeds), TrialValues(made.metric, made.signs)
    place = folder / run_folder.trial_folder(proposal.number)
    place.mkdir(exist_ok=True)
    (place / run_folder.CONFIG).write_text(json.dumps(values))
    (place / run_folder.PARTITION).write_text(json.dumps(simulation.partition()))
    (place / run_folder.ROUNDS).unlink(missing_ok=True)
    reason = "completed"
    while simulation.round < made.rounds:
        rows = simulation.step()
        rounds_jsonl.append(place / run_folder.ROUNDS, rows)
        measured.add(rows)
        if simulation.round < made.rounds and proposal.rule.stops(simulation.round, measured.signed):
            reason = "scheduler"
            break
    queue.finish(proposal.number, Ending(reason, simulation.round, None, measured.curve, 0.1))


class Begun(NamedTuple):
    """The experiment of a run that starts from what is known, and what is told, taken and recorded of that."""

    experiment: Experiment
    notes: tuple[str, ...]
    taken: tuple[TakenTrial, ...]
    facts: Mapping[str, Any]


def begin(folder: Path, *earlier: Run, where: Space | None = None, facts: Any = FACTS, **changes: Any) -> Begun:
    """Creates a run directory that starts from what is known."""
    where = space() if where is None else where
    asked = experiment(folder, **changes)
    found = known(asked, where, facts, earlier)
    made = dataclasses.replace(asked, **found.fields)
    create(folder, made, where, {**VERSIONS, **facts, **found.facts}, found.taken)
    return Begun(made, found.notes, found.taken, found.facts)


def searched(folder: Path, simulate: type[Fake] = Fake, **changes: Any) -> Run:
    """A finished run of six random trials, none of them stopped early, unless told otherwise."""
    begin(folder, **{"sampler": "random", "scheduler": "none", "trials": 6, **changes})
    return play(folder, simulate=simulate)


def asked(folder: Path, **changes: Any) -> Run:
    """The run that `conduct` makes of the same words, without Ray and one trial after the other: what a search on Ray,
    or one that was interrupted or extended, must come to. It has no checkpoints."""
    made = experiment(folder, **changes)
    create(folder, made, space(), provenance.provenance(device="cpu"))
    return play(folder)
