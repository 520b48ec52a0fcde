"""FedProto, FedDistill, FedGH and FedTGP: the server's passes, margins at their ends, and what is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.test_methods import CPU, same, values_for
from tests.trainables.building_blocks.test_losses import random
from trainables.building_blocks import prototypes
from trainables.building_blocks.prototypes import PrototypePasses, labelled, passes
from trainables.local import LocalResult
from trainables.methods import fedtgp
from trainables.params import take
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload

B, C, P = 5, 4, 512
UNEVEN = {"omega": 0.1}


def fresh(name: str, toy: Path, **more: Any) -> Simulation:
    return Simulation(name, values_for(name, toy, **UNEVEN | more), 3, CPU)


def test_every_pass_visits_every_prototype_once_in_an_order_of_its_own() -> None:
    fed: Any = type("Fed", (), {"device": CPU})
    config = PrototypePasses(server_epochs=5, server_batch_size=4)
    steps = [step.tolist() for step in passes(config, 10, fed, Rng(1))]
    assert [len(step) for step in steps] == [4, 4, 2] * 5
    rounds = [steps[k] + steps[k + 1] + steps[k + 2] for k in range(0, 15, 3)]
    assert all(sorted(order) == list(range(10)) for order in rounds) and len(set(map(tuple, rounds))) == 5
    assert list(passes(PrototypePasses(server_epochs=0), 10, fed, Rng(1))) == []
    rows, labels = labelled([{"prototype/2": torch.ones(3)}, {"prototype/0": torch.zeros(3)}], fed)
    assert labels.tolist() == [2, 0] and rows.tolist() == [[1.0] * 3, [0.0] * 3]


@pytest.mark.parametrize("name", ["fedgh", "fedtgp"])
def test_a_server_that_makes_no_pass_learns_nothing(name: str, toy: Path) -> None:
    s = fresh(name, toy, server_epochs=0)
    before = s.progress.state
    s.run_round()
    after = s.progress.state
    assert same(before.head, after.head) if name == "fedgh" else same(before.network, after.network)


def test_fedtgps_prototypes_hang_on_the_seed_and_the_state_alone(toy: Path) -> None:
    """Not on what a module of earlier use holds: the first draw, and two rounds made of the same state."""
    first = []
    for seed in (1, 2):
        torch.manual_seed(seed)  # which a new module's own weights are drawn by
        first.append(fresh("fedtgp", toy).progress.state.network)
    assert same(*first)
    s = fresh("fedtgp", toy)
    _, results = s.exchange()
    uploads = [Upload(i, result.upload) for i, result in results.items()]
    state = fedtgp.State(0, first[0], {})
    made = [s.method.server(s.config, s.fed, state, uploads, s.fed.rng.child("x")) for _ in range(2)]
    assert same(made[0].network, made[1].network) and not same(made[0].network, state.network)


@pytest.mark.parametrize("name", ["feddistill", "fedgh", "fedproto", "fedtgp"])
def test_a_client_reports_what_the_trained_weights_say_whatever_its_module_holds(name: str, toy: Path) -> None:
    s = fresh(name, toy)
    data, module = s.data.clients[1], s.fed.built("cnn3")
    trained = s.fed.initial_params("trained") if s.fed.model == "cnn3" else take(module)
    payload = s.method.download(s.config, s.fed, s.progress.state, 1)
    assert s.method.job is not None
    result = s.method.job(s.config, s.fed, payload, None, data, Rng(1)).finish(
        trained, LocalResult(0.0, torch.zeros(1, 1))
    )
    module.load_state_dict(trained)
    told = prototypes.class_logits if name == "feddistill" else prototypes.class_means
    prefix = "logits" if name == "feddistill" else "prototype"
    expected = told(module, data)
    found = prototypes.by_class(prefix, result.upload)
    assert found and all(torch.equal(row, expected[j]) for j, row in found.items())


def test_the_margin_is_the_largest_distance_to_a_nearest_neighbour() -> None:
    """Of points on a line at 0, 1, 5 and 12 the nearest neighbours are 1, 1, 4 and 7 away."""
    means = torch.tensor([[0.0], [1.0], [5.0], [12.0]], dtype=torch.float64) * torch.tensor([[3.0, 4.0]]) / 5.0
    assert fedtgp.adaptive_margin(means, 100.0).item() == pytest.approx(7.0, rel=1e-6)
    assert fedtgp.adaptive_margin(means, 2.5).item() == 2.5
    assert fedtgp.adaptive_margin(means[:3], 100.0).item() == pytest.approx(4.0, rel=1e-6)
    assert fedtgp.adaptive_margin(means[1:3], 100.0).item() == pytest.approx(4.0, rel=1e-6)
    assert fedtgp.adaptive_margin(means[:1], 2.5).item() == 2.5


def test_the_contrastive_loss_has_a_gradient_where_a_prototype_is_met() -> None:
    made, labels = random(C, 6, seed=1).requires_grad_(), torch.tensor([0, 3, 3, 1, 2])
    fedtgp.contrastive_loss(made.detach()[labels], labels, made, torch.tensor(1.5)).backward()  # distances of 0
    assert made.grad is not None and bool(made.grad.isfinite().all())
