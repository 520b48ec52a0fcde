"""Reading a study, as Optuna itself would."""

from __future__ import annotations

import math
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from analysis.runs.study import read_study
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests import study_file
from tests.study_file import journal


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that Optuna wrote, with two objectives and parameters of every kind, whose trials are in every state."""
    folder = tmp_path_factory.mktemp("lived")
    made = optuna.create_study(storage=journal(folder), directions=["maximize", "minimize"])
    distributions = {
        "alpha": FloatDistribution(0.0, 2.0),
        "lr": FloatDistribution(1e-4, 1.0, log=True),
        "lambda": FloatDistribution(0.0, 1.0, step=0.25),
        "clients": IntDistribution(2, 64, log=True),
        "merge_op": CategoricalDistribution(["mul", "add", None, True, 0.5, 3]),
    }
    for number in range(9):
        trial = made.ask(distributions)
        trial.set_user_attr("rounds", number)
        trial.set_user_attr("text", 'ω’s "part" </script>\x1b[31m\r\x85\u2028')
        made._storage.set_trial_system_attr(trial._trial_id, "origin", {"from": [1, None]})
        if number < 7:
            state = [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL][number % 3]
            values = [[0.1 * number, math.inf], None][state != TrialState.COMPLETE]
            made.tell(trial, values=values, state=state)
    made.enqueue_trial({"alpha": 0.5})
    reports: list[dict[int, float]] = [{1: 0.5, 2: 0.25}, {}, {3: math.inf, 1: -math.inf, 2: math.nan}, {7: 1}]
    made.add_trials([create_trial(state=TrialState.PRUNED, intermediate_values=values) for values in reports])
    return folder / run_folder.STUDY


@pytest.mark.parametrize("rewritten", [False, True])
def test_every_kind_of_parameter_value_and_state_is_as_optuna_reads_it(
    lived: Path, tmp_path: Path, rewritten: bool
) -> None:
    """Also where the study was written anew from its trials, as when a search gets more rounds."""
    directions, trials = read_study(lived)
    path = lived
    if rewritten:
        path = tmp_path / run_folder.STUDY
        study_file.write(path, "again", directions, trials)
        assert read_study(path) == (directions, trials)
    theirs = optuna.load_study(study_name=None, storage=journal(path.parent)).trials
    assert directions == ("maximize", "minimize")
    assert [repr(trial) for trial in trials] == [repr(trial) for trial in theirs]
    assert {trial.state.name for trial in trials} == {"COMPLETE", "FAIL", "RUNNING", "WAITING", "PRUNED"}
    assert [type(value) for value in trials[0].params.values()] == [type(v) for v in theirs[0].params.values()]


def test_the_file_is_left_as_it_was(lived: Path) -> None:
    before, beside = lived.read_bytes(), sorted(lived.parent.iterdir())
    lived.chmod(0o400)
    read_study(lived)
    assert lived.read_bytes() == before and sorted(lived.parent.iterdir()) == beside


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    (tmp_path / run_folder.STUDY).touch()
    with pytest.raises(UserError, match="is empty"):
        read_study(tmp_path / run_folder.STUDY)


def test_trials_share_the_numbers_of_those_that_ran_beside_them(tmp_path: Path) -> None:
    """A thousand of them for each trial are most of what a wide search takes in memory."""
    made = optuna.create_study(storage=journal(tmp_path))
    for _ in range(2):
        made.add_trial(create_trial(value=0.5, user_attrs={run_folder.BESIDE: [*range(1000, 2000)]}))
    one, other = (trial.user_attrs[run_folder.BESIDE] for trial in read_study(tmp_path / run_folder.STUDY)[1])
    assert one == other == [*range(1000, 2000)]
    assert all(a is b for a, b in zip(one, other, strict=True))
