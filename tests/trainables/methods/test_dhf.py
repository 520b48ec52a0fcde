"""DHF, where replays of whole rounds do not go: what crosses the wire to the last value, who is deep, what is kept."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.contracts.test_methods import CPU, same, simulate, values_for
from tests.trainables.building_blocks.test_losses import random
from trainables import models
from trainables.building_blocks import prototypes
from trainables.local import LocalResult
from trainables.methods import dhf
from trainables.methods.dhf import Config, prototype_distance
from trainables.params import put
from trainables.simulation.replicates import Replicates
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload

B, C, P = 5, 4, 6
V_T, V_S = random(B, P), random(B, P, seed=2)


def run_client(s: Simulation, number: int) -> dict[str, torch.Tensor]:
    payload = s.method.download(s.config, s.fed, s.progress.state, number)
    upload: dict[str, torch.Tensor] = s.method.client(
        s.config, s.fed, payload, s.progress.client_states.get(number), s.data.clients[number], s.fed.rng.child(number)
    ).upload
    return upload


def fresh(toy: Path, **more: Any) -> Simulation:
    return Simulation("dhf", values_for("dhf", toy, **more), 3, CPU)


def test_prototypes_are_constants_and_a_distance_of_zero_has_a_gradient() -> None:
    features, targets = V_T.clone().requires_grad_(), V_S.clone().requires_grad_()
    prototype_distance(features, targets, torch.ones(B)).backward()
    assert features.grad is not None and targets.grad is None
    same = V_T.clone().requires_grad_()
    prototype_distance(same, V_T, torch.ones(B), "l2").backward()
    assert same.grad is not None and bool(same.grad.isfinite().all())


def test_prototypes_are_of_the_trained_model_whatever_the_module_holds(toy: Path) -> None:
    """Clients that are trained as one program share a module, which holds none of their weights."""
    s = fresh(toy)
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    job = dhf.job(s.config, s.fed, payload, None, s.data.clients[0], s.fed.rng)
    ends = []
    for held in (job.start, {name: torch.zeros_like(tensor) for name, tensor in job.start.items()}):
        put(job.module, held)
        ends.append(job.finish(dict(job.start), LocalResult(0.0, torch.zeros(1, 1, dtype=torch.int64))).upload)
    assert same(ends[0], ends[1]) and float(ends[0]["prototype/0"].abs().sum()) > 0


def test_class_means_leave_running_statistics(toy: Path) -> None:
    s = Simulation("dhf", values_for("dhf", toy, model="cnn", deep_model="cnn", batch_norm="running"), 3, CPU)
    module = s.fed.network().train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    prototypes.class_means(module, s.data.clients[0])
    assert same(dict(module.state_dict()), before)


OWN = random(3, C, P, seed=5)
COUNTS = torch.tensor([[3, 0, 1, 0], [1, 2, 0, 0], [0, 4, 4, 0]])


def test_global_prototypes_are_eq_7_and_a_class_nobody_reports_keeps_its_own() -> None:
    old, valid = random(C, P, seed=8), torch.tensor([False, True, False, True])
    merged, now = prototypes.merge(old, valid, OWN, COUNTS)
    np.testing.assert_allclose(merged[0].numpy(), (3 * OWN[0, 0] + OWN[1, 0]).numpy() / 4, rtol=1e-12)
    np.testing.assert_allclose(merged[1].numpy(), (2 * OWN[1, 1] + 4 * OWN[2, 1]).numpy() / 6, rtol=1e-12)
    assert torch.equal(merged[3], old[3]) and now.tolist() == [True, True, True, True]
    assert prototypes.merge(old, torch.zeros(C, dtype=torch.bool), OWN, COUNTS)[1].tolist() == [True, True, True, False]
    single = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]])  # one sample is enough
    merged, now = prototypes.merge(old, torch.zeros(C, dtype=torch.bool), OWN, single)
    np.testing.assert_allclose(merged[2].numpy(), OWN[0, 2].numpy(), rtol=1e-12)
    assert now.tolist() == [False, False, True, False]


def test_pma_traffic_is_the_closed_formula_to_the_value(toy: Path) -> None:
    """C_own p + (p+1) C + C_own values up per client; GME is the rest of the model, counted apart."""
    s = fresh(toy, omega=0.3, gme_interval=2, nu=0.5)
    p, classes = 512, 4
    owned = [int((d.label_counts() > 0).sum()) for d in s.data.clients]
    assert min(owned) < classes
    formula = sum(c * p + (p + 1) * classes + c for c in owned)
    rows = [s.run_round() for _ in range(2)]
    for row in rows:
        assert row["bytes_up_pma"] == 4 * formula
        assert (
            row["bytes_up"] == row["bytes_up_pma"] + row["bytes_up_gme"]
            and row["bytes_down"] == row["bytes_down_pma"] + row["bytes_down_gme"]
        )
    extractors = sum(
        sum(
            q.numel()
            for name, q in dhf.client_network(s.config, s.fed, i).named_parameters()
            if not name.startswith("head.")
        )
        for i in range(4)
    )
    assert [row["bytes_up_gme"] for row in rows] == [0, 4 * extractors]
    # Nothing comes down in round 1; then the prototypes of all classes and the client's own head, and a byte that asks
    # for the rest.
    assert [row["bytes_down_pma"] for row in rows] == [0, 4 * 4 * (classes * p + (p + 1) * classes)]
    assert [row["bytes_down_gme"] for row in rows] == [0, 4]


@pytest.mark.parametrize(
    ("nu", "deep"), [(0.0, []), (0.25, [3]), (0.5, [1, 3]), (0.75, [1, 2, 3]), (1.0, [0, 1, 2, 3])]
)
def test_a_share_nu_of_the_clients_is_deep(nu: float, deep: list[int], toy: Path) -> None:
    s = fresh(toy, nu=nu)
    assert [i for i in range(4) if s.method.client_network(s.config, s.fed, i).name == "cnn3"] == deep


def test_every_network_of_dhf_has_one_feature_width_and_a_linear_head() -> None:
    for name in (*dhf.WIDE, "resnet18"):
        for shape in ((1, 8, 8), (3, 32, 32)):
            module = models.build(name, shape, 4)
            assert module.feature_width == 512 and isinstance(module.head, nn.Linear)


def test_labels_are_drawn_alike_of_every_class_that_has_a_sample(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds class 3, and of class 2 there is one sample in all."""
    s = fresh(toy, server_iters=0)
    drawn, uploads = list[torch.Tensor](), []
    for i in range(4):
        gone = {f"{kind}/{j}" for kind in ("prototype", "count") for j in ("3" if i == 0 else "23")}
        kept = {key: tensor for key, tensor in run_client(s, i).items() if key not in gone}
        uploads.append(Upload(i, kept if i else kept | {"count/2": torch.tensor(1, dtype=torch.int32)}))

    original = dhf.Phases

    def phases(*given: Any) -> dhf.Phases:
        drawn.append(given[5])
        return original(*given)

    monkeypatch.setattr(dhf, "Phases", phases)
    dhf.server(s.config, s.fed, s.progress.state, uploads, s.fed.rng)
    np.testing.assert_allclose(drawn[0] / drawn[0].sum(), [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6)


def test_the_global_model_trains_in_its_rounds_only_and_in_the_last(toy: Path) -> None:
    config = Config(gme_interval=3)
    fed = replace(fresh(toy).fed, rounds=7)
    assert [t for t in range(1, 8) if dhf.trains_global_model(config, fed, t)] == [3, 6, 7]
    assert not any(dhf.trains_global_model(Config(gme_interval=0), fed, t) for t in range(1, 8))
    s = fresh(toy, gme_interval=3)
    seen = [s.global_model()]
    for _ in range(4):
        s.run_round()
        seen.append(s.global_model())
    changed = [not all(torch.equal(a[k], b[k]) for k in a) for a, b in itertools.pairwise(seen)]  # type: ignore[index]
    assert changed == [False, False, True, True]


def test_the_saved_model_is_named_as_what_it_is(toy: Path) -> None:
    replicates = Replicates("dhf", values_for("dhf", toy, server_model="cnn3"), [0])
    params, card = replicates.models()[0]
    assert card.model == "cnn3"
    put(models.build(card.model, card.shape, card.classes), params)
    assert Replicates("dhf", values_for("dhf", toy, gme_interval=0), [0]).models() == {}


def test_without_a_global_model_rounds_are_counted_too(toy: Path) -> None:
    s, _ = simulate("dhf", toy, 0, gme_interval=0)
    assert s.progress.state.round == 0 and s.progress.state.model is None
    s.run_round()
    assert s.progress.state.round == 1
