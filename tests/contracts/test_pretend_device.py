"""Every method, executor, model, generator, partition and readout on a device that is not the processor's: nothing is
mixed, what is saved comes back to where it belongs, and every number is the CPU's.

The device is `tests.pretend_device`. Where a CPU has a kernel of its own (`trainables.kernels`), which other devices do
not use, it is switched off on both sides: then the same kernels run, and all is compared bit for bit. That those
kernels compute what PyTorch's do is shown by their own tests."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import trainables
from tests.contracts.test_batch_norm import NORMALISED
from tests.contracts.test_bundles import bundle
from tests.contracts.test_executors import NEEDED, STACKED, assert_clients_as_exact, start_alike, wide
from tests.contracts.test_methods import CPU, METHODS, MODELS, light, own_parameters, same, untimed, values_for
from tests.pretend_device import AVAILABLE, DEVICE, MixedDevices, Seen, pretending, record
from tests.toy import write_toy
from tests.trainables.models.test_models import SHAPES
from trainables import models, registry
from trainables.building_blocks import losses
from trainables.kernels import convolution, distances, normalisation, pooling, recorded_steps, upsampling
from trainables.models import precision
from trainables.simulation import checkpoint, client_files, executors, federated_data, rounds
from trainables.simulation.cuda_graphs import Graphs
from trainables.simulation.replicates import Replicates, step_together
from trainables.simulation.rounds import Row, Simulation

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="this PyTorch takes no device written in Python")

#: Two clients of two steps: everything happens, and in a second.
SMALL = {"clients": 2, "batch_size": 8, "momentum": 0.5}
EXECUTED = [
    (name, executor)
    for name in METHODS
    for executor in ("loop", "vmap", "graph")
    if executor == "loop" or name in STACKED or (executor == "graph" and registry.method(name).recordable_server)
]


@pytest.fixture(autouse=True)
def same_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU computes by PyTorch's own kernels, as other devices do; images moved to the device are forgotten."""
    monkeypatch.setattr(pooling, "FEWEST", 1 << 30)
    monkeypatch.setattr(losses, "mean_squares", distances.plain)
    monkeypatch.setattr(normalisation, "_after_pooling", lambda *_: False)
    monkeypatch.setattr(convolution.Convolution, "forward", nn.Conv2d.forward)
    monkeypatch.setattr(upsampling.Upsampling, "forward", nn.ConvTranspose2d.forward)
    monkeypatch.setattr(
        upsampling.Enlarging, "forward", lambda self, x: upsampling.plain_enlarging(x, self.weight, self.bias)
    )
    yield
    federated_data._MOVED.clear()


def started(name: str, values: dict[str, Any], seeds: Sequence[int], device: str) -> Replicates:
    """The trial before its first round. CUDA graphs need CUDA: here the device records, and a processor loops."""
    executor = values.get("executor")
    graph = executor == "graph"
    trial = Replicates(name, values | ({"executor": "loop"} if graph else {}), seeds, device=device)
    for simulation in trial.simulations if executor in ("graph", "vmap") and device == DEVICE else ():
        simulation.graphs = Graphs(simulation.config, record) if graph and name in STACKED else None
        if simulation.method.recordable_server:
            simulation.fed = replace(simulation.fed, record=record)
    return trial


def rows_and_state(
    begin: Callable[[], Replicates], file: Path, *, interrupted: bool = True, count: int = 2
) -> tuple[list[Row], Any]:
    """The rows of so many rounds of the trial that `begin` makes, saved and loaded into a new one in between where they
    are interrupted, and what is saved after them."""
    trial = begin()
    rows = trial.step()
    for _ in range(count - 1):
        if interrupted:
            trial.save(file)
            trial = begin()
            trial.load(file)
        rows += trial.step()
    for params, _ in trial.models().values():
        assert all(tensor.device == CPU for tensor in params.values())  # a file of weights opens anywhere
    trial.save(file)
    saved = checkpoint.load(file)
    kept = client_files.read(file.parent, saved.pop("clients"))
    return [untimed(row) for row in rows], (saved, kept)


def on(device: torch.device, value: Any) -> Any:
    """A nest of mappings, sequences and dataclasses with its tensors on that device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: on(device, getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, dict):
        return {key: on(device, item) for key, item in value.items()}
    return type(value)(on(device, item) for item in value) if isinstance(value, (list, tuple)) else value


def assert_as_on_a_cpu(name: str, values: dict[str, Any], folder: Path, count: int = 2) -> Seen:
    """So many rounds on the device, interrupted, are those of a CPU: records, states of server and clients."""
    with pretending() as seen:
        rows, state = rows_and_state(partial(started, name, values, [3], DEVICE), folder / "device", count=count)
    begin = partial(started, name, values, [3], "cpu")
    expected, kept = rows_and_state(begin, folder / "cpu", interrupted=False, count=count)
    assert rows == expected
    assert same(state, kept)
    assert seen.operations > 100
    return seen


@pytest.mark.covering
@pytest.mark.parametrize(("name", "executor"), EXECUTED)
def test_every_method_and_executor(name: str, executor: str, toy: Path, tmp_path: Path) -> None:
    assert_as_on_a_cpu(name, values_for(name, toy, executor=executor, **SMALL, **NEEDED.get(name, {})), tmp_path)


@pytest.mark.parametrize("name", ["fedavg", "moon", "fml"])
def test_a_bundle_of_trials(name: str, toy: Path) -> None:
    """Guards vectors of settings that are made on the wrong device, and programs that wait for it at every step."""

    def rounds(device: str) -> list[list[Row]]:
        trials = bundle(name, toy, device, clients=2, batch_size=8)
        found: list[list[Row]] = []
        for _ in range(2):
            for rows in step_together(trials):
                assert not isinstance(rows, Exception)
                found.append([untimed(row) for row in rows])
        return found

    with pretending() as seen:
        found = rounds(DEVICE)
    assert found == rounds("cpu")
    assert seen.waits["executors._train_group"] <= 2 * 2 * 2  # of each round, two programs at most, losses and settings


#: Enough server steps that most are replayed; what changes what a step reads or what is begun anew.
STEPS = {"server_iters": 2, "gen_steps": 2, "distill_steps": 3, "server_steps": 4, "server_epochs": 3}
WIDTHS = {"rho": 5, "base": "heterofl"}
SERVED: list[tuple[str, dict[str, Any], int]] = [
    ("dfrd", {"ema_update": "before_distillation", "renormalise_synthetic": True, "distill_momentum": 0.5}, 2),
    ("dfrd", {"reset_optim_each_phase": True, "distill_momentum": 0.5, "share_noise": True}, 2),
    ("dfrd", {"resample_noise": False, "use_ema": False, "batch_norm": "running", "beta_ey": 0.5, **WIDTHS}, 2),
    ("fedftg", {}, 2),
    ("dense", {"beta_bn": 1.0}, 2),
    ("dhf", {"gme_interval": 1}, 2),
    ("fedmdcg", {}, 1),
    ("fedcg", {"server_agg": "kd"}, 1),
    ("fedgen", {"gen_steps": 4}, 1),
    ("fedgen", {"gen_steps": 4, "teacher": "logits"}, 1),
    # Eight prototypes in batches of three, three and two.
    ("fedgh", {"partition": "iid", "server_batch_size": 3}, 2),
    ("fedtgp", {"partition": "iid", "server_batch_size": 3}, 2),
    ("fedtgp", {"partition": "iid", "server_batch_size": 8}, 1),
]


@pytest.mark.parametrize(("name", "more", "graphs"), SERVED, ids=str)
def test_recorded_steps_of_a_server_are_the_steps_themselves(
    name: str, more: dict[str, Any], graphs: int, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, and with all that they read in its place: a replay runs no Python. Each phase is recorded once a
    round, whatever its iterations."""
    monkeypatch.setattr(recorded_steps, "FEWEST", 2)
    seen = []

    def counted(step: Callable[[], None]) -> Callable[[], None]:
        seen.append(step)
        return record(step)

    values = values_for(name, toy, **SMALL | STEPS | more)
    with pretending():
        device = started(name, values, [3], DEVICE)
        (simulation,) = device.simulations
        simulation.fed = replace(simulation.fed, record=counted)
        rows = [untimed(row) for _ in range(2) for row in device.step()]
        state = on(CPU, simulation.progress.state)
    plain = started(name, values, [3], "cpu")
    assert rows == [untimed(row) for _ in range(2) for row in plain.step()]
    assert same(vars(state), vars(plain.simulations[0].progress.state))
    assert len(seen) == 2 * graphs


class Recording:
    """Stands for `CudaGraphs`: it records as the device does, and notes how many graphs it has and gave back."""

    all: ClassVar[list[Recording]] = []

    def __init__(self) -> None:
        self.held = self.given_back = 0
        Recording.all.append(self)

    def __call__(self, step: Callable[[], None]) -> Callable[[], None]:
        self.held += 1
        return record(step)

    def release(self) -> None:
        self.given_back, self.held = self.given_back + self.held, 0


@pytest.mark.parametrize(("name", "clients"), [("dfrd", "vmap"), ("fedmdcg", "loop"), ("dense", "loop")])
def test_a_server_is_recorded_by_default(name: str, clients: str, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However its clients are trained; a row says both; nothing stays of what was recorded once the round has ended."""
    monkeypatch.setattr(recorded_steps, "FEWEST", 2)
    monkeypatch.setattr(executors, "RECORDING", ("pretend",))
    monkeypatch.setattr(executors, "chosen", lambda *_: clients)
    monkeypatch.setattr(rounds, "CudaGraphs", Recording)
    monkeypatch.setattr(Recording, "all", [])
    values = values_for(name, toy, **SMALL | STEPS)
    with pretending():
        device = Simulation(name, values, 3, torch.device(DEVICE))
        found = [untimed(device.run_round()) for _ in range(2)]
        Simulation(name, values | {"executor": "loop"}, 3, torch.device(DEVICE))
    (recording,) = Recording.all
    assert recording.held == 0 and recording.given_back == 2 * (1 if name == "fedmdcg" else 2)
    said = {"server_executor": "graph"} | ({} if clients == "loop" else {"executor": clients})
    plain = Simulation(name, values | {"executor": clients}, 3, CPU)
    assert found == [untimed(plain.run_round()) | said for _ in range(2)]


def test_a_step_that_reads_what_was_exchanged_since_it_was_recorded_is_noticed() -> None:
    """As on CUDA: it goes on with the tensor that it was recorded with. And a step that waits is not recorded."""
    with pretending():
        total, read = torch.zeros(2).to(DEVICE), {"now": torch.ones(2).to(DEVICE)}
        replay = record(lambda: total.add_(read["now"] * 2))
        total.zero_()
        read["now"].fill_(3.0)
        replay()
        assert total.tolist() == [6.0, 6.0]
        read["now"] = torch.zeros(2).to(DEVICE)
        replay()
        assert total.tolist() == [12.0, 12.0]
        for waiting in (lambda: total.add_(total.sum().item()), lambda: total.add_(torch.ones(2).to(DEVICE))):
            with pytest.raises(AssertionError, match="elsewhere"):
                record(waiting)


def tensors(value: Any, place: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a nest, with where they stand."""
    if isinstance(value, torch.Tensor):
        yield place, value
    elif isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors(item, f"{place}/{key}")


@pytest.mark.parametrize(
    ("name", "executor"),
    [
        ("fedavg", "loop"),
        ("fedavg", "vmap"),
        ("fedavg", "graph"),
        ("dfrd", "vmap"),
        ("dhf", "graph"),
        ("fedgen", "graph"),
    ],
)
def test_bfloat16(name: str, executor: str, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rules of CUDA's autocast, with recorded steps too: no wait more than in float32, and nothing but passes in
    bfloat16."""
    monkeypatch.setattr(precision, "supported", lambda device: True)
    monkeypatch.setattr(recorded_steps, "FEWEST", 2)
    values = values_for(name, toy, **SMALL | STEPS | {"executor": executor, "precision": "bf16"})
    rows, waits, states = [], [], []
    for chosen in ("bf16", "fp32"):
        with pretending() as seen:
            trial = started(name, values | {"precision": chosen}, [3], DEVICE)
            rows += trial.step()
            states += [s.save() for s in trial.simulations]
        waits.append(seen.waits)
    assert waits[0] == waits[1]
    narrow, wide_ = (row["train_loss"] for row in rows)
    assert narrow != wide_  # or nothing was computed in bfloat16
    assert narrow == pytest.approx(wide_, rel=0.05)
    assert not [place for place, tensor in tensors(states[0]) if tensor.dtype == torch.bfloat16]
    assert len(list(tensors(states[0]))) > 4


def options() -> Iterator[tuple[str, str, Any]]:
    """Every option but the default of every choice and flag, at the first method that shares its declaration; and for
    every method the other normalisation of its models."""
    found = set()
    for name in METHODS:
        for p in own_parameters(name):
            owner = next(c for c in reversed(registry.method(name).Config.__mro__) if p.name in vars(c))
            if p.kind in ("choice", "flag") and p.key not in MODELS:
                for option in p.options if p.kind == "choice" else (True, False):
                    if option != p.default and (owner, p.key, option) not in found:
                        found.add((owner, p.key, option))
                        yield name, p.key, option
        yield from ((name, "batch_norm", option) for option in models.BATCH_NORMS[1:])


def with_options(name: str, chosen: dict[str, Any], data: Path, **models_: Any) -> dict[str, Any]:
    """A small federation with these options, and with what they need, on these models where the options let it
    choose."""
    # Clients of several widths, where the method trains them: with a base that does.
    narrow = chosen.get("base") in ("heterofl", "feddropout", "fedrolex") or "base" not in registry.declared(name)
    rho = 5 if registry.method(name).widths == "any" and narrow else 0
    pfl = {"client_test_fraction": 0.25} if chosen.get("partition") == "dir_pfl" else {}
    models_ = NORMALISED[name] if "batch_norm" in chosen else models_
    return values_for(name, data, **SMALL | models_ | {"rho": rho} | chosen | pfl)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "key", "value"), list(options()), ids=str)
def test_every_option(name: str, key: str, value: Any, toy: Path, tmp_path: Path) -> None:
    """On the quickest models: `test_every_method_and_executor` has each method's own, and `test_every_model` all."""
    assert_as_on_a_cpu(name, with_options(name, {key: value}, toy, **light(name)), tmp_path)


def together() -> Iterator[tuple[str, dict[str, Any]]]:
    """Few federations that hold each of `options` once: of every method those of keys with one option beside the
    default, and then the first ones of the other keys, the second ones, and so on: with most choices at their default,
    few options leave others without effect. Of partitions `test_every_partition` has all."""
    found: dict[str, dict[str, list[Any]]] = {}
    for name, key, value in options():
        if key != "partition":
            found.setdefault(name, {}).setdefault(key, []).append(value)
    for name, keys in found.items():
        yield name, {key: of[0] for key, of in keys.items() if len(of) == 1}
        several = {key: of for key, of in keys.items() if len(of) > 1}
        for place in range(max(map(len, several.values()), default=0)):
            yield name, {key: of[place] for key, of in several.items() if place < len(of)}


@pytest.mark.parametrize(("name", "chosen"), list(together()), ids=str)
def test_options_together(name: str, chosen: dict[str, Any], toy: Path, tmp_path: Path) -> None:
    """Which of them it was that fails says `test_every_option`, by night."""
    assert_as_on_a_cpu(name, with_options(name, chosen, toy, **light(name)), tmp_path)


@pytest.mark.parametrize("name", ["lgfedavg", "fedgen"])  # the others have two architectures by default
def test_clients_of_two_architectures(name: str, toy: Path, tmp_path: Path) -> None:
    mixed = {"nu": 0.5, "model": "cnn2", "deep_model": "cnn3"} | ({"share": "head"} if name == "fedgen" else {})
    assert_as_on_a_cpu(name, values_for(name, toy, **SMALL | mixed), tmp_path)


#: With group normalisation: PyTorch lays maps out anew before it on every device but a CPU, and sums in that order.
OTHER_ORDER = ("resnet8",)
EQUAL = [name for name in models.names() if name not in OTHER_ORDER and not models.reads_tokens(name)]


@pytest.mark.covering
@pytest.mark.parametrize("executor", ["loop", "vmap"])
@pytest.mark.parametrize("model", EQUAL)
def test_every_model(model: str, executor: str, tmp_path: Path) -> None:
    """Of one round: what is saved and goes on does not ask of which model it is."""
    toy = write_toy(tmp_path, train=40, test=8, size=SHAPES.get(model, (1, 28, 28))[1])
    values = SMALL | {"local_steps": 1, "executor": executor, "model": model}
    assert_as_on_a_cpu("fedavg", values_for("fedavg", toy, **values), tmp_path, count=1)


@pytest.mark.numeric
@pytest.mark.parametrize("model", OTHER_ORDER)
def test_models_that_sum_in_another_order_are_as_exact(model: str, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, train=40, test=8, size=16)
    values = values_for("fedavg", toy, model=model, **SMALL | {"local_steps": 1})
    with pretending():
        device, plain = (Simulation("fedavg", values, 3, torch.device(d)) for d in (DEVICE, "cpu"))
        exact = wide("fedavg", values)
        start_alike(exact, plain)
        (_, ours), (_, theirs) = device.exchange(), plain.exchange()
        here = on(CPU, ours)
    assert_clients_as_exact(here, theirs, exact)


def of_size(name: str, size: int, folder: Path) -> dict[str, Any]:
    """A small federation of a method with generated images, on images of that side."""
    toy = write_toy(folder, train=40, test=8, size=size)
    model = "cnn_small" if name != "dhf" else "cnn"
    return values_for(name, toy, **SMALL | {"local_steps": 1, "model": model})


@pytest.mark.covering
@pytest.mark.parametrize("size", [28, 32, 64])
@pytest.mark.parametrize("name", ["dfrd", "fedkf", "dhf"])
def test_every_size_of_the_generators_of_images(name: str, size: int, tmp_path: Path) -> None:
    assert_as_on_a_cpu(name, of_size(name, size, tmp_path), tmp_path)


#: `natural` is that of data which say whose each sample is, and images do not.
PARTITIONS = [one for one in registry.declared("fedavg")["partition"].options if one != "natural"]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_partition(partition: str, toy: Path, tmp_path: Path) -> None:
    values = SMALL | {"partition": partition, "classes_per_client": 2, "omega": 1.0}
    own = {"client_test_fraction": 0.25} if partition == "dir_pfl" else {}
    assert_as_on_a_cpu("fedavg", values_for("fedavg", toy, **values | own), tmp_path)


@pytest.mark.parametrize("name", [name for name in METHODS if "readout" in registry.declared(name)])
def test_every_readout(name: str, toy: Path, tmp_path: Path) -> None:
    caches = {"model_cache": True} if "model_cache" in registry.declared(name) else {}
    for readout in registry.declared(name)["readout"].options:
        assert_as_on_a_cpu(name, values_for(name, toy, readout=readout, **SMALL | light(name) | caches), tmp_path)


@pytest.mark.covering
@pytest.mark.parametrize("private", registry.declared("fedavg")["attack_private"].options)
@pytest.mark.parametrize("name", ["fedavg", "fedper", "lgfedavg", "local"])  # all is shared, features, head, nothing
def test_the_attack(name: str, private: str, toy: Path, tmp_path: Path) -> None:
    values = {"rounds": 2, "local_steps": 1, "attack_images": 1, "attack_steps": 1, "attack_private": private}
    assert_as_on_a_cpu(name, values_for(name, toy, **SMALL | values), tmp_path)


def test_a_state_loaded_to_the_wrong_device_is_caught(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `Replicates.load` would do if it forgot the device: prototypes of the processor beside features of the
    device."""
    load = checkpoint.load
    monkeypatch.setattr(checkpoint, "load", lambda path, device, **more: load(path, **more))
    with pretending(), pytest.raises(MixedDevices, match="of cpu beside tensors of pretend"):
        rows_and_state(partial(started, "dhf", values_for("dhf", toy, **SMALL), [3], DEVICE), tmp_path / "device")


# --- what the processor waits for ------------------------------------------------------------------------------------

#: Where a round waits for the device, how often at most, and why. A place that is not here has no business to wait:
#: make it ask once for all, or enter it with its reason. By place: the most, and for each `client` of the cohort, for
#: each `training` of a client (one more where models are fine-tuned before they are measured), for each measured `part`
#: (validation, test) of each model of a client, or of each `model` (the global one, its readouts).
WAITS: dict[str, tuple[int, str, str]] = {
    "local.train": (1, "training", "the mean loss of its steps, asked for once all are under way"),
    "executors._train_group": (1, "client", "the same of all clients of one shape at once"),
    "evaluation.measured": (1, "client part", "predictions; right ones are counted on the processor"),
    "evaluation.global_metrics": (2, "model part", "predictions, from which every client's accuracy follows; the loss"),
    "evaluation.accuracy": (1, "model part", "predictions"),
    "fedkd.compressed": (
        2,
        "client",
        "how many singular values are sent, of all tensors at once; server and client",
    ),
    "params.equal": (1, "round", "a virtual average that is the global model is not measured a second time"),
    "dhf.download": (1, "client", "which classes have a prototype says what is sent"),
    "fedcg.client": (1, "client", "the share of cross-entropy in the loss is a metric"),
    "fedfomo._raised": (1, "client", "how well other models served says which ones are sent next"),
    "fedgen.client": (1, "client", "the share of cross-entropy in the loss is a metric"),
    "fedmdcg.client": (1, "client", "the share of cross-entropy in the loss is a metric"),
    "generator_aggregation.gd_loss": (1, "client", "how well a head knows what its generator makes is a metric"),
    "qffl.server": (1, "client", "losses F_k, which are weighed on the processor"),
    "qffl._squared_distance": (1, "client", "the same for the distance between models"),
}
#: Where a step takes tensors to the device, and which. All else goes there once for a client, or once for a round.
DRAWN = "noise or labels, drawn on the processor, so that a seed gives the same numbers on every device"
MOVED_BY_STEPS = {
    "server_distillation.Draws.next": DRAWN,
    "generator_aggregation.draw_noise": DRAWN,
    "fedgen._LocalObjective.__call__": DRAWN,
    "fedgen._LocalObjective._features": DRAWN,
    "fedgen.server": DRAWN,
    "fedkf.Fusion.__call__": DRAWN,
    "fedmdcg._LocalObjective.__call__": DRAWN,
}
LENGTHS = ("local_steps", "server_iters", "server_steps", "server_epochs", "gen_steps", "distill_steps")
#: Tensors that go to the device for one client or for the server in one step.
MOST_BY_STEP = 4


def second_round(name: str, values: dict[str, Any]) -> tuple[Seen, int, int]:
    """What a second round waits for, and how many models it measures: of the server, of each client."""
    with pretending():
        trial = started(name, values, [3], DEVICE)
        trial.step()
        with pretending() as seen:
            trial.step()
        (s,) = trial.simulations
        readouts = {} if s.method.readouts is None else s.method.readouts(s.config, s.fed, s.progress.state)
    return seen, 1 + len(readouts), 1 + len(s.method.other_networks)


@pytest.mark.parametrize(
    ("name", "executor"), [*((name, "loop") for name in METHODS), ("fedavg", "vmap"), ("dhf", "vmap")]
)
def test_a_round_waits_where_it_is_declared_and_a_step_does_not(name: str, executor: str, toy: Path) -> None:
    short, long = (
        second_round(name, values_for(name, toy, executor=executor, **SMALL | light(name) | dict.fromkeys(LENGTHS, n)))
        for n in (1, 2)
    )
    (seen, measured, own), clients, parts = short, SMALL["clients"], 2
    trainings = clients * (1 if registry.method(name).personal is None else 2)
    times = {
        "round": 1,
        "client": clients,
        "training": trainings,
        "client part": clients * own * parts,
        "model part": measured * parts,
    }
    for place, waits in seen.waits.items():
        assert place in WAITS, f"{place} waits {waits} times for the device in a round: {seen.noted}"
        most, per, _ = WAITS[place]
        assert waits <= most * times[per], (place, waits)
    assert seen.waits == long[0].waits  # twice the steps, and no wait more
    more = Counter(long[0].moved)
    more.subtract(seen.moved)
    for place, moved in (+more).items():
        assert place in MOVED_BY_STEPS, f"{place} takes {moved} tensors more to the device where steps are doubled"
        # Doubled iterations of doubled steps are four times as many: three more of them for each there was.
        assert moved <= 3 * MOST_BY_STEP * clients, (place, moved)


def test_no_place_is_declared_in_vain() -> None:
    """Every place of the tables is a function that there is."""
    names = [info.name for info in pkgutil.walk_packages(trainables.__path__, "trainables.")]
    for place in WAITS.keys() | MOVED_BY_STEPS.keys():
        module, *path = place.split(".")
        holders = [importlib.import_module(name) for name in names if name.endswith(f".{module}")]
        assert any(callable(attrgetter(".".join(path))(holder)) for holder in holders if hasattr(holder, path[0]))
