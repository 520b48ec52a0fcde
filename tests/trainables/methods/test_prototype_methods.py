"""FedProto, FedDistill, FedGH and FedTGP: their equations against NumPy, and what is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import CPU, same, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.building_blocks import prototypes
from trainables.building_blocks.prototypes import PrototypePasses, labelled, passes
from trainables.local import LocalResult
from trainables.methods import feddistill, fedgh, fedtgp
from trainables.params import take
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload

B, C, P = 5, 4, 512
UNEVEN = {"omega": 0.1}


def fresh(name: str, toy: Path, **more: Any) -> Simulation:
    return Simulation(name, values_for(name, toy, **UNEVEN | more), 3, CPU)


def test_a_class_is_pooled_by_the_weights_of_those_who_report_it() -> None:
    a, b, c = (random(P, seed=k) for k in range(3))
    found = prototypes.pooled([{0: a, 2: b}, {2: c}], [{0: 3.0, 2: 5.0}, {2: 7.0}])
    assert found.keys() == {0, 2}
    np.testing.assert_allclose(found[0].numpy(), a.numpy(), rtol=1e-12)
    np.testing.assert_allclose(found[2].numpy(), (5 * b.numpy() + 7 * c.numpy()) / 12, rtol=1e-12)


def test_distillation_is_the_cross_entropy_with_the_softmax_of_the_mean_logits() -> None:
    logits, targets, valid = random(B, C), random(B, C, seed=1), torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    rows = -(softmax(targets.numpy()) * np.log(softmax(logits.numpy()))).sum(axis=1)
    expected = (rows * valid.numpy()).sum() / B
    assert feddistill.taught(logits, targets, valid).item() == pytest.approx(expected, rel=1e-9)
    watched = targets.clone().requires_grad_()
    feddistill.taught(logits.clone().requires_grad_(), watched, valid).backward()
    assert watched.grad is None


def test_a_client_is_sent_the_mean_of_the_others_logits() -> None:
    r = [random(C, seed=k) for k in range(4)]
    state = feddistill.State(1, {0: {0: r[0], 1: r[1]}, 2: {1: r[2]}, 3: {1: r[3]}})
    fed: Any = None
    sent = feddistill.download(feddistill.Config(), fed, state, 2)
    assert sent.keys() == {"logits/0", "logits/1"}
    np.testing.assert_allclose(sent["logits/0"].numpy(), r[0].numpy(), rtol=1e-12)
    np.testing.assert_allclose(sent["logits/1"].numpy(), (r[1] + r[3]).numpy() / 2, rtol=1e-12)
    assert feddistill.download(feddistill.Config(), fed, state, 0).keys() == {"logits/1"}  # nobody else holds class 0
    everybody = feddistill.download(feddistill.Config(exclude_own=False), fed, state, 2)
    np.testing.assert_allclose(everybody["logits/1"].numpy(), (r[1] + r[2] + r[3]).numpy() / 3, rtol=1e-12)
    assert feddistill.download(feddistill.Config(gamma=0.0), fed, state, 0) == {}


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


def test_the_header_is_trained_on_the_cross_entropy_of_prototypes() -> None:
    head = torch.nn.Linear(P, C).double()
    rows, labels = random(B, P), torch.tensor([0, 3, 3, 1, 2])
    logits = rows.numpy() @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    expected = -np.log(softmax(logits))[np.arange(B), labels.numpy()].mean()
    assert fedgh.header_loss(head, rows, labels).item() == pytest.approx(expected, rel=1e-9)


def test_the_margin_is_the_largest_distance_to_a_nearest_neighbour() -> None:
    """Of points on a line at 0, 1, 5 and 12 the nearest neighbours are 1, 1, 4 and 7 away."""
    means = torch.tensor([[0.0], [1.0], [5.0], [12.0]], dtype=torch.float64) * torch.tensor([[3.0, 4.0]]) / 5.0
    assert fedtgp.adaptive_margin(means, 100.0).item() == pytest.approx(7.0, rel=1e-6)
    assert fedtgp.adaptive_margin(means, 2.5).item() == 2.5
    assert fedtgp.adaptive_margin(means[:3], 100.0).item() == pytest.approx(4.0, rel=1e-6)
    assert fedtgp.adaptive_margin(means[1:3], 100.0).item() == pytest.approx(4.0, rel=1e-6)
    assert fedtgp.adaptive_margin(means[:1], 2.5).item() == 2.5


def test_the_contrastive_loss_moves_the_own_class_away_by_the_margin() -> None:
    rows, made, labels = random(B, 6), random(C, 6, seed=1), torch.tensor([0, 3, 3, 1, 2])
    apart = np.linalg.norm(rows.numpy()[:, None] - made.numpy()[None], axis=2)
    apart[np.arange(B), labels.numpy()] += 1.5
    expected = -np.log(softmax(-apart))[np.arange(B), labels.numpy()].mean()
    margin = torch.tensor(1.5, dtype=torch.float64)
    assert fedtgp.contrastive_loss(rows, labels, made, margin).item() == pytest.approx(expected, rel=1e-9)
    watched = made.clone().requires_grad_()
    fedtgp.contrastive_loss(made[labels], labels, watched, margin).backward()  # distances of 0
    assert watched.grad is not None and bool(watched.grad.isfinite().all())
