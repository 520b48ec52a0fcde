"""What DFRD, FedFTG, DENSE and DHF have in common: sub-model training, a base's average, alternating phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import Round, World, assert_close, assert_equal, assert_step, unpacked
from tests.trainables.methods.replays.networks import CLASSES, cnn_features, head, images_of, learn, merged
from tests.trainables.methods.replays.plain import Adam, Params, Sgd, ce, drawn_batches, gradients, sgd_steps, watched
from tests.trainables.methods.replays.submodels import Kept, cut, kept_channels, put_together, width
from trainables.rng import Rng

#: How each base chooses channels.
CHOICE = {"none": "static", "fedavg": "static", "heterofl": "static", "feddropout": "random", "fedrolex": "rolling"}


@dataclass(frozen=True)
class Part:
    """What a client made of its sub-model: channels, trained weights, the batches it drew, the classes it holds."""

    kept: Kept
    trained: Params
    drawn: list[Tensor]
    held: Tensor


def trained_parts(
    world: World,
    played: Round,
    model: Params,
    base: str,
    rho: int,
    own: Mapping[int, Params] | None = None,
    watch: Callable[[int, list[Tensor]], None] = lambda client, entering: None,
) -> dict[int, Part]:
    """The clients' steps on `CE(f(x; θ_i), y)` from their sub-models of `model`, compared with the payloads.

    `own` are first weights of clients that are sent none. `watch` is shown what enters the normalisation layers."""
    c, parts = world.config, {}
    for i, result in played.results.items():
        data, rate = world.clients[i], width(i, len(world.clients), rho)
        how = CHOICE[base] + (" backward" if base == "fedrolex" and getattr(c, "roll", "forward") == "backward" else "")
        kept = kept_channels(how, rate, played.number, i, world.fed.rng)
        sent = cut(model, kept) if own is None else {}
        start = sent if own is None else own[i]
        drawn = drawn_batches(data, c.local_steps, c.batch_size, world.client_rng(played.number, i).torch("batches"))
        held = torch.tensor([int((data.y == j).sum()) > 0 for j in range(CLASSES)])

        def loss_of(
            p: Params, x: Tensor, y: Tensor, factor: float = 1 / rate, held: Tensor = held, i: int = i
        ) -> Tensor:
            entering: list[Tensor] = []
            logits = head(p, cnn_features(p, x, factor, entering))
            watch(i, [value.detach() / factor for value in entering])
            return ce(logits * held if c.masked_ce else logits, y)

        trained, losses = sgd_steps(start, data, drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
        assert_equal(unpacked("model", played.payloads[i]), sent, f"download of {i}")
        assert_step(unpacked("model", result.upload), trained, start, f"upload of {i}")
        assert result.model is not None and result.loss is not None
        assert_step(result.model, trained, start, f"model of {i}")
        assert_close(result.loss, sum(losses) / len(losses), f"loss of {i}")
        if c.own_class_rows_only:
            assert torch.equal(result.upload["owned"], held)
        parts[i] = Part(kept, trained, drawn, held)
    return parts


def averaged(world: World, model: Params, parts: Mapping[int, Part]) -> Params:
    """Eq. (1), clients weighted by their sample counts or alike."""
    c = world.config
    weights = {i: float(len(world.clients[i].y)) if c.agg_weight == "samples" else 1.0 for i in parts}
    triples = [(part.kept, part.trained, weights[i]) for i, part in parts.items()]
    return put_together(model, triples, [part.held for part in parts.values()] if c.own_class_rows_only else None)


@dataclass(frozen=True)
class Batch:
    """Noise, labels, merged vectors, images in [-1, 1], and images as models see them."""

    z: Tensor
    y: Tensor
    h: Tensor
    s: Tensor
    seen: Tensor


class Draws:
    """`z ~ N(0, I)`, `y ~ p(y)` from one stream; `phase` is called where a phase begins."""

    def __init__(self, config: Any, p_y: Tensor, rng: Rng, name: str) -> None:
        self.config, self.p_y, self.random = config, p_y, rng.child(name).torch("noise")
        self.phase()

    def phase(self) -> None:
        self.held: tuple[Tensor, Tensor] | None = None

    def next(self) -> tuple[Tensor, Tensor]:
        if self.held is None or (self.config.resample_noise and not self.config.share_noise):
            z = torch.randn(self.config.server_batch_size, self.config.noise_dim, generator=self.random)
            self.held = z, torch.multinomial(self.p_y, len(z), replacement=True, generator=self.random)
        return self.held


def made(world: World, generator: Params, drawn: tuple[Tensor, Tensor], training: bool) -> Batch:
    """The images of a generator on noise and labels."""
    z, y = drawn
    h = merged(generator, z, y, world.config.merge_op)
    s = seen = images_of(generator, h, training)
    if world.config.renormalise_synthetic:
        mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (world.fed.mean, world.fed.std))
        seen = ((s + 1) / 2 - mean) / std
    return Batch(z, y, h, s, seen)


def alternate(
    world: World,
    model: Params,
    generator: Params,
    p_y: Tensor,
    rng: Rng,
    generator_loss: Callable[[Batch, Params, Params], Tensor],
    student_loss: Callable[[Batch, Params], Tensor],
    between: Callable[[int, Params], None] = lambda iteration, w: None,
) -> tuple[Params, Params]:
    """I times: I_g Adam steps on w (in training mode), then I_d SGD steps on θ on images of w in evaluation mode.

    `generator_loss(batch, w, θ)`, `student_loss(batch, θ)`; `between` is called after each generator phase."""
    c = world.config
    theta, w = dict(model), dict(generator)
    of_generator = Draws(c, p_y, rng, "generator")
    of_student = of_generator if c.share_noise else Draws(c, p_y, rng, "distillation")

    def fresh() -> tuple[Adam, Sgd]:
        return Adam(c.gen_lr, (c.gen_beta1, c.gen_beta2)), Sgd(c.distill_lr, c.distill_momentum, c.distill_weight_decay)

    adam, sgd = fresh()
    for iteration in range(c.server_iters):
        of_generator.phase()
        if c.reset_optim_each_phase:
            adam, sgd = fresh()
        for _ in range(c.gen_steps):
            drawn = of_generator.next()
            learn(w, adam, lambda here, drawn=drawn: generator_loss(made(world, here, drawn, True), here, theta))
        between(iteration, w)
        if not c.share_noise:
            of_student.phase()
        if c.reset_optim_each_phase:
            adam, sgd = fresh()
        for _ in range(c.distill_steps):
            batch = made(world, w, of_student.next(), False)
            here = watched(theta)
            sgd.step(theta, gradients(student_loss(batch, here), here))
    return theta, w
