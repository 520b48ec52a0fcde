"""FedAMP, FedPHP and FedFomo, three rounds: clients of one architecture, each with a model of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.trainables.methods.replays.actual import (
    DoubleData,
    Round,
    World,
    assert_close,
    assert_equal,
    assert_step,
    client_state,
    unpacked,
    world,
)
from tests.trainables.methods.replays.networks import cnn, cnn_features
from tests.trainables.methods.replays.plain import Loss, Params, Sgd, ce, drawn_batches, kl, sgd_steps, weighted_mean

COHORTS = ((0, 2, 3), (0, 1, 3), (1, 2, 3))


def trained(played: World, round_: Round, i: int, start: Params, loss_of: Loss) -> Params:
    """The client's model after its steps, compared in its loss and what is measured."""
    c, data = played.config, played.clients[i]
    drawn = drawn_batches(data, c.local_steps, c.batch_size, played.client_rng(round_.number, i).torch("batches"))
    model, losses = sgd_steps(start, data, drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
    assert_close(round_.results[i].loss or 0.0, sum(losses) / len(losses), f"loss of {i}")
    return model


def squared_distance(a: Params, b: Params) -> float:
    return sum(float(((a[name] - b[name]) ** 2).sum()) for name in a)


def test_fedamp(toy: Path) -> None:
    """Attention is large enough that a client's row is scaled, and small enough that another one's is not."""
    amp = world("fedamp", toy, alpha=6.0, reach=5.0, **{"lambda": 2.4})
    initial, clouds = amp.fed.initial_params(), dict[int, Params]()
    sums = []
    for played in amp.play(COHORTS):
        now: dict[int, Params] = {}
        for i, result in played.results.items():
            u = clouds.get(i)
            assert_equal(unpacked("model", played.payloads[i]), u or {}, f"cloud model sent to {i}")

            def loss(p: Params, x: torch.Tensor, y: torch.Tensor, u: Params | None = u) -> torch.Tensor:
                near = sum(((p[name] - u[name]) ** 2).sum() for name in p) if u else 0.0
                return ce(cnn(p, x), y) + 2.4 / (2 * 6.0) * near

            now[i] = trained(amp, played, i, u or initial, loss)
            assert_step(unpacked("model", result.upload), now[i], u or initial, f"upload of {i}")
            assert_step(result.model or {}, now[i], u or initial, f"model of {i}")
        for i, own in now.items():
            others = [j for j in now if j != i]
            xi = {j: 6.0 * math.exp(-squared_distance(own, now[j]) / 5.0) / 5.0 for j in others}
            sums.append(sum(xi.values()))
            xi = {j: value / max(1.0, sums[-1]) for j, value in xi.items()}
            rest = 1 - sum(xi.values())
            clouds[i] = {n: rest * own[n] + sum(xi[j] * now[j][n] for j in others) for n in own}  # type: ignore[misc]
        assert played.after.clouds.keys() == clouds.keys(), f"clouds of {[*played.after.clouds]} and not {[*clouds]}"
        for i, cloud in clouds.items():
            assert_equal(played.after.clouds[i], cloud, f"cloud model of {i}", 1e-2)
        assert amp.method.global_model(amp.config, amp.fed, played.after) is None
    assert min(sums) < 1 < max(sums)


def maximum_mean_discrepancy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of rows, with the sum of four Gaussian kernels."""

    def kernel(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        apart = ((one.unsqueeze(1) - other.unsqueeze(0)) ** 2).sum(dim=2)
        return sum(torch.exp(-0.5 * apart / s) for s in (10, 15, 20, 50))  # type: ignore[return-value]

    return (kernel(a, a) + kernel(b, b) - 2 * kernel(a, b)).sum() / len(a) ** 2


@pytest.mark.parametrize("transfer", ["mmd", "kd"])
def test_fedphp(transfer: str, toy: Path) -> None:
    more = {"lambda": 0.3, "mu": 0.8, "transfer": transfer, "kd_temperature": 3.0, "rounds": 4, "active_clients": 3}
    php = world("fedphp", toy, **more)
    shared, times = php.fed.initial_params(), dict.fromkeys(range(4), 0)
    memories = dict.fromkeys(range(4), shared)
    for played in php.play(COHORTS):
        now: dict[int, Params] = {}
        for i, result in played.results.items():
            assert_equal(unpacked("model", played.payloads[i]), shared, f"sent to {i}")
            h = memories[i]

            def loss(p: Params, x: torch.Tensor, y: torch.Tensor, h: Params = h) -> torch.Tensor:
                if transfer == "mmd":
                    near = maximum_mean_discrepancy(cnn_features(p, x), cnn_features(h, x))
                else:
                    near = kl(cnn(h, x) / 3.0, cnn(p, x))
                return 0.7 * ce(cnn(p, x), y) + 0.3 * near

            now[i] = trained(php, played, i, shared, loss)
            mu = 0.8 * min(1.0, times[i] / (4 * 3 / 4))
            times[i] += 1
            memories[i] = {n: mu * h[n] + (1 - mu) * now[i][n] for n in h}
            assert_step(unpacked("model", result.upload), now[i], shared, f"upload of {i}")
            assert_step(dict(result.others["shared"]), now[i], shared, f"trained model of {i}")
            assert_step(result.model or {}, memories[i], h, f"private model of {i}")
            assert_equal(client_state(result).model, memories[i], f"memory of {i}", 1e-2)
            assert client_state(result).times == times[i]
        before, shared = shared, weighted_mean(list(now.values()), [len(php.clients[i].y) for i in now])
        assert_step(played.after.model, shared, before, f"w after round {played.number}")
        assert_equal(php.method.global_model(php.config, php.fed, played.after) or {}, shared, "global model")


#: A loss of 1 to 3 is known to 4e-16, so a difference of two over at least 1e-5 to this.
AFFINITY = 1e-10


@pytest.mark.parametrize("baseline", ["start", "trained"])
def test_fedfomo(baseline: str, toy: Path) -> None:
    """The random choice of peers is the method's own; that the best ones of those left are among them is replayed."""
    fomo = world("fedfomo", toy, peers=2, val_ratio=0.3, epsilon=0.0, omega=2.0, baseline=baseline)
    own = dict.fromkeys(range(4), fomo.fed.initial_params())
    began = dict[int, Params]()
    parts = {i: halves(fomo, i) for i in range(4)}
    known, affinity = dict[int, Params](), {i: dict[int, float]() for i in range(4)}
    moves = []
    for played in fomo.play(COHORTS):
        now: dict[int, Params] = {}
        told: dict[int, dict[int, float]] = {}
        for i, result in played.results.items():
            training, validation = parts[i]
            peers = {int(key.partition("/")[0][4:]) for key in played.payloads[i]}
            assert i not in peers and len(peers) == min(2, len(known.keys() - {i}))
            scores = sorted((affinity[i].get(m, 0.0) for m in known.keys() - {i}), reverse=True)
            assert sorted((affinity[i].get(m, 0.0) for m in peers), reverse=True) == pytest.approx(scores[: len(peers)])
            for m in peers:
                assert_equal(unpacked(f"peer{m}", played.payloads[i]), known[m], f"model of {m} sent to {i}", 1e-2)
            x, y = validation.batch(torch.arange(len(validation.y)))
            v = began[i] if baseline == "start" and peers and i in began else own[i]
            before = float(ce(cnn(v, x), y))
            judged = {m: known[m] for m in peers} | ({-1: own[i]} if v is not own[i] else {})
            rho_of = {
                m: (before - float(ce(cnn(w, x), y))) / (math.sqrt(squared_distance(w, v)) + 1e-5)
                for m, w in judged.items()
            }
            told[i] = {m: rho_of[m] for m in peers}
            better = {m: rho for m, rho in rho_of.items() if rho > 0}
            moves.append(len(better))
            began[i] = start = {
                name: value + sum(rho / sum(better.values()) * (judged[m][name] - value) for m, rho in better.items())
                for name, value in v.items()
            }
            part = replace(fomo, clients=tuple(training if k == i else data for k, data in enumerate(fomo.clients)))
            now[i] = trained(part, played, i, start, lambda p, x, y: ce(cnn(p, x), y))  # type: ignore[arg-type]
            assert_step(unpacked("model", result.upload), now[i], own[i], f"upload of {i}")
            assert_step(result.model or {}, now[i], own[i], f"model of {i}")
            assert_step(client_state(result).model, now[i], own[i], f"model kept by {i}")
            assert_equal(client_state(result).start, start if baseline == "start" else {}, f"start kept by {i}", 1e-2)
            sent = {int(m): float(rho) for m, rho in unpacked("affinity", result.upload).items()}
            assert sent == pytest.approx(told[i], rel=1e-6, abs=AFFINITY)
        own, known = own | now, known | now
        for i, heard in told.items():
            affinity[i] |= {m: affinity[i].get(m, 0.0) + rho for m, rho in heard.items()}
            kept = played.after.affinity[i]
            assert kept == pytest.approx(affinity[i], rel=1e-6, abs=AFFINITY), (
                f"affinities of {i}: {kept} and not {affinity[i]}"
            )
        for i, model in known.items():
            assert_equal(played.after.models[i], model, f"model of {i} on the server", 1e-2)
    # Some clients move; than what they have trained, some find nothing better.
    assert any(moves) and (baseline == "start" or not all(moves[3:]))


def halves(played: World, i: int, share: float = 0.3) -> tuple[DoubleData, DoubleData]:
    """A client's training and validation samples: `share` of them, by a permutation of the client's own."""
    data = played.clients[i]
    order = played.fed.rng.child("fedfomo").numpy("validation", i).permutation(len(data.y))
    held = round(share * len(data.y))
    cut = [torch.tensor(sorted(part.tolist())) for part in (order[held:], order[:held])]
    training, validation = (replace(data, indices=data.indices[at], y=data.y[at]) for at in cut)
    return training, validation
