"""FedBABU, Per-FedAvg and FedRoD: their modules, small batches, and classes that are not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.contracts.test_methods import simulate
from trainables.building_blocks.split_model import body_module, body_of, partly_trained
from trainables.methods import fedrod, perfedavg
from trainables.models import Model
from trainables.params import put, take

# -- FedBABU -----------------------------------------------------------------------------------------------------------


def test_partly_trained_modules_are_the_federations_architecture(toy: Path) -> None:
    s, _ = simulate("fedbabu", toy, 0)
    for part in ("head", "body"):
        module = partly_trained(s.fed, part)
        assert {n.startswith("head.") for n, p in module.named_parameters() if p.requires_grad} == {part == "head"}
        assert take(module).keys() == s.fed.initial_params().keys()
    assert partly_trained(s.fed, "full") is s.fed.network()


def test_a_body_alone_answers_features(toy: Path) -> None:
    s, _ = simulate("moon", toy, 0)
    model, x = s.fed.network(), s.data.clients[0].batch(torch.arange(6))[0]
    put(model, s.fed.initial_params())
    body = body_module(s.fed, "by hand")
    put(body, body_of(s.fed.initial_params()))
    assert isinstance(body, Model) and torch.equal(body.eval()(x), model.eval().features(x))


# -- Per-FedAvg --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("samples", "parts"), [(5, [3, 2]), (2, [1, 1]), (1, [1, 1])])
def test_perfedavg_divides_a_batch_and_uses_one_that_is_too_small_whole(samples: int, parts: list[int]) -> None:
    sizes = []

    def gradient(w: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        assert len(x) == len(y)
        sizes.append(len(x))
        return {"w": torch.ones(1)}, torch.tensor(0.0)

    perfedavg.meta_direction(
        perfedavg.Config(), gradient, {"w": torch.zeros(1)}, torch.zeros(samples, 1), torch.zeros(samples)
    )
    assert sizes == parts


def test_perfedavg_adapts_by_plain_sgd_at_alpha() -> None:
    config = perfedavg.Config(alpha=0.2, lr=0.7, adapt_steps=3, momentum=0.9, weight_decay=0.01, local_epochs=5)
    own = perfedavg.adapting(config)
    assert own is not None
    assert (own.lr, own.local_steps, own.local_epochs, own.momentum, own.weight_decay) == (0.2, 3, 0, 0.0, 0.0)
    assert perfedavg.adapting(replace(config, alpha=0.0)) is None


# -- FedRoD ------------------------------------------------------------------------------------------------------------


def test_a_class_without_samples_has_no_part_in_a_balanced_softmax_unless_it_is_not_balanced() -> None:
    counts = torch.tensor([5, 0, 2, 9])
    assert fedrod.log_prior(0.5, counts).exp().square().tolist() == pytest.approx([5, 0, 2, 9])
    assert fedrod.log_prior(0.0, counts).tolist() == [0.0] * 4


def test_fedrods_attacker_knows_what_is_sent(toy: Path) -> None:
    """Body and generic head are uploaded under the names they have in the client's network."""
    s, _ = simulate("fedrod", toy, 1)
    assert s.progress.sent == ("features", "head")
