"""The server's aggregation of generators and classifiers: its ramp, and how many steps the teachers answer at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contracts.test_methods import simulate, values_for
from trainables.building_blocks import generator_aggregation
from trainables.building_blocks.generator_aggregation import (
    GeneratorAggregation,
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


def test_how_many_steps_the_teachers_answer_at_once_changes_nothing(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of eight samples: all at once, or two and one."""
    ends = []
    for samples in (1024, 16):
        monkeypatch.setattr("trainables.building_blocks.generator_aggregation._CHUNK", samples)
        more = {"server_steps": 3, "server_batch_size": 8, "noise_dim": 8}
        ends.append(simulate("fedcg", toy, 1, **more)[0].progress.state)
    for name, tensor in ends[0].generator.items():
        torch.testing.assert_close(ends[1].generator[name], tensor)


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

    monkeypatch.setattr(generator_aggregation, "_CHUNK", bound)
    monkeypatch.setattr(generator_aggregation, "draw_noise", drawn)
    answers = list(generator_aggregation._Teachers(s.config, s.fed, uploads).batches(torch.full((4,), 0.25), s.fed.rng))
    assert asked == expected
    shapes = [(len(z), len(y), made.shape[:2], rho.shape) for z, y, made, rho in answers]
    assert shapes == [(8, 8, (4, 8), (4, 8, 4))] * 3
