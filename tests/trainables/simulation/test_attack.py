"""The deep-leakage attack: its network, what it takes for shared, its objective, and the order of what it can see."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.test_methods import METHODS, put_state, simulate, state_of, values_for
from trainables import registry
from trainables.federation import Federation, FederationConfig
from trainables.rng import Rng
from trainables.simulation import attack, federated_data
from trainables.simulation.federated_data import FederatedData
from trainables.simulation.rounds import Simulation

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def federation(toy: Path) -> tuple[Federation, FederatedData]:
    return federated_data.build(FederationConfig(dataset=str(toy), clients=4, omega=10.0, min_samples=4), 0, CPU)


@pytest.mark.parametrize(
    ("shape", "features"), [((1, 28, 28), 588), ((3, 32, 32), 768), ((1, 8, 8), 48), ((1, 9, 6), 72)]
)
def test_the_network_has_the_published_features(shape: tuple[int, int, int], features: int) -> None:
    network = attack.Network(shape, 10)
    assert network.head.in_features == features
    assert network(torch.zeros(2, *shape)).shape == (2, 10)
    assert [conv.stride for conv in network.convs] == [(2, 2), (2, 2), (1, 1)]


def test_weights_are_drawn_part_by_part() -> None:
    network = attack.Network((1, 8, 8), 4)
    attack.draw(network, attack.PARTS, Rng(0).torch("weights"))
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    assert all(float(p.abs().max()) <= 0.5 and float(p.std()) > 0.2 for p in before.values() if p.numel() > 50)
    attack.draw(network, ["head"], Rng(0).torch("guess"))
    changed = {name for name, p in network.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {"head.weight", "head.bias"}


def test_psnr_is_that_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((1, 3, 5, 4)), rng.random((1, 3, 5, 4))
    expected = 10 * np.log10(1 / np.mean((a - b) ** 2))
    assert attack.psnr(torch.tensor(a), torch.tensor(b)) == pytest.approx(expected, rel=1e-12)
    assert attack.psnr(torch.tensor(a), torch.tensor(a)) == 100.0


def test_what_is_sent_is_read_off_the_upload() -> None:
    network = attack.Network((1, 8, 8), 4)
    whole = {f"model/{name}": p.detach() for name, p in network.named_parameters()}
    head = {"head/weight": network.head.weight.detach(), "head/bias": network.head.bias.detach()}
    assert attack.sent(network, whole) == {"features", "head"}
    assert attack.sent(
        network, head | {"generator/layers.0.weight": torch.zeros(3), "label_counts": torch.zeros(4)}
    ) == {"head", "generator", "label_counts"}
    assert attack.sent(network, {"model/head.weight": network.head.weight.detach()}) == {"head"}
    assert attack.sent(network, {"generator/convs.0.weight": torch.zeros(2, 2)}) == {"generator"}
    assert attack.sent(network, {}) == set()


#: What the methods' papers say leaves a client, of the network's two parts.
SHARES: dict[str, set[str]] = {
    "local": set(),
    "lgfedavg": {"head"},
    "fedcg": {"head"},
    "fedmdcg": {"head"},
    "fedper": {"features"},
    "fedbabu": {"features"},
    "fedproto": set(),
    "feddistill": set(),
    "fedgh": set(),
    "fedtgp": set(),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_shares_what_its_paper_says(name: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 2)
    assert set(s.progress.sent) & set(attack.PARTS) == SHARES.get(name, {"features", "head"})


def test_the_full_gradient_shows_the_image_and_the_head_does_not(federation: tuple[Federation, FederatedData]) -> None:
    fed, data = federation

    def mean(shared: tuple[str, ...], private: str = "random") -> float:
        return attack.mean_psnr(attack.attack(fed, data.clients, shared, images=2, steps=40, private=private))

    everything, head, nothing = mean(("features", "head")), mean(("head",)), mean(())
    assert everything > 30 > 12 > head and nothing < 12
    # A random head hides the image behind the features' gradient; an attacker who searches for the head finds both.
    assert mean(("features",)) < 12 < 30 < mean(("features",), "searched")
    assert mean(("head",), "searched") < 12


def test_victims_are_real_samples_and_the_same_for_every_method(federation: tuple[Federation, FederatedData]) -> None:
    fed, data = federation
    one = attack.attack(fed, data.clients, ("head",), images=5, steps=1, private="random")
    two = attack.attack(fed, data.clients, ("features", "head"), images=5, steps=1, private="random")
    assert [leak.client for leak in one] == [leak.client for leak in two]
    assert {leak.client for leak in one} == {0, 1, 2, 3}
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.original, b.original)
        mine = data.clients[a.client]
        samples = data.images[mine.indices].float() / 255
        assert any(
            torch.equal(a.original, sample) and int(label) == a.label
            for sample, label in zip(samples, mine.y, strict=True)
        )
        assert float(a.recovered.min()) >= 0 and float(a.recovered.max()) <= 1
    assert not torch.equal(one[0].original, one[4].original)


@pytest.mark.usefixtures("float64")
def test_the_objective_is_the_squared_distance_of_the_shared_gradients() -> None:
    """The first mismatch is that of the noise, computed here in NumPy from the closed form of the head's gradient."""
    x, y, rng = torch.rand(1, 1, 4, 4, generator=Rng(1).torch("x")), torch.tensor([2]), Rng(5).child("victim")
    told: list[float] = []
    attack.recover(x, y, 3, ("head",), rng, steps=1, private="random", watch=lambda step, value: told.append(value))

    def gradient(network: attack.Network, image: Tensor, target: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            features = image
            for conv in network.convs:
                features = torch.sigmoid(conv(features))
            f = features.flatten().double().numpy()
            logits = network.head.weight.double().numpy() @ f + network.head.bias.double().numpy()
        p = np.exp(logits - logits.max())
        p /= p.sum()
        return np.concatenate([np.outer(p - target, f).ravel(), p - target])  # of CE(softmax(Wf + b), t) with Σ t = 1

    network = attack.Network((1, 4, 4), 3)
    attack.draw(network, attack.PARTS, rng.torch("weights"))
    true = gradient(network, x, np.eye(3)[2])
    attack.draw(network, ["features"], rng.torch("guess"))
    noise = rng.torch("noise")
    image, label = torch.randn(x.shape, generator=noise), torch.randn((1, 3), generator=noise)
    guess = gradient(network, image, label.softmax(dim=1)[0].double().numpy())
    assert told == [pytest.approx(float(((guess - true) ** 2).sum()), rel=1e-9)]


def test_with_nothing_shared_the_guess_is_noise(federation: tuple[Federation, FederatedData]) -> None:
    fed, data = federation
    leak = attack.attack(fed, data.clients, (), images=1, steps=300, private="random")[0]
    noise = torch.randn((1, *fed.shape), generator=fed.rng.child("attack").child("victim", 0).torch("noise"))
    assert torch.equal(leak.recovered, noise[0].clamp(0, 1)) and math.isnan(leak.mismatch)


def test_numbers_that_run_away_end_with_the_last_image(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    def broken(self: torch.optim.LBFGS, closure: object) -> Tensor:
        nonlocal steps
        steps += 1
        if steps == 2:
            self.param_groups[0]["params"][0].data.fill_(math.nan)
        return torch.tensor(1.0)

    monkeypatch.setattr(attack.LBFGS, "step", broken)
    recovered, _ = attack.recover(
        torch.rand(1, 1, 8, 8), torch.tensor([1]), 4, attack.PARTS, Rng(0), steps=9, private="random"
    )
    assert steps in (1, 2) and bool(recovered.isfinite().all())


@pytest.mark.parametrize("name", ["fedavg", "lgfedavg", "local"])
def test_psnr_is_measured_after_the_last_round_and_only_when_asked(name: str, toy: Path) -> None:
    _, rows = simulate(name, toy, 2, rounds=2, attack_images=2, attack_steps=3)
    assert "psnr" not in rows[0] and rows[1]["psnr"] > 0
    _, without = simulate(name, toy, 2, rounds=2)
    assert "psnr" not in without[1] and without == [{k: v for k, v in row.items() if k != "psnr"} for row in rows]
    s = Simulation(name, values_for(name, toy, rounds=2, attack_images=2, attack_steps=3), 3, CPU)
    s.run_round()
    again = Simulation(name, values_for(name, toy, rounds=2, attack_images=2, attack_steps=3), 3, CPU)
    put_state(again, state_of(s))
    assert again.run_round()["psnr"] == rows[1]["psnr"]
    assert registry.declared(name)["attack_images"].default == 0
