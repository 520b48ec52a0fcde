"""Clients' own models: which methods have them, and that what is read from a file is what local accuracy was measured
of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import fedtune
from search_spaces.errors import UserError
from search_spaces.run_folder import CONFUSION
from tests.contracts.test_methods import CPU, same, values_for
from tests.trainables.jobs import complete, cut_off, job_of
from trainables import registry
from trainables.simulation import evaluation
from trainables.simulation.replicates import Replicates
from trainables.simulation.rounds import Simulation
from trainables.worker import trial_folder
from trainables.worker.job import Job
from trainables.zoo import load_client_model, save_clients

#: As their papers have it: a model for each client is what comes out.
PERSONAL = [
    "dhf",
    "ditto",
    "fedamp",
    "fedbabu",
    "fedcg",
    "feddistill",
    "fedfomo",
    "fedgh",
    "fedkd",
    "fedmdcg",
    "fedper",
] + ["fedphp", "fedproto", "fedrod", "fedtgp", "fml", "lgfedavg", "local", "perfedavg"]


def begun(name: str, toy: Path, seeds: tuple[int, ...] = (3,), **more: Any) -> Replicates:
    made = Replicates(name, values_for(name, toy, **more), seeds)
    made.keep_models()
    return made


def test_which_methods_have_them(toy: Path) -> None:
    """Of the others a client's trained model is on its way to the server only."""
    found = {
        name
        for name, method in registry.methods().items()
        if method.has_personal_models(registry.configured(name, values_for(name, toy)).config)
    }
    assert found == set(PERSONAL)


@pytest.mark.parametrize("name", PERSONAL)
def test_a_model_from_a_file_has_the_accuracy_that_was_measured(name: str, toy: Path, tmp_path: Path) -> None:
    made = begun(name, toy)
    path = tmp_path / "clients-3.safetensors"
    (row,) = made.step()
    save_clients(path, made.personal_models()[3])
    data = made.simulations[0].data
    for client in range(4):
        model, card = load_client_model(path, client)
        assert not model.training
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as it was when it was measured
        assert (card.details["method"], card.details["client"], card.details["round"]) == (name, client, 1)
        assert (card.shape, card.classes) == ((1, 8, 8), 4)
        part = data.test
        share = part.own[client] if part.own else part.shares[client]
        right = evaluation.logits_of(model, data, part, share).argmax(dim=1) == part.y[share]
        assert float(right.double().mean()) == row["local_accuracies"][client]


def test_weights_of_which_bytes_were_lost_are_refused(toy: Path, tmp_path: Path) -> None:
    """Those of the other clients can be read."""
    made = begun("fedbabu", toy)
    made.step()
    path = tmp_path / "clients-3.safetensors"
    save_clients(path, made.personal_models()[3])
    content = path.read_bytes()
    path.write_bytes(content[:-40] + bytes(40))  # the last tensor is one of the last client
    load_client_model(path, 0)
    with pytest.raises(UserError, match="its weights are not those that its card was written for"):
        load_client_model(path, 3)


@pytest.mark.parametrize(("name", "more"), [("fedproto", {"predict": "prototypes"}), ("fedrod", {})])
def test_modules_around_a_model_are_made_again(name: str, more: dict[str, Any], toy: Path, tmp_path: Path) -> None:
    made = begun(name, toy, **more)
    made.step()
    s = made.simulations[0]
    path = tmp_path / "clients-3.safetensors"
    save_clients(path, made.personal_models()[3])
    model, card = load_client_model(path, 2)
    original = s._loaded(s.progress.personal[2], 2)
    assert type(model) is type(original) and card.details["network"] == "around"
    assert same(dict(model.state_dict()), dict(original.state_dict()))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as those of a federation are
    x = torch.rand(9, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(model(x), original.eval()(x))


def test_those_that_were_not_there_keep_what_was_measured_before(toy: Path) -> None:
    made = begun("local", toy, active_clients=2, rounds=4)
    seen: dict[int, int] = {}
    for _ in range(4):
        (row,) = made.step()
        here = {c for c, accuracy in enumerate(row["local_accuracies"]) if accuracy is not None}
        before = dict(made.simulations[0].progress.personal)
        seen |= dict.fromkeys(here, row["round"])
        found = made.personal_models()[3]
        assert {c: card.details["round"] for c, (_, card) in found.items()} == seen
        assert all(found[c][0] is before[c] for c in found)
    assert 2 < len(seen) <= 4 and len(set(seen.values())) > 1


def test_nothing_is_kept_unless_asked(toy: Path) -> None:
    s = Simulation("local", values_for("local", toy), 3, CPU)
    s.run_round()
    assert s.progress.personal == {} == Replicates("fedavg", values_for("fedavg", toy), [3]).personal_models()
    made = begun("fedavg", toy)
    made.step()
    assert made.personal_models() == {} and set(made.models()) == {3}


def job(folder: Path, toy: Path, name: str, **more: Any) -> Job:
    values = values_for(name, toy, active_clients=2, rounds=4, **more)
    return job_of(folder, name, values, (0, 1), "val_local_accuracy", keep_models=True)


@pytest.mark.parametrize("name", ["local", "ditto", "fedbabu"])
def test_a_trial_saves_them_and_a_resumed_one_the_same(
    name: str, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)  # a checkpoint after every round
    complete(job(tmp_path / "whole", toy, name))
    cut_off(job(tmp_path / "cut", toy, name), 2)
    complete(job(tmp_path / "cut", toy, name))
    confusions = [tmp_path / where / CONFUSION for where in ("whole", "cut")]
    assert [path.exists() for path in confusions] == [name != "local"] * 2
    if name != "local":
        assert confusions[0].read_bytes() == confusions[1].read_bytes()
        assert {of["round"] for of in json.loads(confusions[0].read_text()).values()} == {4}
    for seed in (0, 1):
        one, other = (tmp_path / where / f"clients-{seed}.safetensors" for where in ("whole", "cut"))
        assert one.read_bytes() == other.read_bytes()
        cards = [json.loads(path.with_suffix(".json").read_text()) for path in (one, other)]
        assert cards[0] == cards[1] and cards[0]["version"] == 1
        assert {card["selected_by"] for card in cards[0]["clients"].values()} == {"val_local_accuracy"}
        models = [tmp_path / where / f"model-{seed}.safetensors" for where in ("whole", "cut")]
        assert [path.exists() for path in models] == [name != "local"] * 2
        assert name == "local" or models[0].read_bytes() == models[1].read_bytes()
        with safe_open(one, "pt") as stored:
            assert {key.split("/")[0] for key in stored.keys()} == set(cards[0]["clients"])  # noqa: SIM118


def test_vmap_keeps_a_weight_once(toy: Path) -> None:
    """A cohort that is trained as one program has one tensor for all; a client's copy holds its own part alone."""
    made = begun("local", toy, executor="vmap")
    made.step()
    loop = begun("local", toy, executor="loop")
    loop.step()
    for client, (params, _) in made.personal_models()[3].items():
        assert all(t.untyped_storage().nbytes() == t.numel() * t.element_size() for t in params.values())
        assert params.keys() == loop.personal_models()[3][client][0].keys()
    assert same(made.simulations[0].progress.measured_in, loop.simulations[0].progress.measured_in)


@pytest.fixture
def saved(toy: Path, tmp_path: Path) -> Path:
    made = begun("local", toy, active_clients=2)
    made.step()
    path = tmp_path / "clients-3.safetensors"
    save_clients(path, made.personal_models()[3])
    return path


def test_what_is_not_there_is_named(saved: Path) -> None:
    has = sorted(int(client) for client in json.loads(saved.with_suffix(".json").read_text())["clients"])
    model, card = fedtune.load_model(saved, client=has[0])
    assert card.details["client"] == has[0] and next(model.parameters()).shape
    lacks = min(set(range(4)) - set(has))
    with pytest.raises(UserError, match=f"holds no model of client {lacks}. It has those of {has[0]}, {has[1]}."):
        fedtune.load_model(saved, client=lacks)
    with pytest.raises(UserError, match=r"holds the models of several clients\. Say which one, such as client=0\."):
        fedtune.load_model(saved)
    with pytest.raises(UserError, match=r"holds a global model\. Leave client out"):
        fedtune.load_model(saved.with_name("model-3.safetensors"), client=0)
    with pytest.raises(UserError, match=r"There is no file .*clients-4\.json"):
        fedtune.load_model(saved.with_name("clients-4.safetensors"), client=0)


def test_a_file_that_is_not_whole_and_a_link_are_refused(saved: Path) -> None:
    note = saved.with_suffix(".json")
    content = json.loads(note.read_text())
    client = int(next(iter(content["clients"])))
    note.write_text(json.dumps(content | {"version": 9}))
    with pytest.raises(UserError, match=r"has version 9 and this fedtune reads version 1\."):
        load_client_model(saved, client)
    changed = content["clients"][str(client)] | {"method": "fedavg", "network": "around"}
    note.write_text(json.dumps(content | {"clients": {str(client): changed}}))
    with pytest.raises(UserError, match="The models of clients of fedavg are modules of its own"):
        load_client_model(saved, client)
    note.write_text(json.dumps(content))
    elsewhere = saved.rename(saved.with_name("elsewhere"))
    saved.symlink_to(elsewhere)
    with pytest.raises(UserError, match=r"cannot be read as clients' models: .*symbolic link"):
        load_client_model(saved, client)
    saved.unlink()
    saved.write_bytes(elsewhere.read_bytes()[:100])
    with pytest.raises(UserError, match="cannot be read as clients' models"):
        load_client_model(saved, client)


def test_a_final_run_gives_them(saved: Path, tmp_path: Path) -> None:
    from tests.analysis.auto.test_leaderboard import final

    found = fedtune.load(final(tmp_path / "run", 0.4, (3, 4)).path)
    with pytest.raises(UserError, match=r"holds no models\. A search keeps none"):
        found.model(client=0)
    place = tmp_path / "run" / "trials" / "0000"
    for path in (saved, saved.with_suffix(".json")):
        (place / path.name).write_bytes(path.read_bytes())
    found = fedtune.load(tmp_path / "run")
    assert [path.name for path in found.client_models] == ["clients-3.safetensors"] and found.models == ()
    assert found.to_json()["client_models"] == [str(place / "clients-3.safetensors")]
    client = int(next(iter(json.loads(saved.with_suffix(".json").read_text())["clients"])))
    assert found.model(client=client)[1].details["client"] == client
    with pytest.raises(UserError, match=r"holds no global model, as its method has none\. Its clients have models"):
        found.model()
    with pytest.raises(UserError, match=r"holds no model of seed 5. It has: 3\."):
        found.model(5, client=client)
    saved.rename(place / "model-3.safetensors")
    (place / "clients-3.safetensors").unlink()
    with pytest.raises(UserError, match="holds no models of clients, as its method has none of their own"):
        fedtune.load(tmp_path / "run").model(client=0)
