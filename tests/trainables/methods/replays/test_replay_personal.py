"""FedPer, LG-FedAvg (also with clients of two architectures) and local training, three rounds: what is shared, what
each client keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainables.methods.replays.actual import (
    assert_close,
    assert_equal,
    assert_step,
    client_state,
    unpacked,
    world,
)
from tests.trainables.methods.replays.crossed import part
from tests.trainables.methods.replays.plain import Params, Sgd, ce, drawn_batches, sgd_steps, weighted_mean
from tests.trainables.methods.replays.test_replay_prototypes import DEEP_AND_NOT, first_models, logits_of


@pytest.mark.parametrize(
    ("name", "values"),
    [("fedper", {}), ("lgfedavg", {}), ("local", {}), ("lgfedavg", DEEP_AND_NOT)],
    ids=["fedper", "lgfedavg", "local", "mixed"],
)
def test_personal_models(name: str, values: dict[str, Any], toy: Path) -> None:
    """FedPer shares the extractor, LG-FedAvg the head, local training nothing."""
    personal = world(name, toy, **values)
    c, initial = personal.config, personal.fed.initial_params()
    shares_head = {"fedper": False, "lgfedavg": True}.get(name)

    def shared_of(model: Params) -> Params:
        return {} if shares_head is None else part(model, of_head=shares_head)

    shared, own = shared_of(initial), first_models(personal) if values else dict.fromkeys(range(4), initial)
    for played in personal.play(((0, 2, 3), (0, 1, 3), (1, 2, 3))):
        for i, result in played.results.items():
            assert_equal(unpacked("model", played.payloads[i]), shared, f"sent to {i}")
            data, start = personal.clients[i], own[i] | shared
            drawn = drawn_batches(
                data, c.local_steps, c.batch_size, personal.client_rng(played.number, i).torch("batches")
            )
            own[i], losses = sgd_steps(
                start, data, drawn, lambda p, x, y: ce(logits_of(p, x), y), Sgd(c.lr, c.momentum, c.weight_decay)
            )
            private = {key: value for key, value in own[i].items() if key not in shared}
            kept = client_state(result).model if shares_head is None else client_state(result).private
            assert_step(kept, private, start, f"kept by {i}")
            assert result.model is not None and result.loss is not None
            assert_step(result.model, own[i], start, f"model of {i}")
            if shares_head is None:
                assert not result.upload
            else:
                assert_step(unpacked("model", result.upload), shared_of(own[i]), shared, f"upload of {i}")
            assert_close(result.loss, sum(losses) / len(losses), f"loss of {i}")
        if shares_head is not None:
            before = shared
            shared = weighted_mean(
                [shared_of(own[i]) for i in played.results], [len(personal.clients[i].y) for i in played.results]
            )
            assert_step(played.after.shared, shared, before, f"shared after round {played.number}")
        assert personal.method.global_model(c, personal.fed, played.after) is None
