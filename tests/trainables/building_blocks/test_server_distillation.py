"""When server-side distillation draws noise and labels, in one alternation and from one to the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import CPU, same, values_for
from tests.toy import write_toy
from trainables.building_blocks.server_distillation import Batch, Phases, label_distribution
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload
from trainables.work import counting


@pytest.mark.parametrize("counts", [None, torch.tensor([[1, 4, 0], [3, 0, 0]])])
def test_shares_and_label_probabilities_are_single_precision(counts: torch.Tensor | None) -> None:
    """They are sent, and draws by them are the same whether counts were uploaded or not."""
    found = label_distribution(counts, 2, 3)
    assert found.weights.dtype == found.probabilities.dtype == torch.float32


def test_shares_and_label_probabilities_follow_the_counts() -> None:
    """DFRD Sec. 3.2: τ_{i,y} = n_i^y / Σ_j n_j^y, p(y) = Σ_j n_j^y / n; class 2 has no data."""
    found = label_distribution(torch.tensor([[1, 4, 0], [3, 0, 0]]), 2, 3)
    np.testing.assert_allclose(found.weights.numpy(), [[0.25, 1.0, 0.5], [0.75, 0.0, 0.5]])
    np.testing.assert_allclose(found.probabilities.numpy(), [0.5, 0.5, 0.0])


def test_without_any_sample_counted_all_are_equal() -> None:
    found = label_distribution(torch.zeros(2, 4, dtype=torch.int64), 2, 4)
    assert found.weights.tolist() == [[0.5] * 4] * 2 and found.probabilities.tolist() == [0.25] * 4
    one = label_distribution(torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0]]), 2, 4)
    assert one.weights[:, 2].tolist() == [1.0, 0.0] and one.probabilities.tolist() == [0.0, 0.0, 1.0, 0.0]


def test_phases_begin_with_the_weights_they_are_given(toy: Path) -> None:
    """The modules are shared by all rounds, and hold what the last one left."""
    s = Simulation("dfrd", values_for("dfrd", toy), 3, CPU)
    model = {name: tensor + 1 for name, tensor in s.fed.initial_params().items()}
    generator = {name: tensor + 1 for name, tensor in s.progress.state.generator.items()}
    phases = Phases(s.config, s.fed, s.fed.network(role="student"), model, generator, torch.ones(4) / 4, s.fed.rng)
    assert same(dict(phases.student.state_dict()), model)
    assert same(dict(phases.generator.state_dict()), generator)


@pytest.mark.parametrize("name", ["dense", "dfrd", "fedftg"])
def test_the_scaler_of_the_configuration_is_that_of_the_teachers(name: str, toy: Path) -> None:
    values = values_for(name, toy, base="heterofl", rho=5, batch_norm="running")
    s = Simulation(name, values, 3, CPU)
    m, state = s.method, s.progress.state
    uploads = [
        Upload(i, m.client(s.config, s.fed, m.download(s.config, s.fed, state, i), None, d, s.fed.rng.child(i)).upload)
        for i, d in enumerate(s.data.clients)
    ]
    ends = [m.server(replace(s.config, scaler=on), s.fed, state, uploads, s.fed.rng).generator for on in (True, False)]
    assert not same(*ends)


@pytest.mark.parametrize("reset", [True, False])
def test_the_optimisers_of_a_phase_are_new_where_that_is_asked(reset: bool, toy: Path) -> None:
    """The student's parameters ask for gradients in its own phase only."""
    settings = {"reset_optim_each_phase": reset, "distill_momentum": 0.9, "gen_steps": 2, "distill_steps": 3}
    s = Simulation("dfrd", values_for("dfrd", toy, **settings), 3, CPU)
    model, generator = s.fed.initial_params(), s.progress.state.generator
    phases = Phases(s.config, s.fed, s.fed.network(role="student"), model, generator, torch.ones(4) / 4, s.fed.rng)
    used: list[list[object]] = [[], []]

    def of_generator(batch: Batch) -> torch.Tensor:
        used[0].append(phases.adam)
        assert not any(p.requires_grad for p in phases.student.parameters()) and not phases.student.training
        return phases.student(batch.seen).square().mean()

    def of_student(batch: Batch) -> torch.Tensor:
        used[1].append(phases.sgd)
        assert all(p.requires_grad for p in phases.student.parameters()) and phases.student.training
        return phases.student(batch.seen).square().mean()

    for _ in range(2):
        phases.generator_phase(of_generator)
        phases.distillation_phase(of_student)
    numbers = [[[id(one) for one in each].index(id(other)) for other in each] for each in used]
    assert numbers == ([[0, 0, 2, 2], [0, 0, 0, 3, 3, 3]] if reset else [[0] * 4, [0] * 6])


def test_the_generators_phase_leaves_the_students_statistics(toy: Path) -> None:
    """The student judges images; only its own phase moves its running statistics."""
    more = {"model": "cnn_small", "batch_norm": "running", "gen_steps": 2, "distill_steps": 2}
    s = Simulation("dfrd", values_for("dfrd", toy, **more), 3, CPU)
    model, generator = s.fed.initial_params(), s.progress.state.generator
    phases = Phases(s.config, s.fed, s.fed.network(role="student"), model, generator, torch.ones(4) / 4, s.fed.rng)
    phases.generator_phase(lambda batch: phases.student(batch.seen).square().mean())
    assert same(dict(phases.student.state_dict()), model)
    phases.distillation_phase(lambda batch: phases.student(batch.seen).square().mean())
    after = phases.student.state_dict()
    assert not torch.equal(after["norms.0.running_mean"], model["norms.0.running_mean"])


@pytest.mark.parametrize("name", ["dense", "dfrd", "fedftg"])
def test_in_data_free_mode_the_model_is_sent_before_the_first_round_only(name: str, toy: Path) -> None:
    s = Simulation(name, values_for(name, toy, base="none"), 3, CPU)
    sent = [s.method.download(s.config, s.fed, replace(s.progress.state, round=done), 0) for done in (0, 1, 2)]
    assert {key.partition("/")[0] for key in sent[0]} == {"model"} and sent[1] == sent[2] == {}
    assert all(torch.equal(sent[0][f"model/{key}"], value) for key, value in s.progress.state.model.items())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "abcde fghij"),
        ({"resample_noise": False}, "aabbb ccddd"),
        ({"share_noise": True}, "aaaaa bbbbb"),
        ({"share_noise": True, "resample_noise": False}, "aaaaa bbbbb"),
    ],
)
def test_draws_of_two_alternations(settings: dict[str, bool], expected: str, toy: Path) -> None:
    """Two generator and three distillation steps each; equal letters are equal draws of noise and labels."""
    s = Simulation("dfrd", values_for("dfrd", toy, gen_steps=2, distill_steps=3, **settings), 3, CPU)
    phases = Phases(
        s.config,
        s.fed,
        s.fed.network(),
        s.fed.initial_params(),
        s.progress.state.generator,
        torch.ones(4) / 4,
        s.fed.rng,
    )
    drawn: list[tuple[list[float], list[int]]] = []

    def note(batch: Batch) -> torch.Tensor:
        drawn.append((batch.z.flatten().tolist(), batch.y.tolist()))
        images = batch.images if torch.is_grad_enabled() and batch.images.requires_grad else phases.student(batch.seen)
        return images.square().mean()

    for _ in range(2):
        phases.generator_phase(note)
        phases.distillation_phase(note)
    first = [drawn.index(pair) for pair in drawn]
    letters = ["abcdefghij"[sorted(set(first)).index(i)] for i in first]
    assert "".join(letters[:5]) + " " + "".join(letters[5:]) == expected


@pytest.mark.parametrize(
    ("name", "more"), [("dfrd", {}), ("dfrd", {"use_ema": False}), ("dfrd", {"gen_steps": 3}), ("fedftg", {})]
)
def test_the_passes_of_a_server_are_what_its_models_compute(name: str, more: dict[str, object], tmp_path: Path) -> None:
    """What a model costs beside another one: the generator computes the same for both, and so does their first layer,
    by which a student has no gradient of the images."""
    toy = write_toy(tmp_path, size=28)

    def work(model: str) -> tuple[float, float]:
        values = {"model": model, "clients": 2, "base": "fedavg", "local_steps": 1, "server_batch_size": 2}
        s = Simulation(name, values_for(name, toy, **values, server_iters=2, distill_steps=1, **more), 0, CPU)
        m, state = s.method, s.progress.state
        uploads = [
            Upload(i, m.client(s.config, s.fed, m.download(s.config, s.fed, state, i), None, d, s.fed.rng).upload)
            for i, d in enumerate(s.data.clients)
        ]
        with counting() as served:
            m.server(s.config, s.fed, state, uploads, s.fed.rng)
        with torch.no_grad(), counting() as whole:
            s.fed.network()(torch.zeros(1, 1, 28, 28))
        return served.multiply_adds, s.config.server_passes(2) * whole.multiply_adds

    (counted, said), (other, of_other) = work("cnn"), work("cnn_small")
    assert counted - other == said - of_other > 0
