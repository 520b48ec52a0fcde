"""FedKF: a class that is never predicted, how many steps are made, what is measured and looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.contracts.test_methods import simulate, values_for
from trainables.generators.noise import NoiseGenerator
from trainables.local import draw_batches
from trainables.methods import fedkf
from trainables.methods.fedkf import information_entropy_loss
from trainables.params import put
from trainables.simulation.rounds import Simulation

CPU = torch.device("cpu")


def test_information_entropy_loss_is_finite_where_a_class_is_never_predicted() -> None:
    logits = torch.tensor([[0.0, -500.0], [0.0, -500.0]], requires_grad=True)
    loss = information_entropy_loss(logits)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
    assert logits.grad is not None and bool(torch.isfinite(logits.grad).all())


def test_both_readouts_are_measured_and_one_is_the_global_model(toy: Path) -> None:
    for readout in ("aca", "oca"):
        _, rows = simulate("fedkf", toy, 3, active_clients=2, readout=readout)
        for metric in ("amp", "fm", "wlp", "global_accuracy"):
            assert (
                rows[-1][metric] == rows[-1][f"{readout}_{metric}"]
                and rows[-1][f"val_{metric}"] == rows[-1][f"val_{readout}_{metric}"]
            )


def test_equal_local_steps_are_passes_over_the_mean_client(toy: Path) -> None:
    s = Simulation("fedkf", values_for("fedkf", toy, local_epochs=3, batch_size=16, omega=0.5), 3, CPU)
    batches = sum(s.fed.sizes) // (4 * 16)
    steps = [draw_batches(fedkf.planned(s.config, s.fed), n, 1.0, s.fed.rng).shape[0] for n in s.fed.sizes]
    assert steps == [3 * batches] * 4 and batches == 3
    assert fedkf.planned(replace(s.config, batch_size=1000), s.fed).local_steps == 3  # one batch a pass at least
    own = fedkf.planned(replace(s.config, equal_local_steps=False), s.fed)
    assert len({draw_batches(own, n, 1.0, s.fed.rng).shape[0] for n in s.fed.sizes}) > 1


def test_what_is_looked_at_is_the_first_generator_and_the_cached_average_judges_it(toy: Path) -> None:
    """Recomputed on modules of its own; looking moves no model that trains."""
    s, _ = simulate("fedkf", toy, 3, active_clients=2)
    state, kept = s.progress.state, s.progress.client_states
    assert state.round == 3 and s.method.painters is not None
    # After three rounds both say the same class of everything; these do not.
    state = replace(state, cache=replace(state.cache, overall=s.fed.initial_params("another")))
    state = replace(state, model=s.fed.initial_params("a third"))
    before = {name: tensor.clone() for name, tensor in s.fed.network().state_dict().items()}
    painter = s.method.painters(s.config, s.fed, state, {5: kept[max(kept)], 1: kept[min(kept)]})["generator"]
    module = s.fed.cached("a test", lambda: NoiseGenerator(s.fed.shape, s.config.noise_dim, s.fed.mean, s.fed.std))
    put(module, kept[min(kept)].generator)
    z, y = torch.randn(40, s.config.noise_dim), torch.zeros(40, dtype=torch.long)
    with torch.no_grad():
        images = painter.paint(z, y)
        assert torch.equal(images, module(z))
    images = s.data.batch(s.data.test, torch.arange(80))
    judges = []
    for model in (state.cache.overall, state.model):
        network = s.fed.network(role="a test").eval()
        put(network, model)
        with torch.no_grad():
            judges.append(network(images).argmax(dim=1))
    assert painter.judge is not None and painter.judge(images).tolist() == judges[0].tolist() != judges[1].tolist()
    after = s.fed.network().state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    fresh = s.method.painters(s.config, s.fed, replace(state, cache=None), {1: kept[min(kept)]})["generator"]
    assert fresh.judge is not None and fresh.judge(images).tolist() == judges[1].tolist()
    assert s.method.painters(s.config, s.fed, state, {}) == {}
