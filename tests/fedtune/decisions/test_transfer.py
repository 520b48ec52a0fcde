"""What one method's best configuration teaches another, on small spaces that share a learning rate."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from fedtune.decisions.method_allocation import taught
from search_spaces import presets
from search_spaces.metrics import UNREACHED
from search_spaces.space import Space
from trainables import registry

COMPLETE, PRUNED, FAIL = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL


@pytest.fixture(scope="module")
def spaces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Space, Space]:
    """FedProx with learning rates from 0.01, and FedAvg with smaller ones and numbers of local steps."""
    folder = tmp_path_factory.mktemp("spaces")
    texts = {
        "fedprox": "{mu: {low: 0.001, high: 1.0, log: true}, lr: {low: 0.01, high: 0.3, log: true}}",
        "fedavg": "{lr: {low: 0.001, high: 0.3, log: true}, local_steps: {low: 5, high: 100}}",
    }
    for method, search in texts.items():
        text = f"method: {method}\ntitle: small\nsource: ranges ours\nsearch: {search}\n"
        (folder / f"{method}.yaml").write_text(text)
    prox, avg = (presets.load(name, str(folder / f"{name}.yaml"), registry.declared(name)) for name in texts)
    return prox, avg


def trial(space: Space, value: float | None, state: TrialState = COMPLETE, **values: Any) -> FrozenTrial:
    distributions = {key: space.search[key].distribution() for key in values}
    return optuna.trial.create_trial(state=state, value=value, params=values, distributions=distributions)


def test_shared_values_are_taken_and_the_others_stay(spaces: tuple[Space, Space]) -> None:
    prox, avg = spaces
    own = [trial(prox, 0.5, mu=0.1, lr=0.02), trial(prox, 0.6, mu=0.3, lr=0.03)]
    others = [(avg, trial(avg, 0.8, lr=0.2, local_steps=7)), (avg, trial(avg, 0.7, lr=0.1, local_steps=9))]
    found = taught(prox, own, own, others, 1.0)
    assert found is not None
    assert found.values == {"mu": 0.3, "lr": 0.2}
    assert found.origin == "the best configuration of fedavg"


def test_where_less_is_better_the_smallest_value_teaches(spaces: tuple[Space, Space]) -> None:
    prox, avg = spaces
    own = [trial(prox, 0.5, mu=0.1, lr=0.02), trial(prox, 0.6, mu=0.3, lr=0.03)]
    others = [(avg, trial(avg, 0.4, lr=0.2, local_steps=7)), (avg, trial(avg, 0.3, lr=0.1, local_steps=9))]
    found = taught(prox, own, own, others, -1.0)
    assert found is not None
    assert found.values == {"mu": 0.1, "lr": 0.1}


def test_a_value_outside_the_space_is_not_taken(spaces: tuple[Space, Space]) -> None:
    prox, avg = spaces
    own = [trial(prox, 0.5, mu=0.1, lr=0.02)]
    assert taught(prox, own, own, [(avg, trial(avg, 0.8, lr=0.002, local_steps=7))], 1.0) is None


@pytest.mark.parametrize("value", [0.5, 0.4])
def test_the_best_method_is_not_taught(spaces: tuple[Space, Space], value: float) -> None:
    prox, avg = spaces
    own = [trial(prox, 0.5, mu=0.1, lr=0.02)]
    assert taught(prox, own, own, [(avg, trial(avg, value, lr=0.2, local_steps=7))], 1.0) is None


@pytest.mark.parametrize("state", [PRUNED, FAIL])
def test_only_trials_that_ran_to_their_end_teach(spaces: tuple[Space, Space], state: TrialState) -> None:
    prox, avg = spaces
    own = [trial(prox, 0.5, mu=0.1, lr=0.02)]
    value = 0.9 if state == PRUNED else None
    assert taught(prox, own, own, [(avg, trial(avg, value, state, lr=0.2, local_steps=7))], 1.0) is None


def test_who_did_not_reach_the_target_is_taught_and_teaches_nothing(spaces: tuple[Space, Space]) -> None:
    prox, avg = spaces
    missed = [trial(prox, UNREACHED, mu=0.1, lr=0.02)]
    found = taught(prox, missed, missed, [(avg, trial(avg, 12.0, lr=0.2, local_steps=7))], -1.0)
    assert found is not None
    assert found.values == {"mu": 0.1, "lr": 0.2}
    reached = [trial(avg, 12.0, lr=0.2, local_steps=7)]
    # By its sign alone an unreached value that is to be large would be the best.
    assert taught(avg, reached, reached, [(prox, missed[0])], 1.0) is None


def test_what_it_had_already_is_not_repeated(spaces: tuple[Space, Space]) -> None:
    prox, avg = spaces
    known = [trial(prox, 0.5, mu=0.1, lr=0.02)]
    running = trial(prox, 0.1, PRUNED, mu=0.1, lr=0.2)
    others = [(avg, trial(avg, 0.8, lr=0.2, local_steps=7))]
    assert taught(prox, known, known, others, 1.0) is not None
    assert taught(prox, [*known, running], known, others, 1.0) is None


def test_without_a_configuration_of_its_own_there_is_nothing_to_change(spaces: tuple[Space, Space]) -> None:
    prox, avg = spaces
    assert taught(prox, [], [], [(avg, trial(avg, 0.8, lr=0.2, local_steps=7))], 1.0) is None
