"""Running statistics (`batch_norm: running`) under every method: trained as without them, sent where the extractor is,
counted, saved and loaded, and refused where there is nothing to normalise."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from search_spaces.errors import UserError
from tests.contracts.test_methods import CPU, METHODS, put_state, same, simulate, state_of, untimed, values_for
from trainables import registry
from trainables.models import is_statistic
from trainables.simulation import attack, evaluation
from trainables.simulation.rounds import Simulation

#: A small model with normalisation. DHF's clients, and those of methods in its federation, have models without it by
#: default, and only this one of theirs has it.
NORMALISED: dict[str, dict[str, Any]] = {
    name: {key: "cnn" for key in ("model", "deep_model", "shared_model") if key in registry.declared(name)}
    if "deep_model" in registry.declared(name)
    else {"model": "lenet_code"}
    for name in METHODS
}


def widths_of(name: str) -> dict[str, Any]:
    """Clients of several widths where the method has them."""
    if registry.method(name).widths != "any":
        return {}
    return {"rho": 5} | ({"base": "fedrolex"} if "base" in registry.declared(name) else {})


#: Methods whose clients have one architecture by default, with two.
TWO = [("lgfedavg", {"nu": 0.5}), ("fedgen", {"nu": 0.5, "share": "head"})]


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("name", "two"), [*((name, {}) for name in METHODS), *TWO], ids=lambda v: v if isinstance(v, str) else "-".join(v)
)
def test_a_round_saved_and_loaded_is_followed_by_the_same_one(name: str, two: dict[str, Any], toy: Path) -> None:
    more = {"batch_norm": "running"} | NORMALISED[name] | widths_of(name) | two
    whole, _ = simulate(name, toy, 1, **more)
    second, _ = simulate(name, toy, 0, **more)
    put_state(second, copy.deepcopy(state_of(whole)))
    assert untimed(second.run_round()) == untimed(whole.run_round())
    assert same(state_of(whole), state_of(second))


@pytest.mark.numeric
@pytest.mark.parametrize("name", METHODS)
def test_clients_train_as_without_and_are_measured_by_what_they_kept(
    name: str, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round's losses are the same bits: in training a batch is normalised by itself. The logits by which a
    client is measured are others; on the toy's few samples they may be right equally often."""
    measured: list[Tensor] = []
    measure = evaluation.measured

    def watched(module: Any, data: Any, client: int, *measures: Any, **how: Any) -> Any:
        if client == 0:
            measured.append(evaluation.logits_of(module, data, data.test, data.test.shares[client]))
        return measure(module, data, client, *measures, **how)

    monkeypatch.setattr(evaluation, "measured", watched)
    more = {"stragglers": 0.0, "local_steps": 5} | NORMALISED[name]
    if "predict" in registry.declared(name):
        more["predict"] = "head"  # by prototypes the toy is as well as solved either way
    if name == "fedphp":
        more["lambda"] = 0.0  # its private model is there from the first round on, and evaluates by its statistics
    batch, (without,) = simulate(name, toy, 1, **more)
    running, (row,) = simulate(name, toy, 1, batch_norm="running", **more)
    assert row["train_loss"] == without["train_loss"]
    assert batch.fed.batch_norm == "batch" and running.fed.batch_norm == "running"
    own = 1 + len(batch.method.other_networks)  # models of a client, measured one after the other
    assert len(measured) == 2 * own
    assert not any(same(a, b) for a, b in zip(measured[:own], measured[own:], strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_statistics_go_where_the_extractor_goes_and_are_counted(name: str, toy: Path) -> None:
    sent: dict[str, set[str]] = {}
    bytes_up: dict[str, int] = {}
    for batch_norm in ("batch", "running"):
        more = NORMALISED[name] | {"batch_norm": batch_norm}
        s = Simulation(name, values_for(name, toy, **more), 3, CPU)
        row, results = s.exchange()
        uploads = [result.upload for result in results.values()]
        networks = [s.method.client_network(s.config, s.fed, i) for i in results]
        shared = [attack.sent(network, upload) for network, upload in zip(networks, uploads, strict=True)]
        sent[batch_norm] = {key for upload in uploads for key in upload}
        bytes_up[batch_norm] = row["bytes_up"]
        model = [r.model for r in results.values() if r.model is not None]
        kept = [4 * t.numel() for params in model for key, t in params.items() if is_statistic(key)]
    new = sent["running"] - sent["batch"]
    assert all(is_statistic(key) for key in new) and sent["batch"] <= sent["running"]
    assert sum(kept) > 0  # of the models of `running`, the last ones above
    extractors = {"features" in parts for parts in shared}  # what each method shares is held by the attack's tests
    assert len(extractors) == 1
    assert bytes_up["running"] - bytes_up["batch"] == (sum(kept) if extractors == {True} else 0)


@pytest.mark.parametrize(("name", "more"), [("fedavg", {"model": "lenet5"}), ("fedkf", {"model": "resnet8"})])
def test_a_model_without_normalisation_is_refused(name: str, more: dict[str, Any], toy: Path) -> None:
    with pytest.raises(
        UserError,
        match=f"batch_norm must be batch for model {more['model']}, which has no batch normalisation, got 'running'",
    ):
        registry.resolve(name, values_for(name, toy, batch_norm="running", **more))


def test_one_model_of_several_with_normalisation_is_enough(toy: Path) -> None:
    registry.resolve("dhf", values_for("dhf", toy, batch_norm="running", server_model="resnet10"))
    with pytest.raises(UserError, match="batch for model cnn2 or cnn3, which has no batch normalisation"):
        registry.resolve("dhf", values_for("dhf", toy, batch_norm="running"))
