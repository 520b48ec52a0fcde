"""What every method must hold, run over the registry: a new method is tested by being there."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces.errors import UserError
from search_spaces.parameter import Parameter, parameters
from trainables import registry
from trainables.federation import FederationConfig
from trainables.local import LocalTraining
from trainables.params import count_bytes
from trainables.simulation.checkpoint import to_tree
from trainables.simulation.replicates import Replicates
from trainables.simulation.rounds import Row, Simulation
from trainables.wire import Upload

METHODS = sorted(registry.methods())
CPU = torch.device("cpu")
TIMES = ("seconds", "seconds_client", "seconds_server", "seconds_evaluation")


def values_for(name: str, data: Path, **more: Any) -> dict[str, Any]:
    """A federation that runs in milliseconds, whatever the method: on the smallest model with convolutions and batch
    normalisation, where the method lets clients of one architecture choose. `auto` would be of 17 times the size, and
    a round of three times the length."""
    known = registry.declared(name)
    smallest = {"model": "lenet_code"} if "lenet_code" in known["model"].options else {}
    quick = smallest | {
        "dataset": str(data),
        "clients": 4,
        "rounds": 4,
        "local_steps": 2,
        "batch_size": 16,
        "lr": 0.05,
        "omega": 1.0,
        "server_iters": 1,
        "server_steps": 1,
        "server_epochs": 2,
        "gen_steps": 1,
        "distill_steps": 1,
        "server_batch_size": 8,
        "noise_dim": 8,
        "min_samples": 4,
        "local_epochs": 0,
        "finetune_epochs": 1,
        "gme_interval": 1,
        "server_model": "cnn2",
    }
    return {k: v for k, v in (quick | more).items() if k in known}


def light(name: str) -> dict[str, Any]:
    """The model without convolutions, a third of the time, for tests that no model matters to. DENSE matches what batch
    normalisation saw: it has the smallest with that. Clients of two depths have their own two."""
    known = registry.declared(name)
    model = "lenet_code" if "beta_bn" in known else "mlp"
    return {"model": model} if model in known["model"].options else {}


def simulate(name: str, data: Path, rounds: int, /, **more: Any) -> tuple[Simulation, list[Row]]:
    """A simulation after `rounds` rounds and its rows without timings."""
    simulation = Simulation(name, values_for(name, data, **more), 3, CPU)
    return simulation, [untimed(simulation.run_round()) for _ in range(rounds)]


def untimed(row: Row) -> Row:
    """A row without what depends on the machine."""
    return {k: v for k, v in row.items() if k not in TIMES}


def same(a: Any, b: Any) -> bool:
    """Equality of nested values, tensors bit for bit."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def state_of(simulation: Simulation) -> dict[str, Any]:
    """All that a checkpoint holds of it."""
    return {"progress": simulation.save(), "clients": to_tree(simulation.of_clients())}


def put_state(simulation: Simulation, state: dict[str, Any]) -> None:
    """Puts it there."""
    simulation.load(state["progress"])
    simulation.take(state["clients"])


def own_parameters(name: str) -> list[Parameter]:
    """What the method's own Config declares, local training included."""
    return list(parameters(registry.method(name).Config).values())


def test_no_declaration_contradicts_itself() -> None:
    """As is asked of a method of a user's own."""
    classes = (FederationConfig, *(method.Config for method in registry.methods().values()))
    assert [said for cls in classes for one in parameters(cls).values() for said in one.contradictions()] == []


#: Bounds that are valid but make one round long; they are constructed and checked, the round runs at this value.
QUICK = 3
LENGTHS = (
    "local_steps",
    "local_epochs",
    "server_iters",
    "server_steps",
    "server_epochs",
    "gen_steps",
    "distill_steps",
    "server_batch_size",
    "noise_dim",
    "batch_size",
    "finetune_epochs",
    "personal_epochs",
)


#: Which model stands where. Methods take all of one kind alike, and `test_pretend_device` runs a round of each.
MODELS = ("model", "deep_model", "server_model", "shared_model")

#: What two architectures need beside the share of deep clients, where it is not the default.
BESIDE = {"nu": {"model": "cnn2", "share": "head"}}


def bounds(name: str) -> Iterator[tuple[str, Any]]:
    """Every bound and option of every parameter, lengths capped."""
    for p in own_parameters(name):
        if p.kind in ("real", "integer"):
            for bound in (p.low, p.high):
                if bound is not None:
                    yield p.key, min(bound, max(QUICK, p.low or 0)) if p.key in LENGTHS else bound
        elif p.kind == "choice":
            yield from ((p.key, option) for option in p.options)
        elif p.kind == "flag":
            yield from ((p.key, v) for v in (True, False))


@pytest.mark.parametrize("name", METHODS)
def test_every_default_is_a_valid_value_of_its_kind(name: str) -> None:
    for parameter in registry.declared(name).values():  # defaults are taken as they are declared
        converted = parameter.convert(parameter.default)
        assert (type(converted), converted) == (type(parameter.default), parameter.default), parameter.key


def designs(name: str) -> Iterator[dict[str, Any]]:
    """Few federations that hold every bound and option of `bounds` once, but for models: all at the lowest, all at the
    highest, and the options of choices one after another, each time of all choices at once. What a value needs goes
    along."""
    values: dict[str, list[Any]] = {}
    for key, value in bounds(name):
        if key not in MODELS:
            values.setdefault(key, []).append(value)
    kinds = {p.key: p.kind for p in own_parameters(name)}
    for place in range(max(len(options) for options in values.values())):
        chosen = {key: options[place % len(options)] for key, options in values.items()}
        if place > 1:  # the bounds have been there
            chosen = {key: value for key, value in chosen.items() if kinds[key] == "choice"}
        for key in set(chosen) & set(BESIDE):
            chosen |= BESIDE[key]
        yield chosen


def narrow(name: str, base: Any) -> int:
    """The budget ρ with which clients of several widths train, where the method and its base have such."""
    return 5 if registry.method(name).widths == "any" and base not in (None, "fedavg") else 0


@pytest.mark.parametrize("name", METHODS)
def test_all_bounds_together_construct_and_run_a_round(name: str, toy: Path) -> None:
    for values in designs(name):
        given = light(name) | {"rho": narrow(name, values.get("base"))} | values
        try:
            _, rows = simulate(name, toy, 1, **given)
        except Exception as error:
            error.add_note(f"{name} with {values}")
            raise
        assert rows[0]["round"] == 1, values


@pytest.mark.nightly
@pytest.mark.parametrize("name", METHODS)
def test_every_bound_constructs_and_runs_a_round(name: str, toy: Path) -> None:
    """One by one, every model in every place too: which of them it was that
    `test_all_bounds_together_construct_and_run_a_round` found."""
    for key, value in bounds(name):
        rho = narrow(name, value) if key == "base" else 0
        _, rows = simulate(name, toy, 1, **light(name) | BESIDE.get(key, {}) | {"rho": rho, key: value})
        assert rows[0]["round"] == 1, (key, value)


def declared_first(name: str) -> list[Parameter]:
    """What the method declares and no method before it, as federations and local training are declared for all."""
    before = [registry.declared(other) for other in METHODS[: METHODS.index(name)]]
    return [p for key, p in registry.declared(name).items() if all(other.get(key) != p for other in before)]


@pytest.mark.parametrize("name", METHODS)
def test_every_declared_value_has_its_bad_twin_refused(name: str, toy: Path) -> None:
    for p in declared_first(name):
        bad = {
            "real": [float("nan"), "much"],
            "integer": [1.5, "many"],
            "choice": ["no such option"],
            "flag": ["perhaps"],
            "text": [""],
        }[p.kind]
        if p.kind in ("real", "integer"):
            bad += [
                b
                for b in (None if p.low is None else p.low - 1, None if p.high is None else p.high + 1)
                if b is not None
            ]
        for value in bad:
            with pytest.raises(UserError) as error:
                registry.resolve(name, values_for(name, toy) | {p.key: value}, "a test")
            assert (
                p.key in str(error.value)
                and p.must() in str(error.value)
                and "got" in str(error.value)
                and "a test" in str(error.value)
            )


@pytest.mark.numeric
@pytest.mark.parametrize("name", METHODS)
def test_same_seed_same_bits_and_another_seed_another_run(name: str, toy: Path) -> None:
    first, rows = simulate(name, toy, 2)
    second, again = simulate(name, toy, 2)
    assert rows == again
    assert same(state_of(first), state_of(second))
    other = Simulation(name, values_for(name, toy), 4, CPU)
    assert untimed(other.run_round()) != rows[0]


@pytest.mark.numeric
@pytest.mark.parametrize("name", METHODS)
def test_two_rounds_saved_and_loaded_go_on_as_those_that_saved_them(name: str, toy: Path, tmp_path: Path) -> None:
    values = values_for(name, toy, **light(name))
    whole = Replicates(name, values, [0, 1])
    for _ in range(2):
        whole.step()
    before = [copy.deepcopy(state_of(s)) for s in whole.simulations]
    whole.save(tmp_path / "checkpoint")
    assert all(same(state_of(s), kept) for s, kept in zip(whole.simulations, before, strict=True))
    second = Replicates(name, values, [0, 1])
    second.load(tmp_path / "checkpoint")
    assert second.round == 2
    for _ in range(2):
        assert [untimed(row) for row in second.step()] == [untimed(row) for row in whole.step()]
    assert all(same(state_of(a), state_of(b)) for a, b in zip(whole.simulations, second.simulations, strict=True))


@pytest.mark.numeric
@pytest.mark.parametrize("name", METHODS)
def test_functions_leave_their_arguments_alone_and_cohort_order_does_not_matter(name: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 1)
    m, config, fed = s.method, s.config, s.fed
    rng = fed.rng.child("round", 2)
    state = s.progress.state
    before = copy.deepcopy(state_of(s)), copy.deepcopy(rng)

    def work(order: list[int]) -> dict[int, Upload]:
        done = {}
        for i in order:
            payload = m.download(config, fed, state, i)
            sent = copy.deepcopy(payload)
            client_state = copy.deepcopy(s.progress.client_states.get(i))
            done[i] = Upload(
                i,
                m.client(
                    config, fed, payload, s.progress.client_states.get(i), s.data.clients[i], rng.child("client", i)
                ).upload,
            )
            assert same(payload, sent)
            assert same(
                vars(client_state) if client_state else None,
                vars(s.progress.client_states[i]) if client_state else None,
            )
        return done

    forward, backward = work([0, 1, 2, 3]), work([3, 2, 1, 0])
    assert all(same(forward[i].payload, backward[i].payload) for i in range(4))
    uploads = [forward[i] for i in range(4)]
    kept = copy.deepcopy(uploads)
    m.server(config, fed, state, uploads, rng.child("server"))
    assert all(same(a.payload, b.payload) for a, b in zip(uploads, kept, strict=True))
    assert same(state_of(s), before[0])


@pytest.mark.parametrize("name", METHODS)
def test_no_raw_sample_crosses_the_wire_and_bytes_are_exact(name: str, toy: Path) -> None:
    s = Simulation(name, values_for(name, toy, **light(name)), 3, CPU)
    up = down = 0
    for i, data in enumerate(s.data.clients):
        payload = s.method.download(s.config, s.fed, s.progress.state, i)
        upload = s.method.client(s.config, s.fed, payload, None, data, s.fed.rng.child("round", 1, "client", i)).upload
        everything = torch.arange(len(data))
        samples = torch.cat([data.batch(everything)[0].flatten(1), data.images[data.indices].flatten(1).float()])
        assert not any(holds_a_row(tensor.flatten().float(), samples) for tensor in upload.values())
        up += sum(t.numel() * t.element_size() for t in upload.values())
        down += count_bytes(payload)
    row = s.run_round()
    assert (row["bytes_up"], row["bytes_down"]) == (up, down)


def holds_a_row(flat: torch.Tensor, rows: torch.Tensor) -> bool:
    """Whether any row `(n, d)` stands somewhere in `flat`, entry for entry."""
    d = rows.shape[1]
    if len(flat) < d:
        return False
    ends_fit = (flat[None, : len(flat) - d + 1] == rows[:, :1]) & (flat[None, d - 1 :] == rows[:, -1:])
    return any(torch.equal(flat[start : start + d], rows[row]) for row, start in ends_fit.nonzero().tolist())


def test_the_search_for_raw_samples_finds_one() -> None:
    rows = torch.arange(6.0).view(2, 3)
    assert holds_a_row(torch.tensor([9.0, 3.0, 4.0, 5.0]), rows) and not holds_a_row(
        torch.tensor([3.0, 9.0, 5.0, 0.0]), rows
    )


#: A distance that is in the loss from the second round on only: by its default it would outweigh what falls. FedGen's
#: generator teaches too little in four rounds for the small model: 1.02 becomes 0.85.
FALLING: dict[str, dict[str, Any]] = {"fedtgp": {"lambda": 1.0}, "fedgen": {"model": "auto"}}


@pytest.mark.parametrize("name", METHODS)
def test_training_loss_falls_on_the_separable_toy(name: str, toy: Path) -> None:
    _, rows = simulate(name, toy, 4, local_steps=10, lr=0.1, omega=100.0, **light(name) | FALLING.get(name, {}))
    assert rows[-1]["train_loss"] < 0.5 * rows[0]["train_loss"]


#: Where an average with weights n is to be one with weights 1: 32 samples each, as only a power of two leaves rounding
#: as it is.
SIZES = {"qffl": {"validation_fraction": 7 / 15}}
LIMITS = [(m.name, limit) for m in registry.methods().values() for limit in m.limits]


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("name", "limit"),
    LIMITS,
    ids=[f"{n}-{'-'.join(map(str, limit.values.values()))}-is-{limit.equals}" for n, limit in LIMITS],
)
def test_declared_limits_hold_bit_for_bit(name: str, limit: Any, toy: Path) -> None:
    special, rows = simulate(name, toy, 3, **limit.values, **SIZES.get(name, {}))
    plain, expected = simulate(limit.equals, toy, 3, **limit.other, **SIZES.get(name, {}))
    # What crosses the wire and what else is measured may differ; every other number may not.
    common = (set(rows[0]) & set(expected[0])) - {"bytes_up", "bytes_down"}
    whole = set() if plain.global_model() is None else {"global_accuracy", "client_accuracy"}
    assert {"train_loss", "local_accuracy"} | whole <= common
    assert [{k: r[k] for k in common} for r in rows] == [{k: r[k] for k in common} for r in expected]
    if plain.global_model() is not None:  # where it has none, a personal model is what the two have in common
        assert same(special.global_model(), plain.global_model())


def test_every_method_declares_local_training() -> None:
    for m in registry.methods().values():
        assert issubclass(m.Config, LocalTraining)
