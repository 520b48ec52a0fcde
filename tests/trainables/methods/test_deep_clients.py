"""LG-FedAvg and FedGen with clients of two architectures: what is measured and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces.errors import UserError
from tests.contracts.test_methods import same, simulate, untimed, values_for
from trainables import registry
from trainables.building_blocks import mixed_architectures as mixed
from trainables.params import put
from trainables.simulation.replicates import Replicates

BOTH = ("lgfedavg", "fedgen")
MIXED: dict[str, Any] = {"nu": 0.5, "model": "cnn2", "deep_model": "cnn3", "share": "head"}
CLIENTS = 4


def extractor(client_state: Any) -> dict[str, torch.Tensor]:
    """What a client keeps of its model."""
    found = client_state.private if hasattr(client_state, "private") else client_state.body
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", BOTH)
def test_without_deep_clients_the_deep_model_changes_nothing(name: str, toy: Path) -> None:
    plain, rows = simulate(name, toy, 2)
    named, again = simulate(name, toy, 2, deep_model="resnet10")
    assert plain.config.nu == 0 and rows == again and same(plain.save(), named.save())
    assert plain.method.architectures(plain.config, plain.settings) == (plain.settings.model,)


@pytest.mark.parametrize("name", BOTH)
def test_an_average_of_complete_models_is_measured_of_one_architecture_only(name: str, toy: Path) -> None:
    for nu, measured in ((0.0, True), (0.5, False), (1.0, True)):
        s, rows = simulate(name, toy, 1, **MIXED | {"nu": nu})
        assert ("g_acc_virtual" in rows[0]) is measured and "local_accuracy" in rows[0]
        assert s.global_model() is None and "global_accuracy" not in rows[0]


@pytest.mark.numeric
@pytest.mark.parametrize("name", BOTH)
def test_a_run_that_was_saved_and_loaded_goes_on_as_if_it_had_not(name: str, toy: Path, tmp_path: Path) -> None:
    values = values_for(name, toy, active_clients=3, **MIXED)
    whole = Replicates(name, values, [0, 1])
    rows = [untimed(r) for _ in range(4) for r in whole.step()]
    first, second = (Replicates(name, values, [0, 1]) for _ in range(2))
    halves = [untimed(r) for _ in range(2) for r in first.step()]
    first.save(tmp_path / "checkpoint")
    second.load(tmp_path / "checkpoint")
    halves += [untimed(r) for _ in range(2) for r in second.step()]
    assert halves == rows
    assert all(same(a.save(), b.save()) for a, b in zip(whole.simulations, second.simulations, strict=True))


@pytest.mark.parametrize("name", BOTH)
def test_clients_own_models_are_kept_with_their_architectures(name: str, toy: Path) -> None:
    trial = Replicates(name, values_for(name, toy, **MIXED), [3])
    trial.keep_models()
    trial.step()
    found = trial.personal_models()[3]
    assert [found[i][1].model for i in range(CLIENTS)] == ["cnn2", "cnn3", "cnn2", "cnn3"]


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("lgfedavg", {"model": "cnn_small"}, "model must be one of cnn, cnn2, cnn3, resnet10 when nu is above 0"),
        ("lgfedavg", {"model": "auto"}, "got 'auto'"),
        ("lgfedavg", {"deep_model": "cnn_small"}, "deep_model must be one of cnn, cnn2, cnn3, resnet10"),
        ("fedgen", {"model": "lenet_code"}, "model must be one of cnn, cnn2, cnn3, resnet10 when nu is above 0"),
        ("fedgen", {"share": "full"}, "share must be head when nu is above 0"),
    ],
)
def test_what_two_architectures_cannot_share_is_refused(
    name: str, wrong: dict[str, str], words: str, toy: Path
) -> None:
    with pytest.raises(UserError) as error:
        registry.resolve(name, values_for(name, toy, **MIXED | wrong))
    assert len(error.value.problems) == 1 and words in str(error.value)
    if wrong != {"deep_model": "cnn_small"}:  # no option, whoever has it
        registry.resolve(name, values_for(name, toy, **MIXED | wrong | {"nu": 0}))


def test_fedgen_shows_the_extractor_of_a_deep_client(toy: Path) -> None:
    s, _ = simulate("fedgen", toy, 1, **MIXED)
    deep = {1: s.progress.client_states[1]}
    assert s.method.painters is not None
    (painter,) = s.method.painters(s.config, s.fed, s.progress.state, deep).values()
    module = mixed.network(s.fed, "cnn3", role="a test").eval()
    put(module, mixed.initial_model(s.fed, "cnn3") | extractor(deep[1]))
    images = s.data.batch(s.data.test, torch.arange(6))
    assert painter.observe is not None
    torch.testing.assert_close(painter.observe(images), module.features(images))
