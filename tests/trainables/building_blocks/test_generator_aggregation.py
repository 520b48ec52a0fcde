"""The server's aggregation of generators and classifiers: its ramp, and how many steps the teachers answer at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.test_methods import simulate, values_for
from trainables.building_blocks import generator_aggregation
from trainables.building_blocks.generator_aggregation import (
    GeneratorAggregation,
    beside,
    draw_noise,
    ramp,
)
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload


def test_ramp_starts_at_zero_unless_there_is_none() -> None:
    assert [ramp(r, 4, 1.0) for r in (1, 2, 3, 4)] == [0.0, 0.25, 0.5, 0.75]
    assert ramp(3, 4, 3.0) == 0.125 and ramp(1, 4, 0.0) == 1.0


def uploads_of(toy: Path, **values: object) -> tuple[Simulation, list[Upload]]:
    simulation = Simulation("fedmdcg", values_for("fedmdcg", toy, **values), 3, torch.device("cpu"))
    m, s = simulation.method, simulation
    return s, [
        Upload(
            i,
            m.client(
                s.config, s.fed, m.download(s.config, s.fed, s.progress.state, i), None, data, s.fed.rng.child(i)
            ).upload,
        )
        for i, data in enumerate(s.data.clients)
    ]


@pytest.mark.parametrize("name", ["fedcg", "fedmdcg"])
def test_for_how_many_steps_frozen_generators_answer_at_once_changes_nothing(
    name: str, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps of eight samples: all at once, or two and one. In FedMD-CG's second round clients ask one too, for
    noise of an odd size, whose draws must not run on from one step into the next."""
    ends = []
    for samples in (1024, 16):
        monkeypatch.setattr("trainables.building_blocks.generator_aggregation.AT_ONCE", samples)
        more = {"server_steps": 3, "server_batch_size": 8, "local_steps": 3, "batch_size": 8}
        more["noise_dim"] = 7 if name == "fedmdcg" else 8
        ends.append(simulate(name, toy, 2, **more)[0].progress.state)
    for name, tensor in ends[0].generator.items():
        torch.testing.assert_close(ends[1].generator[name], tensor)


def test_classifiers_beside_one_another_answer_as_each_by_itself() -> None:
    """Features of all, or of each; two linear layers with and without a ReLU between them, and what is not known."""
    for between in ([], [nn.ReLU()], [nn.Tanh()]):
        heads = [nn.Sequential(nn.Linear(5, 6), *between, nn.Linear(6, 3)).double() for _ in range(4)]
        for x in (torch.randn(2, 5).double(), torch.randn(4, 2, 5).double()):
            each = x.expand(4, 2, 5)
            expected = torch.stack([head(own) for head, own in zip(heads, each, strict=True)])
            torch.testing.assert_close(beside(heads)(x), expected)
    torch.testing.assert_close(beside([heads[0][0]])(x[:1]), heads[0][0](x[:1]))


def test_classifiers_are_one_product_unless_they_have_a_forward_of_their_own() -> None:
    """One that computes in bfloat16 has one. Of a product the weights are constants."""
    heads = [nn.Linear(3, 2) for _ in range(2)]
    x = torch.randn(2, 4, 3)
    one = beside(heads)(x)
    assert not one.requires_grad
    for head in heads:
        head.forward = lambda given, plain=head.forward: 2 * plain(given)  # type: ignore[method-assign]
    own = beside(heads)(x)
    assert own.requires_grad
    torch.testing.assert_close(own, 2 * one)


@pytest.mark.parametrize(
    ("bound", "expected"), [(1024, [24]), (16, [16, 8]), (23, [16, 8]), (8, [8] * 3), (5, [8] * 3)]
)
def test_teachers_answer_for_as_many_steps_as_the_bound_holds_and_for_one_at_least(
    bound: int, expected: list[int], toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps of eight samples."""
    s, uploads = uploads_of(toy, server_steps=3)
    asked = []

    def drawn(config: GeneratorAggregation, samples: int, *more: Any) -> Tensor:
        asked.append(samples)
        return draw_noise(config, samples, *more)

    monkeypatch.setattr(generator_aggregation, "AT_ONCE", bound)
    monkeypatch.setattr(generator_aggregation, "draw_noise", drawn)
    answers = list(generator_aggregation._Teachers(s.config, s.fed, uploads).batches(torch.full((4,), 0.25), s.fed.rng))
    assert asked == expected
    shapes = [(len(z), len(y), made.shape[:2], rho.shape) for z, y, made, rho in answers]
    assert shapes == [(8, 8, (4, 8), (4, 8, 4))] * 3
