"""FedPer, LG-FedAvg, Local Training and FedBABU as in PFLlib: which part of a model is shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainables.methods.published_code.pfllib import aggregated, descended, fine_tuned, loader, published
from tests.trainables.methods.replays.actual import assert_step, client_state, unpacked
from tests.trainables.methods.replays.crossed import part
from tests.trainables.methods.replays.plain import Params
from tests.trainables.methods.replays.test_replay_averages import COHORTS, plain_loss


@pytest.mark.parametrize(("name", "shares_head"), [("fedper", False), ("lgfedavg", True), ("local", None)])
def test_one_part_is_shared(name: str, shares_head: bool | None, toy: Path) -> None:
    """`clients/clientper.py`, `clients/clientlg.py`, `servers/serverper.py`, `servers/serverlocal.py` (487a29ea) and
    `servers/serverlg.py` (2b077c16). Everybody has the base or the head put in, which the server has averaged, and
    trains all of its model. No difference is named; the rounds of FedAvg of LG-FedAvg's paper are in neither."""
    ours = published(name, toy)
    initial = ours.fed.initial_params()
    own = dict.fromkeys(range(4), initial)
    shared = {} if shares_head is None else part(initial, of_head=shares_head)
    for played in ours.play(COHORTS):
        own = {i: model | shared for i, model in own.items()}  # everybody, as also those who are not drawn are sent it
        for i, result in played.results.items():
            before = own[i]
            own[i] = descended(before, loader(ours, played.number, i), ours.config.lr)
            kept = client_state(result)
            model = kept.model if shares_head is None else kept.private | unpacked("model", result.upload)
            assert_step(model, own[i], before, f"model of {i}")
        if shares_head is not None:
            sent = shared
            shared = aggregated(ours, {i: part(own[i], of_head=shares_head) for i in played.results})
            assert_step(played.after.shared, shared, sent, f"shared part after round {played.number}")


def test_fedbabu(toy: Path) -> None:
    """`clients/clientbabu.py` and `servers/serverbabu.py` (487a29ea). The head is never trained before the fine-tuning,
    which moves base and head.

    Named differences that no setting takes away, so that they stand in the loop: what is fine-tuned has the server's
    new base (in PFLlib the base that the client trained last, and once, after the last round)."""
    ours = published("fedbabu", toy, finetune_epochs=2)
    initial = ours.fed.initial_params()
    base, frozen = part(initial, of_head=False), part(initial, of_head=True)
    for played in ours.play(COHORTS):
        sent, clients = base, dict[int, Params]()
        for i, result in played.results.items():
            batches = loader(ours, played.number, i)
            clients[i] = descended(sent, batches, ours.config.lr, lambda p, x, y: plain_loss(p | frozen, x, y))
            assert_step(unpacked("model", result.upload), clients[i], sent, f"base of {i}")
        base = aggregated(ours, clients)
        assert_step(part(played.after.model, of_head=False), base, sent, f"base after round {played.number}")
        for i, (model, batches) in fine_tuned(ours, played, 2).items():
            assert_step(model, descended(base | frozen, batches, ours.config.lr), base | frozen, f"fine-tuned of {i}")
