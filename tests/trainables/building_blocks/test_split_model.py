"""The two halves of a model, and the generator that every party of one seed starts with."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.contracts.test_methods import CPU, same, values_for
from trainables.building_blocks.split_model import body_of, head_of, initial_generator
from trainables.federation import Federation
from trainables.simulation.rounds import Simulation


def federation(toy: Path, seed: int) -> Federation:
    return Simulation("fedcg", values_for("fedcg", toy, model="cnn_small"), seed, CPU).fed


@pytest.mark.parametrize("hidden", [(512, 256), (7,)])
def test_its_layers_have_the_printed_widths(hidden: tuple[int, ...], toy: Path) -> None:
    """[z, onehot(y)] → hidden → p, for 4 classes and the 256 features of `cnn_small`."""
    fed = federation(toy, 3)
    made = initial_generator(fed, 8, hidden)
    widths = [tensor.shape for name, tensor in made.items() if tensor.dim() == 2]
    sizes = [8 + 4, *hidden, fed.network().feature_width]
    assert widths == [(after, before) for before, after in pairwise(sizes)]


@pytest.mark.parametrize(("name", "role"), [("fedcg", "frozen"), ("fedmdcg", "frozen"), ("fedkf", "teacher")])
def test_the_model_that_teaches_a_generator_is_in_evaluation_mode(name: str, role: str, toy: Path) -> None:
    """Its features are those of every sample by itself, and its running statistics stay."""
    s = Simulation(name, values_for(name, toy, batch_norm="running"), 3, CPU)
    teacher, modes = s.fed.network(role=role), []
    features = teacher.features
    teacher.features = lambda x: (modes.append(teacher.training), features(x))[1]
    for _ in range(2):  # FedKF's first round has no teacher
        s.run_round()
    assert modes and not any(modes)


def test_a_model_is_its_two_halves(toy: Path) -> None:
    whole = federation(toy, 3).initial_params()
    head, body = head_of(whole), body_of(whole)
    assert set(head) == {"head.weight", "head.bias"} and not set(head) & set(body)
    assert same(dict(sorted((head | body).items())), dict(sorted(whole.items())))
