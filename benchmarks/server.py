"""DFRD's server phase without a framework: the loops of the papers' releases, with and without frozen teachers.

Both take the round's uploads, label distribution and noise from the same streams as fedtune, so that all arms must
reach the same global model up to rounding. Equations as in `trainables/methods/dfrd.py`, at its defaults (targeted
transferability, gradient through the ensemble, mean squares in the diversity loss, moving average at the round's end).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import plain_models
from benchmarks.fingerprint import fingerprint
from trainables.building_blocks.server_distillation import generator_module
from trainables.params import unpack
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation
from trainables.wire import Params, Upload


class Round:
    """The first round of a DFRD federation up to the server phase: its uploads and its state."""

    def __init__(self, values: Mapping[str, Any], seed: int = 0) -> None:
        s = self.simulation = Simulation("dfrd", values, seed, torch.device("cpu"))
        self.config, self.state = s.config, s.progress.state
        self.rng = s.fed.rng.child("round", 1)
        self.uploads = []
        for client, samples in enumerate(s.data.clients):
            payload = s.method.download(s.config, s.fed, self.state, client)
            result = s.method.client(s.config, s.fed, payload, None, samples, self.rng.child("client", client))
            self.uploads.append(Upload(client, result.upload))


class Fedtune:
    """The method's own server function, again and again from the same state."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.round = Round(values)
        self.after: Any = None

    def run(self) -> None:
        r = self.round
        self.after = r.simulation.method.server(r.config, r.simulation.fed, r.state, r.uploads, r.rng.child("server"))

    def describe(self) -> dict[str, Any]:
        return {
            "model": fingerprint(self.after.model),
            "generator": statistics.median(self._generator_alone() for _ in range(3)),
        }

    def _generator_alone(self) -> float:
        """Seconds of the generator's own passes in one iteration."""
        c, fed = self.round.config, self.round.simulation.fed
        module = generator_module(c, fed, "alone")
        merged = torch.randn(c.server_batch_size, module.width)
        started = time.perf_counter()
        for _ in range(c.gen_steps):
            module.train()(merged).sum().backward()
        with torch.no_grad():
            for _ in range(2 * c.distill_steps):  # for the student's images and the moving average's
                module.eval()(merged)
        return time.perf_counter() - started


class Naive:
    """Teachers one after the other, contiguous, ReLU before pooling; `frozen`: without gradients of their weights and
    without graphs where no gradient is wanted. Not frozen, they gather gradients in every generator step, as in the
    releases."""

    def __init__(self, values: Mapping[str, Any], frozen: bool) -> None:
        self.frozen, self.setup = frozen, Round(values)
        self.c, self.student = self.setup.config, nn.Module()

    def run(self) -> None:
        c, setup = self.c, self.setup
        fed, rng = setup.simulation.fed, setup.rng.child("server")
        many = [unpack("model", u.payload) for u in setup.uploads]
        ensemble, probabilities = self._teachers(many)
        total = sum(fed.sizes)
        averaged = {
            name: sum(params[name] * (n / total) for params, n in zip(many, fed.sizes, strict=True)) for name in many[0]
        }
        student = self.student = plain_models.build(fed.model, fed.shape[0], averaged)  # type: ignore[arg-type]
        generator, ema = (
            plain_models.Generator(c.noise_dim, fed.shape[0]),
            plain_models.Generator(c.noise_dim, fed.shape[0]),
        )
        plain_models.load(generator, setup.state.generator)
        plain_models.load(ema, setup.state.ema)
        ema.eval()
        adam = torch.optim.Adam(generator.parameters(), lr=c.gen_lr, betas=(c.gen_beta1, c.gen_beta2))
        sgd = torch.optim.SGD(student.parameters(), lr=c.distill_lr, weight_decay=c.distill_weight_decay)
        for_generator, for_student, for_ema = (
            _Noise(c, probabilities, rng.child(name)) for name in ("generator", "distillation", "ema")
        )
        for _ in range(c.server_iters):
            generator.train()
            student.eval()
            for _ in range(c.gen_steps):
                z, y = for_generator.next()
                h = z * generator.embedding(y)
                images = generator(h)
                theirs = ensemble(images, y)
                with torch.set_grad_enabled(not self.frozen):
                    ours = student(images).detach()
                loss = self._generator_loss(theirs, ours, y, images, h)
                adam.zero_grad()
                loss.backward()
                adam.step()
            generator.eval()
            student.train()
            for _ in range(c.distill_steps):
                loss = torch.zeros(())
                for weight, source, noise in ((1.0, generator, for_student), (c.alpha, ema, for_ema)):
                    z, y = noise.next()
                    with torch.set_grad_enabled(not self.frozen):
                        images = source(z * source.embedding(y)).detach()
                        theirs = ensemble(images, y).detach()
                    loss = loss + weight * _kl(theirs, student(images), c.kd_temperature).mean()
                sgd.zero_grad()
                loss.backward()
                sgd.step()

    def _teachers(self, many: Sequence[Params]) -> tuple[Callable[[Tensor, Tensor], Tensor], Tensor]:
        """The weighted sum of the clients' logits as a function of images and labels, and p(y) `(C,)`."""
        fed = self.setup.simulation.fed
        teachers = [plain_models.build(fed.model, fed.shape[0], params).eval() for params in many]
        if self.frozen:
            for teacher in teachers:
                teacher.requires_grad_(False)
        counts = torch.stack([u.payload["label_counts"] for u in self.setup.uploads]).double()
        tau = torch.where(counts.sum(0) > 0, counts / counts.sum(0).clamp(min=1e-300), 1 / len(counts)).float()

        def ensemble(images: Tensor, y: Tensor) -> Tensor:
            total: Tensor | Any = sum(tau[i, y][:, None] * teacher(images) for i, teacher in enumerate(teachers))
            return total

        return ensemble, (counts.sum(0) / counts.sum()).float()

    def _generator_loss(self, theirs: Tensor, ours: Tensor, y: Tensor, images: Tensor, h: Tensor) -> Tensor:
        c = self.c
        mask = (theirs.argmax(1) == y) & (ours.argmax(1) != y)
        transfer = -(mask * _kl(ours, theirs, c.kd_temperature)).sum() / len(y)
        flat = images.flatten(1)
        apart = (flat[:, None] - flat[None]).square().mean(2) * (h[:, None] - h[None]).square().mean(2)
        return F.cross_entropy(theirs, y) + c.beta_tran * transfer + c.beta_div * torch.exp(-apart.mean())

    def describe(self) -> dict[str, Any]:
        return {"model": fingerprint(self.student.state_dict())}


class _Noise:
    """z ~ N(0, I) and y ~ p(y) of one stream."""

    def __init__(self, config: Any, probabilities: Tensor, rng: Rng) -> None:
        self.config, self.probabilities, self.generator = config, probabilities, rng.torch("noise")

    def next(self) -> tuple[Tensor, Tensor]:
        c = self.config
        z = torch.randn(c.server_batch_size, c.noise_dim, generator=self.generator)
        return z, torch.multinomial(self.probabilities, c.server_batch_size, replacement=True, generator=self.generator)


def _kl(target: Tensor, other: Tensor, temperature: float) -> Tensor:
    a, b = F.log_softmax(target / temperature, 1), F.log_softmax(other / temperature, 1)
    return (a.exp() * (a - b)).sum(1)
