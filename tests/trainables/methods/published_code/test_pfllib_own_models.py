"""FedAMP, FedPHP and FedFomo as in PFLlib: a model of its own for every client."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.published_code.pfllib import aggregated, descended, loader, published
from tests.trainables.methods.replays.actual import World, assert_equal, assert_step, client_state, unpacked
from tests.trainables.methods.replays.networks import cnn, cnn_features
from tests.trainables.methods.replays.plain import Params, ce
from tests.trainables.methods.replays.test_replay_models import halves


def flat(model: Params) -> Tensor:
    """All parameters in one row."""
    return torch.cat([value.reshape(-1) for value in model.values()])


def attended(i: int, models: dict[int, Params], uploaded: dict[int, Params], alpha: float, sigma: float) -> Params:
    """What FedAMP's server makes for client i: the round's uploads by attention, and the rest of 1 of its own."""
    coef = dict.fromkeys(uploaded, 0.0)
    for j, other in uploaded.items():
        if j != i:
            sub = flat(models[i]) - flat(other)
            coef[j] = alpha * math.exp(-float(torch.dot(sub, sub)) / sigma) / sigma
    rest = 1 - sum(coef.values())
    mixed = {name: torch.zeros_like(value) for name, value in models[i].items()}
    for j, other in uploaded.items():
        mixed = {name: mixed[name] + coef[j] * other[name] for name in mixed}
    return {name: mixed[name] + rest * models[i][name] for name in mixed}


def test_fedamp(toy: Path) -> None:
    """`clients/clientamp.py` and `servers/serveramp.py` (487a29ea), with an alpha so small that no row is scaled and
    the same clients in every round, as one who was not drawn has another cloud model in PFLlib.

    Named differences that stand in the loop: training starts from u, and the penalty is the paper's, λ/2α ‖w - u‖², of
    which there is none as long as there is no u."""
    alpha, lambda_, sigma = 0.8, 1.3, 2.0
    ours = published("fedamp", toy, alpha=alpha, reach=sigma, **{"lambda": lambda_})
    u, models = dict[int, Params](), dict.fromkeys(range(4), ours.fed.initial_params())
    for played in ours.play(((0, 2, 3),) * 3):
        for i, result in played.results.items():
            cloud = u.get(i)
            start = cloud or models[i]

            def loss_of(p: Params, x: Tensor, y: Tensor, cloud: Params | None = cloud) -> Tensor:
                near = sum(((p[name] - cloud[name]) ** 2).sum() for name in p) if cloud else 0.0
                return ce(cnn(p, x), y) + 0.5 * lambda_ / alpha * near

            models[i] = descended(start, loader(ours, played.number, i), ours.config.lr, loss_of)
            assert_step(unpacked("model", result.upload), models[i], start, f"upload of {i}")
        uploaded = {i: models[i] for i in played.results}
        u = {i: attended(i, models, uploaded, alpha, sigma) for i in uploaded}
        for i in uploaded:
            assert_step(played.after.clouds[i], u[i], models[i], f"cloud model of {i}")


def test_pfllibs_fedamp_is_local_training(toy: Path) -> None:
    """The same files, followed to the letter: the penalty is the norm of tensors that carry no gradient, so that u
    reaches no client. What is left is our Local Training, which FedAMP's docstring says."""
    ours = published("local", toy)
    models = dict.fromkeys(range(4), ours.fed.initial_params())
    u = dict(models)
    for played in ours.play(((0, 2, 3),) * 3):
        for i, result in played.results.items():
            before = models[i]

            def loss_of(p: Params, x: Tensor, y: Tensor, u: Params = u[i]) -> Tensor:
                return ce(cnn(p, x), y) + 0.5 * 50.0 / 0.8 * torch.norm(flat(p).detach() - flat(u))

            models[i] = descended(before, loader(ours, played.number, i), ours.config.lr, loss_of)
            assert_step(client_state(result).model, models[i], before, f"model of {i}")
        u = {i: attended(i, models, {j: models[j] for j in played.results}, 0.8, 2.0) for i in models}


def discrepancy(x: Tensor, y: Tensor) -> Tensor:
    """FedPHP's MMD with four Gaussian kernels."""
    xx, yy, xy = x @ x.t(), y @ y.t(), x @ y.t()
    rx, ry = xx.diag()[None].expand_as(xx), yy.diag()[None].expand_as(yy)
    apart = rx.t() + rx - 2 * xx, ry.t() + ry - 2 * yy, rx.t() + ry - 2 * xy
    within, other, between = (sum(torch.exp(-0.5 * d / a) for a in (10, 15, 20, 50)) for d in apart)
    return (within + other - 2 * between).mean()  # type: ignore[operator]


@pytest.mark.parametrize("mu", [0.0, 0.9])
def test_fedphp(mu: float, toy: Path) -> None:
    """`clients/clientphp.py` and `servers/serverphp.py` (487a29ea): in the first round, whatever μ, there is no
    difference, as the received model, the client's own and its memory are the initial model.

    With μ = 0 the second round shows the named difference that no setting takes away: R is the MMD to the memory h, the
    model that the client trained last, and in PFLlib that to the received model. The other two need μ > 0."""
    ours = published("fedphp", toy, transfer="mmd", mu=mu, **{"lambda": 0.3})
    model = ours.fed.initial_params()
    memory = dict.fromkeys(range(4), model)
    for played in ours.play(((0, 1, 2, 3), (0, 2, 3))[: 2 if mu == 0 else 1]):
        sent, clients = model, dict[int, Params]()
        for i, result in played.results.items():

            def loss_of(p: Params, x: Tensor, y: Tensor, near: Params = memory[i]) -> Tensor:
                apart = discrepancy(cnn_features(p, x), cnn_features(near, x))
                return ce(cnn(p, x), y) * (1 - 0.3) + apart * 0.3

            clients[i] = descended(sent, loader(ours, played.number, i), ours.config.lr, loss_of)
            assert_step(unpacked("model", result.upload), clients[i], sent, f"upload of {i}")
            assert_step(result.model or {}, clients[i], sent, f"model of {i}")
        memory |= clients
        model = aggregated(ours, clients)
        assert_step(played.after.model, model, sent, f"model after round {played.number}")


#: So large that everybody trains on a whole batch of 16, and so small that the rest fits into one; 0.2 in PFLlib.
VALIDATION = 0.15


def judged(of: World, i: int, model: Params) -> float:
    """The mean over the batches of a client's validation share; it fits into one here."""
    validation = halves(of, i, VALIDATION)[1]
    x, y = validation.batch(torch.arange(len(validation.y)))
    assert len(y) <= of.config.batch_size
    return float(ce(cnn(model, x), y))


def test_fedfomo(toy: Path) -> None:
    """`clients/clientfomo.py` and `servers/serverfomo.py` (487a29ea), where everybody is drawn and sent everybody's
    model, its own among them, which is judged too: against the model that its training began from.

    Named differences that stand in the loop: who is held out; and where nothing is better, the client goes on from
    where it began, as the authors' code does (PFLlib: from what it has trained). What is held out is one batch, so that
    PFLlib's mean over batches is that over samples."""
    ours = published("fedfomo", toy, peers=3, val_ratio=VALIDATION, epsilon=0.0, batch_size=16)
    model = dict.fromkeys(range(4), ours.fed.initial_params())
    old, known = dict(model), dict[int, Params]()
    affinity = torch.eye(4)
    moves = []
    for played in ours.play(((0, 1, 2, 3),) * 3):
        for i, result in played.results.items():
            gains = {m: judged(ours, i, old[i]) - judged(ours, i, other) for m, other in known.items()}
            weight = {m: gain / (float(torch.norm(flat(known[m]) - flat(old[i]))) + 1e-5) for m, gain in gains.items()}
            for m, value in weight.items():
                affinity[i, m] += value
            positive = {m: max(value, 0.0) for m, value in weight.items()}
            total = sum(positive.values())
            moves.append(sum(value > 0 for m, value in positive.items() if m != i))
            if total > 0:
                model[i] = {
                    name: sum(value / total * known[m][name] for m, value in positive.items())  # type: ignore[misc]
                    for name in model[i]
                }
            elif known:
                model[i] = old[i]
            before = old[i] = model[i]
            training = tuple(halves(ours, k, VALIDATION)[0] for k in range(4))
            model[i] = descended(before, loader(replace(ours, clients=training), played.number, i), ours.config.lr)
            assert_step(unpacked("model", result.upload), model[i], before, f"upload of {i}")
        known = dict(model)
        for i in played.results:
            told = {str(m): torch.tensor(value) for m, value in played.after.affinity.get(i, {}).items()}
            expected = {str(m): affinity[i, m] for m in known if m != i} if played.number > 1 else {}
            assert_equal(told, expected, f"affinities of {i}")
    assert any(moves), "nobody is moved by anybody"
