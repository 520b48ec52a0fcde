"""DHF's equations against NumPy, what crosses the wire to the last value, and where gradients flow.
What a whole round does, the replays hold.
"""

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
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables import models
from trainables.building_blocks import prototypes
from trainables.local import LocalResult
from trainables.methods import dhf
from trainables.methods.dhf import Config, generator_loss, global_loss, objective, prototype_distance, validity_loss
from trainables.params import put
from trainables.simulation.replicates import Replicates
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload

B, C, P = 5, 4, 6
V_T, U_T, V_S, U_S = random(B, P), random(B, C, seed=1), random(B, P, seed=2), random(B, C, seed=3)


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (p * (np.log(p) - np.log(q))).sum(axis=1)


def run_client(s: Simulation, number: int) -> dict[str, torch.Tensor]:
    payload = s.method.download(s.config, s.fed, s.progress.state, number)
    upload: dict[str, torch.Tensor] = s.method.client(
        s.config, s.fed, payload, s.progress.client_states.get(number), s.data.clients[number], s.fed.rng.child(number)
    ).upload
    return upload


def fresh(toy: Path, **more: Any) -> Simulation:
    return Simulation("dhf", values_for("dhf", toy, **more), 3, CPU)


@pytest.mark.usefixtures("float64")
def test_client_loss_is_eq_5(toy: Path) -> None:
    """CE + λ mean_b mean_p (φ - C̄^y)², where class 2 has no prototype; without any, plain cross-entropy."""
    fed = fresh(toy).fed
    module = fed.network()
    x, y = torch.randn(B, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 2])
    targets = {j: random(512, seed=j).float() for j in (0, 1, 3)}
    features, logits = module.features(x).detach().double().numpy(), module(x).detach().double().numpy()
    plain = -np.log(softmax(logits))[np.arange(B), y.numpy()].mean()
    rows = [
        ((features[b] - targets[int(c)].numpy()) ** 2) if int(c) in targets else np.zeros(512) for b, c in enumerate(y)
    ]

    def loss(weight: float, norm: str, found: dict[int, torch.Tensor]) -> float:
        return objective(Config(lambda_=weight, proto_norm=norm), fed, found)(module, x, y).item()

    for weight in (0.7, 1.0):
        near, apart = np.mean([r.mean() for r in rows]), np.mean([np.sqrt(r.sum()) for r in rows])
        assert loss(weight, "mse", targets) == pytest.approx(plain + weight * near, rel=1e-9)
        assert loss(weight, "l2", targets) == pytest.approx(plain + weight * apart, rel=1e-9)
    assert loss(0.7, "mse", {}) == pytest.approx(plain, rel=1e-9)


def test_prototypes_are_constants_and_a_distance_of_zero_has_a_gradient() -> None:
    features, targets = V_T.clone().requires_grad_(), V_S.clone().requires_grad_()
    prototype_distance(features, targets, torch.ones(B)).backward()
    assert features.grad is not None and targets.grad is None
    same = V_T.clone().requires_grad_()
    prototype_distance(same, V_T, torch.ones(B), "l2").backward()
    assert same.grad is not None and bool(same.grad.isfinite().all())


@pytest.mark.usefixtures("float64")
def test_class_means_are_eq_6(toy: Path) -> None:
    s = fresh(toy, omega=0.3)
    module, data = s.fed.network(), s.data.clients[0]
    x, y = data.batch(torch.arange(len(data)))
    features = module.eval().features(x).detach().numpy()
    found = prototypes.class_means(module, data).numpy()
    for j in range(4):
        expected = features[y.numpy() == j].mean(axis=0) if (y == j).any() else np.zeros(512)
        np.testing.assert_allclose(found[j], expected, rtol=1e-9, atol=1e-12)


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


def test_the_first_global_model_is_drawn_from_the_seed_alone(toy: Path) -> None:
    made = []
    for seed, apart in ((3, 1), (3, 2), (4, 1)):
        torch.manual_seed(apart)
        made.append(Simulation("dhf", values_for("dhf", toy), seed, CPU).progress.state.model)
    assert same(made[0], made[1]) and not same(made[0], made[2])


OWN = random(3, C, P, seed=5)
COUNTS = torch.tensor([[3, 0, 1, 0], [1, 2, 0, 0], [0, 4, 4, 0]])
WEIGHT, BIAS = random(3, C, P, seed=6), random(3, C, seed=7)


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


def test_head_losses_weights_and_mixture_are_eqs_8_to_10() -> None:
    losses = prototypes.head_losses(OWN, COUNTS, WEIGHT, BIAS)
    for k in range(3):
        for i in range(3):
            logits = OWN[k].numpy() @ WEIGHT[i].numpy().T + BIAS[i].numpy()
            expected = sum(
                COUNTS[k, j].item() / COUNTS[k].sum().item() * -np.log(softmax(logits))[j, j] for j in range(C)
            )
            assert float(losses[k, i]) == pytest.approx(expected, rel=1e-9)
    weights = prototypes.head_weights(losses, 0.5)
    unnormalised = np.exp(-0.5 * losses.numpy())
    np.testing.assert_allclose(weights.numpy(), unnormalised / unnormalised.sum(axis=1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(weights.sum(dim=1).numpy(), 1.0, rtol=1e-12)
    mixed = prototypes.mix(weights, WEIGHT)
    np.testing.assert_allclose(
        mixed[2].numpy(), sum(float(weights[2, i]) * WEIGHT[i].numpy() for i in range(3)), rtol=1e-12
    )


def test_validity_loss_is_eq_13_and_moves_the_ensemble_alone() -> None:
    config = Config(kd_temperature=2.0)
    expected = -kl(softmax(U_S.numpy(), 2.0), softmax(U_T.numpy(), 2.0)).mean() - ((V_S - V_T) ** 2).mean().item()
    v_t, u_t, v_s, u_s = (t.clone().requires_grad_() for t in (V_T, U_T, V_S, U_S))
    loss = validity_loss(config, v_t, u_t, v_s, u_s)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-9)
    loss.backward()
    assert v_t.grad is not None and u_t.grad is not None and v_s.grad is None and u_s.grad is None


def test_generator_loss_is_eq_15() -> None:
    targets, images, noise = random(B, P, seed=9), random(B, 1, 2, 2, seed=10), random(B, 3, seed=11)
    config = Config(lambda_div=1.3, lambda_eff=0.2)
    authenticity = ((V_T - targets) ** 2).numpy().mean()
    pairs = [
        np.mean((images[j].numpy() - images[k].numpy()) ** 2) * np.mean((noise[j].numpy() - noise[k].numpy()) ** 2)
        for j in range(B)
        for k in range(B)
    ]
    validity = -kl(softmax(U_S.numpy()), softmax(U_T.numpy())).mean() - ((V_S - V_T) ** 2).numpy().mean()
    expected = authenticity + 1.3 * np.exp(-np.mean(pairs)) + 0.2 * validity
    assert float(generator_loss(config, V_T, U_T, V_S, U_S, targets, images, noise)) == pytest.approx(
        expected, rel=1e-9
    )
    plain = replace(config, lambda_div=0.0, lambda_eff=0.0)
    assert float(generator_loss(plain, V_T, U_T, V_S, U_S, targets, images, noise)) == pytest.approx(
        authenticity, rel=1e-9
    )


def test_global_loss_is_eq_16_and_moves_the_student_alone() -> None:
    config = Config(alpha=0.3, kd_temperature=2.0)
    outputs = kl(softmax(U_T.numpy(), 2.0), softmax(U_S.numpy(), 2.0)).mean()
    v_t, u_t, v_s, u_s = (t.clone().requires_grad_() for t in (V_T, U_T, V_S, U_S))
    loss = global_loss(config, v_t, u_t, v_s, u_s)
    assert float(loss.detach()) == pytest.approx(outputs + 0.3 * ((V_S - V_T) ** 2).mean().item(), rel=1e-9)
    loss.backward()
    assert v_t.grad is None and u_t.grad is None and v_s.grad is not None and u_s.grad is not None
    assert float(global_loss(replace(config, alpha=0.0), V_T, U_T, V_S, U_S)) == pytest.approx(outputs, rel=1e-9)


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
    replicates = Replicates("dhf", values_for("dhf", toy), [0])
    params, card = replicates.models()[0]
    assert card.model == "resnet10"
    put(models.build(card.model, card.shape, card.classes), params)
    assert Replicates("dhf", values_for("dhf", toy, gme_interval=0), [0]).models() == {}


def test_without_a_global_model_rounds_are_counted_too(toy: Path) -> None:
    s, _ = simulate("dhf", toy, 0, gme_interval=0)
    assert s.progress.state.round == 0 and s.progress.state.model is None
    s.run_round()
    assert s.progress.state.round == 1
