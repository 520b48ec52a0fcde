"""The executors: which is chosen, what is stacked with what, seeds together, and that no two clients share a tensor."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from search_spaces.errors import UserError
from tests.contracts.test_executors import assert_clients_as_exact, counts, start_alike, wide
from tests.contracts.test_methods import CPU, same, untimed, values_for
from tests.exact import MARGIN, assert_as_exact
from tests.float64 import in_float64
from trainables import models, registry
from trainables.federation import gather
from trainables.local import LocalJob, train
from trainables.method import Personal, stackable
from trainables.methods import fedavg
from trainables.params import put, unpack
from trainables.simulation import evaluation, executors
from trainables.simulation.cuda_graphs import Graphs
from trainables.simulation.executors import chosen, train_stacked
from trainables.simulation.replicates import Replicates
from trainables.simulation.rounds import Row, Simulation, choose_cohort, trained_together
from trainables.wire import ClientResult

pytestmark = pytest.mark.numeric


def simulation(name: str, toy: Path, seed: int = 3, **more: Any) -> Simulation:
    return Simulation(name, values_for(name, toy, **more), seed, CPU)


def results_of(s: Simulation, executor: str) -> list[ClientResult]:
    """What the clients of the next round yield."""
    calls = list(s._clients(s._cohort(), Counter()))
    if executor == "loop":
        return [s._client(call) for call in calls]
    return train_stacked([s._task(call) for call in calls])


def test_recorded_steps_need_a_gpu() -> None:
    with pytest.raises(
        UserError, match="executor must be auto, loop or vmap on a processor, which has no CUDA graphs, got 'graph'"
    ):
        executors.check("graph", CPU)
    executors.check("graph", torch.device("cuda"))
    for executor in ("auto", "loop", "vmap"):
        executors.check(executor, CPU)


def auto(name: str, toy: Path, device: str, **values: Any) -> str:
    """What `auto` means on this device."""
    configured = registry.configured(name, values_for(name, toy, **values))
    here = Simulation(name, values_for(name, toy, **values), 3, CPU)
    return chosen(configured.federation, here.method, configured.config, replace(here.fed, device=torch.device(device)))


@pytest.mark.parametrize("name", list(registry.methods()))
def test_auto_means_an_executor_that_the_method_has(name: str, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = registry.configured(name, values_for(name, toy)).config
    able = stackable(registry.method(name), config)
    assert auto(name, toy, "cuda") == ("vmap" if able else "loop")
    assert auto(name, toy, "cpu") == auto(name, toy, "cuda", executor="loop") == "loop"
    monkeypatch.setattr(executors, "FILLS", 0)
    assert auto(name, toy, "cuda") == ("graph" if able else "loop")


def server_is_recorded(name: str, toy: Path, device: str, **values: Any) -> bool:
    """Whether the steps of the server are recorded on this device."""
    here = Simulation(name, values_for(name, toy), 3, CPU)
    settings = replace(here.settings, **{"executor": "auto"} | values)
    fed = replace(here.fed, device=torch.device(device), model=settings.model)
    return executors.records_server(settings, here.method, fed)


@pytest.mark.parametrize("name", list(registry.methods()))
def test_a_server_is_recorded_on_a_gpu_however_its_clients_are_trained(name: str, toy: Path) -> None:
    """FedMD-CG's and DENSE's clients go one by one, and DFRD's are stacked."""
    able = registry.method(name).recordable_server
    assert [server_is_recorded(name, toy, "cuda", executor=e) for e in ("auto", "vmap", "graph", "loop")] == [
        able,
        able,
        able,
        False,
    ]
    assert not server_is_recorded(name, toy, "cpu")
    assert not server_is_recorded(name, toy, "cuda", model="/some/net.py:Net")


def test_methods_whose_servers_take_steps_are_recorded() -> None:
    """All of them: FedKF's server takes none, and the others average."""
    assert {name for name in registry.methods() if registry.method(name).recordable_server} == {
        *("dfrd", "fedftg", "dense", "dhf", "fedmdcg", "fedcg", "fedgen", "fedgh", "fedtgp"),
    }


def test_auto_records_steps_that_fill_a_gpu(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the largest model of the federation that counts, and the size of a batch."""
    small, values = Simulation("fedavg", values_for("fedavg", toy, model="cnn"), 3, CPU).fed, {"model": "cnn"}
    of_one = executors.operations(small.built("cnn"), small.shape, 1)
    monkeypatch.setattr(executors, "FILLS", 4 * of_one)
    assert [auto("fedavg", toy, "cuda", batch_size=size, **values) for size in (3, 4)] == ["vmap", "graph"]
    assert auto("fedavg", toy, "cpu", batch_size=4, **values) == "loop"
    monkeypatch.setattr(executors, "FILLS", executors.operations(small.built("resnet10"), small.shape, 4))
    mixed = {"model": "cnn2", "deep_model": "resnet10", "nu": 0.5, "batch_size": 4}
    assert auto("fedproto", toy, "cuda", **mixed) == "graph"
    assert auto("fedproto", toy, "cuda", **mixed | {"deep_model": "cnn3"}) == "vmap"


@pytest.mark.parametrize("took", ["loop", "vmap"])
def test_rows_say_what_auto_took_instead_of_a_loop(took: str, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU it takes no other, so here the choice is that of a GPU; one that was asked for is in the values."""
    asked = untimed(simulation("fedavg", toy, executor=took).run_round())
    monkeypatch.setattr(executors, "chosen", lambda *_: took)
    found = untimed(simulation("fedavg", toy, executor="auto").run_round())
    assert "executor" not in asked
    assert found == asked | ({} if took == "loop" else {"executor": took})


@pytest.mark.parametrize(
    ("model", "shape", "batch", "fills"),
    [
        ("cnn", (1, 28, 28), 16, False),
        ("lenet5", (1, 28, 28), 256, False),
        ("cnn_small", (1, 28, 28), 64, True),
        ("resnet8", (3, 32, 32), 16, True),
    ],
)
def test_what_fills_a_gpu_is_what_was_faster_recorded(
    model: str, shape: tuple[int, int, int], batch: int, fills: bool
) -> None:
    """Of the table "Steps of different sizes" in docs/performance.md, those on both sides of the line."""
    assert (executors.operations(models.build(model, shape, 10), shape, batch) >= executors.FILLS) is fills


def test_operations_are_those_of_the_layers() -> None:
    """Two for every product of a convolution and of a linear layer; counted without computing one."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(5 * 8 * 8, 7))
    assert executors.operations(net, (3, 8, 8), 5) == 2 * 5 * (5 * 3 * 9 * 8 * 8 + 5 * 8 * 8 * 7)
    # LeNet-5, as LeCun et al. 1998 count its connections without biases (and with all of S2's maps in C3).
    lenet = 6 * 25 * 28 * 28 + 16 * 6 * 25 * 10 * 10 + 400 * 120 + 120 * 84 + 84 * 10
    for batch in (1, 64):
        assert executors.operations(models.build("lenet5", (1, 28, 28), 10), (1, 28, 28), batch) == 2 * batch * lenet


def test_dense_is_stacked_only_without_batch_statistics(toy: Path) -> None:
    with pytest.raises(
        UserError,
        match="executor must be loop or auto for dense, whose clients do more than one run of SGD steps in this "
        "configuration",
    ):
        registry.resolve("dense", values_for("dense", toy, executor="vmap"))
    registry.resolve("dense", values_for("dense", toy, executor="vmap", beta_bn=0))


def test_ditto_is_stacked_only_where_both_tracks_are_equally_long(toy: Path) -> None:
    with pytest.raises(UserError, match="for ditto, whose clients do more than one run of SGD steps"):
        registry.resolve("ditto", values_for("ditto", toy, executor="vmap", personal_epochs=1))
    registry.resolve("ditto", values_for("ditto", toy, executor="vmap", personal_epochs=0))


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_clients_never_share_a_tensor(executor: str, toy: Path) -> None:
    """Uploads, client states and the server's state stand in memory of their own: changing one changes no other."""
    s = simulation("local", toy)
    s.run_round()
    t = simulation("fedavg", toy)
    for sim in (s, t):
        done = results_of(sim, executor)
        models = [r.model for r in done if r.model is not None]
        storages = [tensor.untyped_storage().data_ptr() for model in models for tensor in model.values()]
        assert len(set(storages)) == len(storages)
        before = [{k: v.clone() for k, v in model.items()} for model in models]
        for tensor in models[0].values():
            tensor.add_(1.0)
        for p in sim.fed.network().parameters():
            p.data.add_(1.0)
        assert all(same(model, kept) for model, kept in zip(models[1:], before[1:], strict=True))


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_a_client_alone_gets_what_it_gets_in_company(executor: str, toy: Path) -> None:
    """Each client trains on the weights it was sent, whoever trained before it or beside it: an alias would show
    here."""
    s = simulation("fedavg", toy, momentum=0.9)
    exact = wide("fedavg", values_for("fedavg", toy, momentum=0.9))
    start_alike(exact, s)
    start = s.progress.state.model
    together = dict(enumerate(results_of(s, executor)))
    alone = {}
    for call in s._clients(s._cohort(), Counter()):
        t = simulation("fedavg", toy, momentum=0.9)  # with modules of its own
        alone[call.data.client] = s.method.client(s.config, t.fed, call.payload, None, call.data, call.rng)
    for client, result in alone.items():
        assert result.model is not None and not any(
            torch.equal(tensor, start[name]) for name, tensor in result.model.items()
        )
        if executor == "loop":  # the same operations
            assert same(together[client].model, result.model)
    assert any(assert_clients_as_exact(together, alone, exact))


@pytest.mark.parametrize("model", ["lenet_code", "resnet8", "resnet10"])  # batch and group normalisation
def test_stacked_maps_are_laid_out_plainly(model: str, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's normalisation asks for maps in the layout of its input, and vmap can only give the plain one."""
    plain: list[bool] = []

    def spied(real: Any, x: torch.Tensor, *given: Any, **more: Any) -> Any:
        plain.append(x.stride()[1:] == (x.shape[2] * x.shape[3], x.shape[3], 1))
        return real(x, *given, **more)

    for name in ("batch_norm", "group_norm", "conv2d"):
        monkeypatch.setattr(F, name, partial(spied, getattr(F, name)))
    s = simulation("fedavg", toy, model=model)
    results_of(s, "vmap")
    assert plain and all(plain)


@pytest.mark.parametrize(("room", "calls"), [(1, 5), (2 * 3 * 4, 3), (1 << 20, 1)])
def test_batches_are_gathered_for_as_many_steps_as_there_is_room_for(
    room: int, calls: int, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five steps of three clients with batches of four; at least one step at a time, and the numbers stay."""
    more = {"clients": 3, "batch_size": 4, "local_steps": 5, "partition": "iid"}
    expected = results_of(simulation("fedavg", toy, **more), "vmap")
    seen: list[int] = []

    def spied(clients: Any, chosen: torch.Tensor) -> Any:
        seen.append(chosen.shape[1] // 4)
        return gather(clients, chosen)

    monkeypatch.setattr(executors, "GATHER", room)
    monkeypatch.setattr(executors, "gather", spied)
    found = results_of(simulation("fedavg", toy, **more), "vmap")
    assert len(seen) == calls and sum(seen) == 5
    assert same([r.model for r in found], [r.model for r in expected])


def test_simulations_in_threads_do_not_touch_each_other(toy: Path) -> None:
    """Two trials of one process, side by side, give what each gives by itself."""
    alone = [[untimed(s.run_round()) for _ in range(3)] for s in (simulation("fedavg", toy, seed) for seed in (1, 2))]
    found: dict[int, list[Any]] = {}

    def run(seed: int) -> None:
        torch.set_num_threads(1)
        s = simulation("fedavg", toy, seed)
        found[seed] = [untimed(s.run_round()) for _ in range(3)]

    threads = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[1], found[2]] == alone


@pytest.mark.parametrize(
    ("name", "more"), [("fedavg", {}), ("fedprox", {}), ("fedgkd", {"buffer": 1}), ("heterofl", {"rho": 5})]
)
def test_seeds_are_one_more_batch_dimension(
    name: str, more: dict[str, Any], toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds stacked give what each gives by itself, in as many programs as there are shapes."""
    groups: list[int] = []
    train_group = executors._train_group
    monkeypatch.setattr(
        executors,
        "_train_group",
        lambda tasks, drawn: groups.append(len(tasks)) or train_group(tasks, drawn),
    )
    values = {"partition": "iid", **more}
    pair, loops = ([simulation(name, toy, seed, executor=e, **values) for seed in (1, 2)] for e in ("vmap", "loop"))
    exact = [wide(name, values_for(name, toy, **values), seed) for seed in (1, 2)]
    for _ in range(2):
        for e, s, t in zip(exact, pair, loops, strict=True):
            start_alike(e, s, t)
        groups.clear()
        trained = trained_together(pair)
        assert sum(groups) == 8 and all(size % 2 == 0 for size in groups)
        for e, t, s in zip(exact, loops, pair, strict=True):
            (row, results), (expected, clients) = s.exchange(trained[s]), t.exchange()
            assert any(assert_clients_as_exact(results, clients, e))
            assert counts(s._measured(row, results)) == counts(t._measured(expected, clients))


def test_a_loop_of_several_simulations_is_each_by_itself(toy: Path) -> None:
    rows = Replicates("fedavg", values_for("fedavg", toy), (1, 2)).step()
    assert [untimed(r) for r in rows] == [untimed(simulation("fedavg", toy, seed).run_round()) for seed in (1, 2)]


def test_equal_shapes_share_a_program_and_others_do_not(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths and batch sizes keep clients apart; a client smaller than the batch has a batch of its own size."""
    groups: list[tuple[int, ...]] = []
    train_group = executors._train_group
    monkeypatch.setattr(
        executors,
        "_train_group",
        lambda tasks, drawn: groups.append(tuple(drawn.shape)) or train_group(tasks, drawn),
    )
    s = simulation("heterofl", toy, executor="vmap", rho=4, sigma=1, partition="iid")
    assert s.fed.widths == (0.5, 0.5, 0.5, 0.5)
    s.run_round()
    assert groups == [(4, 2, 16)]
    groups.clear()
    s = simulation("fedavg", toy, executor="vmap", batch_size=200)
    s.run_round()
    assert sorted(b for _, _, b in groups) == sorted(set(s.fed.sizes)) and sum(k for k, _, _ in groups) == 4


def tuning(epochs: int, seen: list[Any] | None = None) -> Personal:
    """FedAvg's training over again, `epochs` passes long; what its job is given is noted in `seen`."""

    def job(*given: Any) -> LocalJob:
        if seen is not None:
            seen.append(given)
        return fedavg.job(*given)

    return Personal(lambda config: replace(config, local_epochs=epochs, lr=0.03) if epochs else None, job)


def simulated(toy: Path, personal: Personal | None, **more: Any) -> Simulation:
    s = Simulation("fedavg", values_for("fedavg", toy, **more), 3, CPU)
    s.method = replace(s.method, personal=personal)
    return s


def rows(s: Simulation, rounds: int) -> list[Row]:
    return [untimed(s.run_round()) for _ in range(rounds)]


def test_local_accuracy_is_that_of_the_servers_new_model_fine_tuned_on_training_data(toy: Path) -> None:
    seen: list[Any] = []
    s = simulated(toy, tuning(2, seen), active_clients=3, client_test_fraction=0.25)
    row = rows(s, 1)[0]
    cohort = choose_cohort(s.settings, s.fed.rng, 1).clients
    assert [data.client for *_, data, _ in seen] == list(cohort)
    test = s.data.test
    assert test.own is not None
    hits, counted = 0, 0
    for config, fed, payload, kept, data, rng in seen:
        assert (config.local_epochs, config.lr, fed, kept) == (2, 0.03, s.fed, None)
        assert same(unpack("model", payload), s.progress.state.model)
        assert data is s.data.clients[data.client]
        assert rng == s.fed.rng.child("round", 1, "personal", data.client)
        module = s.fed.network()
        put(module, s.progress.state.model)
        train(config, module, data, rng)
        own = test.own[data.client]
        right = evaluation.logits_of(module, s.data, test, own).argmax(dim=1) == test.y[own]
        assert row["local_accuracies"][data.client] == float(right.double().mean())
        hits, counted = hits + int(right.sum()), counted + len(own)
    assert row["p_acc"] == hits / counted
    trained_only = rows(simulated(toy, None, active_clients=3, client_test_fraction=0.25), 1)[0]
    assert row["local_accuracies"] != trained_only["local_accuracies"]


def test_no_configuration_no_fine_tuning(toy: Path) -> None:
    assert rows(simulated(toy, tuning(0)), 2) == rows(simulated(toy, None), 2)


@pytest.mark.numeric
def test_measuring_leaves_nothing_behind(toy: Path) -> None:
    """Neither in what is saved nor in a later round, which is the same whether the rounds before were measured."""
    tuned, plain = simulated(toy, tuning(1), rounds=4), simulated(toy, None, rounds=4)
    seldom = simulated(toy, tuning(1), rounds=4, eval_every=4)
    measured, others, last = rows(tuned, 4), rows(plain, 4), rows(seldom, 4)[-1]
    assert same(tuned.save(), plain.save()) and same(tuned.save(), seldom.save())
    assert measured[-1] == last
    unlike = {key for a, b in zip(measured, others, strict=True) for key in a if a[key] != b[key]}
    assert unlike == {"local_accuracies", "local_accuracy", "val_local_accuracy"}  # not the bytes, not the average


def test_clients_whose_upload_was_lost_are_not_measured(toy: Path) -> None:
    row = rows(simulated(toy, tuning(1), stragglers=1.0), 1)[0]
    assert Counter(a is None for a in row["local_accuracies"]) == {True: 3, False: 1}


@pytest.mark.numeric
def test_recorded_steps_are_measured_by_the_loops_fine_tuning(toy: Path) -> None:
    loop, recorded = (simulated(toy, tuning(2), executor="loop") for _ in range(2))
    recorded.graphs = Graphs(recorded.config, lambda step: step)
    recorded.executor = "graph"
    assert rows(recorded, 2) == rows(loop, 2)


@pytest.mark.numeric
def test_stacked_clients_fine_tune_on_the_loops_batches(toy: Path) -> None:
    loop, stacked = (simulated(toy, tuning(2), executor=e) for e in ("loop", "vmap"))
    exact = wide("fedavg", values_for("fedavg", toy))
    exact.method = loop.method
    start_alike(exact, loop, stacked)
    with in_float64() as mode:
        expected = exact._fine_tuned([0, 2, 3])
    assert_as_exact(stacked._fine_tuned([0, 2, 3]), loop._fine_tuned([0, 2, 3]), expected, decided=mode.margin > MARGIN)
    assert expected is not None and not same(expected[0], expected[2])
    row, other = untimed(stacked.run_round()), untimed(loop.run_round())
    assert counts(row) == counts(other)
