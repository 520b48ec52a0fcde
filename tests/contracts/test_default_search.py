"""What a user gets who names nothing but the method: `fedtune search METHOD --trials 2 --rounds 2`, for every method.

The plan, the run directory, the proposal and the trial are those of the command; only Ray, which would start the trial
in another process, is left out. The data set, the model and all that is planned are the space's own, so that no setting
of a test hides one that does not go together. Only the clients then take two steps where they would take many.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedtune.execution.queue import Proposal
from fedtune.options import SearchRequest
from fedtune.planning.plan import Plan, plan
from fedtune.record.provenance import provenance
from fedtune.record.run_directory import create, trial_folder
from tests.contracts.test_methods import METHODS
from tests.fedtune.queues import opened, take
from trainables.tune import Trial
from trainables.worker.job import Job


@pytest.mark.parametrize("name", METHODS)
def test_the_first_trial_of_the_default_search_runs_a_round(name: str, tmp_path: Path) -> None:
    request = SearchRequest(name, trials=2, rounds=2, name=tmp_path / "made", data_dir=str(tmp_path / "data"))
    planned = plan(request)
    assert planned.space.search, "nothing is searched"
    proposal = first_proposal(planned)
    assert proposal.number == 0 and proposal.values.keys() == planned.space.search.keys()
    trial = Trial({"job": job(planned, proposal)})
    try:
        result = trial.step()
        assert (result["round"], result.get("ending")) == (1, None)
        assert len(result["values"]) == len(planned.experiment.metric)
        assert all(math.isfinite(value) for value in result["values"])
    finally:
        trial.cleanup()


def first_proposal(planned: Plan) -> Proposal:
    """The first trial that the planned search proposes, from its new run directory."""
    e = planned.experiment
    recorded = provenance(device="cpu", **planned.facts)
    create(planned.folder, e, planned.space, recorded, planned.taken)
    return take(opened(planned.folder, e, planned.space))


def job(planned: Plan, proposal: Proposal) -> Job:
    """The trial as a search hands it to its process."""
    e = planned.experiment
    return Job(
        number=proposal.number,
        folder=str(trial_folder(planned.folder, proposal.number)),
        method=e.method,
        values={**e.values, **proposal.values, "local_steps": 2},
        seeds=proposal.seeds,
        metrics=e.metric,
        signs=e.signs,
        rule=proposal.rule,
        data_dir=e.data_dir,
    )
