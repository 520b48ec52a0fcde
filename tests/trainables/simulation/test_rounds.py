"""Federation, cohorts, averaging, evaluation: expected values by hand or in NumPy."""

from __future__ import annotations

import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from search_spaces.errors import UserError
from tests.contracts.test_methods import simulate, untimed, values_for
from trainables import registry
from trainables.data import partition as dealing
from trainables.federation import FederationConfig
from trainables.local import LocalTraining, draw_batches
from trainables.params import equal, is_same, put, versions
from trainables.rng import Rng
from trainables.simulation import evaluation, federated_data, rounds
from trainables.simulation.rounds import Simulation, choose_cohort


def test_fedkf_table_2() -> None:
    """FedKF Table II: three clients of equal weight; amp, fm, wlp."""
    for accuracies, amp, fm, wlp in (
        ((0.6, 0.7, 0.8), 0.7, 0.00667, 0.6),
        ((0.65, 0.65, 0.8), 0.7, 0.005, 0.65),
        ((0.7, 0.8, 0.9), 0.8, 0.00667, 0.7),
    ):
        got = evaluation.fairness(torch.tensor(accuracies, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
        assert (
            got["amp"] == pytest.approx(amp)
            and got["fm"] == pytest.approx(fm, abs=5e-6)
            and got["wlp"] == pytest.approx(wlp)
        )


def test_label_mix_accuracy() -> None:
    right = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 1, 1])  # class 0: 1/2 right, class 1: 2/3 right, class 2: not measured
    counts = torch.tensor([[4, 0, 0], [1, 3, 5], [0, 2, 0], [0, 0, 7]])
    np.testing.assert_allclose(
        evaluation.label_mix_accuracy(right, y, counts).numpy(), [0.5, (0.5 + 3 * 2 / 3) / 4, 2 / 3, np.nan]
    )


def test_parameters_are_equal_by_names_shapes_and_values() -> None:
    one = {"a": torch.ones(2), "b": torch.zeros(2, 2)}
    assert equal(one, {name: tensor.clone() for name, tensor in one.items()}) and equal({}, {})
    for other in (
        {"a": torch.ones(2)},
        one | {"c": torch.ones(1)},
        one | {"a": torch.ones(1)},
        one | {"b": torch.tensor([[0.0, 0.0], [0.0, 1.0]])},
    ):
        assert not equal(one, other) and not equal(other, one)


def test_batches_are_shuffles_laid_end_to_end() -> None:
    drawn = draw_batches(LocalTraining(local_steps=5, batch_size=4), 10, 1.0, Rng(0))
    assert drawn.shape == (5, 4)
    assert sorted(drawn.flatten()[:10].tolist()) == list(range(10)) == sorted(drawn.flatten()[10:].tolist())
    assert draw_batches(LocalTraining(local_epochs=3, batch_size=4), 10, 1.0, Rng(0)).shape == (6, 4)
    assert draw_batches(LocalTraining(local_steps=8, batch_size=64), 10, 0.5, Rng(0)).shape == (4, 10)


def test_cohort_participation_and_stragglers() -> None:
    settings = FederationConfig(clients=10, active_clients=4)
    seen = [choose_cohort(settings, Rng(0), t).clients for t in range(1, 200)]
    assert all(len(set(c)) == 4 and list(c) == sorted(c) for c in seen)
    frequency = np.bincount(np.array(seen).ravel(), minlength=10) / len(seen)
    np.testing.assert_allclose(frequency, 0.4, atol=0.12)
    lost = [choose_cohort(FederationConfig(clients=10, stragglers=0.5), Rng(0), t).step_shares for t in range(200)]
    assert np.mean(np.array(lost) == 0) == pytest.approx(0.5, abs=0.05)
    assert sum(choose_cohort(FederationConfig(clients=3, stragglers=1.0), Rng(0), 1).step_shares) == 1.0


def test_a_stragglers_upload_is_lost_or_its_work_is_less(toy: Path) -> None:
    _, rows = simulate("fedavg", toy, 1)
    _, lossy = simulate("fedavg", toy, 1, stragglers=1.0)
    assert lossy[0]["bytes_up"] == rows[0]["bytes_up"] // 4 and lossy[0]["bytes_down"] == rows[0]["bytes_down"]
    _, slow = simulate("fedavg", toy, 1, stragglers=1.0, straggler_work=0.5, local_steps=4)
    _, brisk = simulate("fedavg", toy, 1, local_steps=2)
    assert slow == brisk
    assert sum(v is not None for v in lossy[0]["local_accuracies"]) == 1


@pytest.mark.parametrize("fraction", [0.0, 0.25])
def test_validation_train_and_test_are_disjoint_and_complete(fraction: float, toy: Path) -> None:
    config = FederationConfig(
        dataset=str(toy), clients=4, omega=1.0, validation_fraction=0.1, client_test_fraction=fraction, min_samples=4
    )
    fed, data = federated_data.build(config, 0, torch.device("cpu"))
    train = torch.cat([c.indices for c in data.clients]).tolist()
    assert data.validation is not None
    parts = [train, data.validation.indices.tolist(), data.test.indices.tolist()]
    assert len(set().union(*map(set, parts))) == sum(map(len, parts)) == (320 if fraction == 0 else 240)
    assert (
        data.validation.own is not None if fraction else np.bincount(data.validation.y.numpy()).tolist() == [6, 6, 6, 6]
    )
    assert sorted(torch.cat(data.test.shares).tolist()) == list(range(len(data.test.indices)))
    assert fed.sizes == tuple(len(c) for c in data.clients)
    if fraction:
        assert data.test.own is not None
        for client, own, held in zip(data.clients, data.test.own, data.validation.own or (), strict=True):
            total = len(client) + len(own) + len(held)
            assert len(own) == round(fraction * total) and len(held) == max(1, round(0.1 * (total - len(own))))
            labels = torch.cat([client.y, data.test.y[own], data.validation.y[held]])
            assert len(labels) == total
    else:
        for share in data.test.shares:
            assert np.bincount(data.test.y[share].numpy(), minlength=4).tolist() == [5, 5, 5, 5]


def test_dir_pfl_deals_train_and_test_together(toy: Path) -> None:
    config = FederationConfig(
        dataset=str(toy), clients=2, partition="dir_pfl", omega=1.0, validation_fraction=0.0, client_test_fraction=0.25
    )
    _, data = federated_data.build(config, 0, torch.device("cpu"))
    everything = torch.cat([c.indices for c in data.clients] + [data.test.indices])
    assert sorted(everything.tolist()) == list(range(320))
    with pytest.raises(UserError, match="client_test_fraction must be above 0"):
        federated_data.build(FederationConfig(dataset=str(toy), partition="dir_pfl"), 0, torch.device("cpu"))


def test_seed_k_deals_the_same_cards_to_every_configuration(toy: Path) -> None:
    a, b = (
        Simulation(m, values_for(m, toy, lr=lr), 5, torch.device("cpu")) for m, lr in (("fedavg", 0.1), ("dfrd", 0.01))
    )
    assert a.data.fingerprint == b.data.fingerprint
    assert all(torch.equal(a.progress.state.model[k], b.progress.state.model[k]) for k in a.progress.state.model)
    c = Simulation("fedavg", values_for("fedavg", toy), 6, torch.device("cpu"))
    assert c.data.fingerprint != a.data.fingerprint


def test_evaluation_can_be_rare_but_never_misses_the_last_round(toy: Path) -> None:
    _, rows = simulate("fedavg", toy, 4, eval_every=3)
    assert ["global_accuracy" in r for r in rows] == [False, False, True, True]


@pytest.mark.parametrize(
    ("method", "values", "times"),
    [
        ("fedavg", {}, 4),  # another model after every round
        ("fedavg", {"lr": 1e-6, "active_clients": 1}, 4),  # also where it has hardly changed
        ("fedkf", {}, 8),  # two readouts; the global model is one of them
        ("dhf", {"model": "cnn2", "gme_interval": 3, "server_iters": 1}, 3),  # first, third and last round
    ],
)
def test_a_global_model_is_measured_once_and_the_rows_are_the_same(
    method: str, values: dict[str, object], times: int, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[object] = []

    def counted(*arguments: object) -> object:
        measured.append(1)
        return whole(*arguments)  # type: ignore[arg-type]

    def rows() -> list[dict[str, object]]:
        return simulate(method, toy, 4, rounds=4, clients=2, local_steps=1, **values)[1]

    whole = evaluation.global_metrics
    monkeypatch.setattr(evaluation, "global_metrics", counted)
    found = rows()
    assert len(measured) == times
    monkeypatch.setattr(rounds, "is_same", lambda *_: False)
    assert rows() == found and len(measured) > 2 * times - (method == "fedavg")


def test_a_model_that_is_changed_in_place_is_measured_again() -> None:
    """No method of ours does; one of the user's own might."""
    params = {"a": torch.ones(2), "b": torch.zeros(2, 2)}
    before = versions(params)
    assert is_same(before, versions(dict(params)))
    assert not is_same(before, versions({"a": params["a"], "b": params["b"].clone()}))
    assert not is_same(before, versions({"a": params["a"], "c": params["b"]}))
    assert not is_same(before, versions({"a": params["a"]}))
    put(types.SimpleNamespace(state_dict=lambda: params), {name: tensor + 1 for name, tensor in params.items()})  # type: ignore[arg-type]
    assert not is_same(before, versions(params))
    with torch.inference_mode():
        unseen = {"a": torch.ones(2)}
    assert not is_same(versions(unseen), versions(unseen))


@pytest.fixture
def improving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Federations whose accuracy is measured as 0.1 after round 1, 0.2 after round 2 and so on; on validation data it
    is ahead by one round."""

    def measured(self: Simulation, *_: object) -> dict[str, float]:
        t = self.progress.round
        return {"global_accuracy": t / 10, "val_global_accuracy": (t + 1) / 10}

    monkeypatch.setattr(Simulation, "_evaluate", measured)


@pytest.mark.parametrize(
    ("target", "test", "validation"), [(0.1, 1, 1), (0.15, 2, 1), (0.4, 4, 3), (0.5, None, 4), (0.51, None, None)]
)
def test_bytes_to_target_are_those_of_all_rounds_until_then(
    toy: Path, improving: None, target: float, test: int | None, validation: int | None
) -> None:
    """FedAvg sends four clients the model and has it back, whatever happens in a round: 4 bytes a weight. Given are the
    rounds in which a target is reached: among them the last one, and none."""
    s, rows = simulate("fedavg", toy, 4, rounds=4, target=target)
    each = 2 * 4 * 4 * sum(p.numel() for p in s.fed.network().parameters())
    for prefix, reached in (("", test), ("val_", validation)):
        before = 4 if reached is None else reached - 1
        assert [r[f"{prefix}rounds_to_target"] for r in rows] == [None] * before + [reached] * (4 - before)
        sent = None if reached is None else reached * each
        assert [r[f"{prefix}bytes_to_target"] for r in rows] == [None] * before + [sent] * (4 - before)


def test_bytes_to_target_go_on_after_a_checkpoint(toy: Path, improving: None) -> None:
    values = values_for("fedavg", toy, rounds=3, target=0.3)
    begun = Simulation("fedavg", values, 3, torch.device("cpu"))
    rows = [begun.run_round(), begun.run_round()]
    assert [row["bytes_to_target"] for row in rows] == [None, None]
    assert [row["val_bytes_to_target"] for row in rows] == [None, sum(r["bytes_up"] + r["bytes_down"] for r in rows)]
    again = Simulation("fedavg", values, 3, torch.device("cpu"))
    again.load(begun.save())
    last = again.run_round()
    assert last["bytes_to_target"] == sum(r["bytes_up"] + r["bytes_down"] for r in (*rows, last))
    assert last["val_bytes_to_target"] == rows[1]["val_bytes_to_target"]


def test_the_virtual_model_of_fedavg_is_its_global_model(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, rows = simulate("fedavg", toy, 1)
    assert (
        rows[0]["g_acc_virtual"] == rows[0]["global_accuracy"]
        and rows[0]["val_g_acc_virtual"] == rows[0]["val_global_accuracy"]
    )
    # Known to be equal it is not measured again; measured again it is the same.
    measured: list[str] = []
    accuracy = evaluation.accuracy
    monkeypatch.setattr(evaluation, "accuracy", lambda *a: measured.append(a[2]) or accuracy(*a))
    _, known = simulate("fedavg", toy, 1)
    assert measured == []
    monkeypatch.setattr("trainables.simulation.rounds.equal", lambda one, other: False)
    _, anew = simulate("fedavg", toy, 1)
    assert measured == ["g_acc_virtual"] and anew[0]["g_acc_virtual"] == known[0]["g_acc_virtual"]


def test_personal_accuracy_pools_clients_own_samples(toy: Path) -> None:
    s, rows = simulate("fedavg", toy, 1, client_test_fraction=0.25)
    own = s.data.test.own
    assert own is not None
    hits = sum(a * len(o) for a, o in zip(rows[0]["local_accuracies"], own, strict=True))
    assert rows[0]["p_acc"] == pytest.approx(hits / sum(map(len, own)))
    assert rows[0]["p_acc_global"] == pytest.approx(rows[0]["amp"]) == rows[0]["global_accuracy"]


def test_a_client_too_small_to_keep_a_sample_is_left_out_of_fairness(toy: Path) -> None:
    config = FederationConfig(dataset=str(toy), clients=4, omega=1.0, client_test_fraction=0.25, min_samples=4)
    fed, data = federated_data.build(config, 0, torch.device("cpu"))
    assert data.validation is not None and data.validation.own is not None
    none = torch.empty(0, dtype=torch.int64)
    data = replace(data, validation=replace(data.validation, own=(none, *data.validation.own[1:])))
    metrics = evaluation.global_metrics(fed.network(), data).metrics
    assert all(np.isfinite(metrics[name]) for name in ("val_amp", "val_fm", "val_wlp", "amp", "fm", "wlp"))


def test_confusion_counts_every_sample_under_its_class_and_what_it_is_taken_for(toy: Path) -> None:
    """Against the samples one by one, whose predictions are those behind global accuracy."""
    s = Simulation("fedavg", values_for("fedavg", toy, lr=0.1), 0, torch.device("cpu"))
    row = s.run_round()
    found = s.confusion()
    assert found is not None and s.data.validation is not None
    for name, prefix, part in (("test", "", s.data.test), ("validation", "val_", s.data.validation)):
        logits = evaluation.logits_of(s._loaded(s.global_model() or {}), s.data, part, torch.arange(len(part.indices)))
        expected = np.zeros((s.fed.classes, s.fed.classes), dtype=int)
        for of, one in zip(part.y.tolist(), logits.tolist(), strict=True):
            expected[of, max(range(len(one)), key=one.__getitem__)] += 1
        assert np.array_equal(found[name].numpy(), expected) and not np.array_equal(expected, expected.T)
        assert np.trace(expected) / expected.sum() == pytest.approx(row[f"{prefix}global_accuracy"])
    assert Simulation("local", values_for("local", toy), 0, torch.device("cpu")).confusion() is None


@pytest.mark.parametrize(("eval_every", "more"), [(1, 0), (3, 2)])
def test_confusion_asks_the_model_only_where_its_round_was_not_measured(
    eval_every: int, more: int, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for the validation share and once for the test set."""
    asked: list[object] = []
    logits_of = evaluation.logits_of
    monkeypatch.setattr(evaluation, "logits_of", lambda *given: (asked.append(1), logits_of(*given))[1])
    s = Simulation("fedavg", values_for("fedavg", toy, rounds=3, eval_every=eval_every), 0, torch.device("cpu"))
    s.run_round()
    before = len(asked)
    assert s.confusion() is not None and len(asked) - before == more


def test_partial_participation_measures_those_who_trained(toy: Path) -> None:
    _, rows = simulate("fedavg", toy, 1, active_clients=2)
    assert sum(v is not None for v in rows[0]["local_accuracies"]) == 2


@pytest.mark.parametrize(
    ("clients", "would_do"),
    [(50, "clients=21 or --set min_samples=4."), (217, "clients=21."), (22, "clients=21 or --set min_samples=9.")],
)
def test_too_many_clients_are_refused_with_what_would_do(clients: int, would_do: str, toy: Path) -> None:
    """Of 240 training samples 24 are for validation; 216 are dealt, at least 10 to each."""

    def built(**changed: int) -> int:
        return federated_data.build(FederationConfig(dataset=str(toy), **changed), 0, torch.device("cpu"))[0].clients  # type: ignore[arg-type]

    with pytest.raises(UserError) as refused:
        built(clients=clients)
    assert str(refused.value).endswith(f"What would do: --set {would_do}")
    assert built(clients=21) == 21
    if "min_samples" in would_do:
        assert built(clients=clients, min_samples=int(would_do[-2])) == clients


@pytest.mark.parametrize(
    ("partition", "kept", "share", "samples", "least"),
    [
        ("iid", 0.0, 0.1, 240 - 4 * 6, 5),
        ("iid", 0.0, 0.11, 240 - 4 * 7, 4),  # 0.11 · 60 rounded for every class, which is 212 and not 213
        ("dir_class", 0.25, 0.1, 240, 1),  # nothing is cut before
        ("dir_dominant", 0.0, 0.0, 240, 2),
        ("dir_pfl", 0.25, 0.1, 240 + 80, 10),
        ("dir_pfl", 0.25, 0.1, 240 + 80, 2),
    ],
)
def test_the_check_refuses_what_the_partition_cannot_deal_and_nothing_else(
    partition: str, kept: float, share: float, samples: int, least: int, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """240 training and 80 test samples of four classes. As many clients as they suffice for are dealt to, of one more
    the check says how many would do, and without it the partition itself refuses."""
    config = FederationConfig(
        dataset=str(toy),
        partition=partition,
        omega=100.0,
        min_samples=least,
        client_test_fraction=kept,
        validation_fraction=share,
    )
    most = samples // least
    monkeypatch.setattr(dealing, "DRAWS", 30)

    def built(clients: int) -> int:
        return federated_data.build(replace(config, clients=clients), 0, torch.device("cpu"))[0].clients

    assert built(most) == most
    with pytest.raises(UserError, match=f"clients × min_samples must be at most {samples}, .* --set clients={most}"):
        built(most + 1)
    monkeypatch.setattr(federated_data, "check", lambda config, source: None)
    with pytest.raises(UserError, match=f"clients must be at most {most}, for each to hold at least {least} of the"):
        built(most + 1)


def test_dir_pfl_gives_nobody_a_single_sample(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "DRAWS", 30)
    config = FederationConfig(
        dataset=str(toy), partition="dir_pfl", omega=100.0, min_samples=1, client_test_fraction=0.25
    )

    def built(clients: int) -> int:
        return federated_data.build(replace(config, clients=clients), 0, torch.device("cpu"))[0].clients

    assert built(160) == 160
    with pytest.raises(UserError, match=r"must be at most 320, .* got 322\. What would do: --set clients=160\.$"):
        built(161)


def test_impossible_federations_are_refused_in_one_go(toy: Path) -> None:
    with pytest.raises(UserError) as error:
        registry.resolve("fedavg", {"rho": 5, "dataset": str(toy)})
    assert "rho must be 0 for fedavg" in str(error.value) and "fedrolex" in str(error.value)
    with pytest.raises(UserError, match="rho must be 0 when base is fedavg"):
        registry.resolve("dfrd", {"rho": 5})
    with pytest.raises(UserError) as error:
        federated_data.build(
            FederationConfig(dataset=str(toy), active_clients=20, partition="pathological", classes_per_client=9),
            0,
            torch.device("cpu"),
        )
    assert len(error.value.problems) == 2
    with pytest.raises(
        UserError, match="validation_fraction must be large enough to hold a sample of the largest class, which has 60"
    ):
        federated_data.build(FederationConfig(dataset=str(toy), validation_fraction=0.001), 0, torch.device("cpu"))
    with pytest.raises(UserError, match="Did you mean 'dfrd'"):
        registry.method("dfdr")


def test_clients_that_trained_nothing_have_no_part_in_the_training_loss(toy: Path) -> None:
    simulation = Simulation("fedavg", values_for("fedavg", toy), 3, torch.device("cpu"))
    a, b = simulation.fed.sizes[:2]
    some = simulation._client_means({0: {"train_loss": 0.5}, 1: {"train_loss": 2.0}, 2: {"train_loss": None}})
    assert some == {"train_loss": pytest.approx((0.5 * a + 2.0 * b) / (a + b))}
    assert simulation._client_means({0: {"train_loss": None}, 1: {}}) == {}


def test_a_partition_seed_deals_the_same_data_to_every_seed(toy: Path) -> None:
    """Clients, validation and shares of the test set are those that this seed has by itself; weights are the seed's."""

    def dealt(seed: int, partition_seed: int) -> Simulation:
        values = values_for("fedavg", toy, partition_seed=partition_seed)
        return Simulation("fedavg", values, seed, torch.device("cpu"))

    one, two, own = dealt(0, 7), dealt(1, 7), dealt(7, -1)
    assert one.data.fingerprint == two.data.fingerprint == own.data.fingerprint != dealt(0, -1).data.fingerprint
    for part in ("test", "validation"):
        first, second = getattr(one.data, part), getattr(own.data, part)
        assert torch.equal(first.indices, second.indices)
        assert all(torch.equal(a, b) for a, b in zip(first.shares, second.shares, strict=True))
    weights = [equal(one.global_model() or {}, other.global_model() or {}) for other in (two, dealt(0, -1))]
    assert weights == [False, True]


@pytest.mark.parametrize(("method", "values"), [("fedavg", {"active_clients": 2}), ("fedkf", {}), ("fedrod", {})])
def test_the_test_set_is_measured_at_the_end_only(method: str, values: dict[str, object], toy: Path) -> None:
    """What is measured is what every evaluation would have measured; a round after which a trial may end is like a last
    one, and a last one that is no longer the last is as it would have been."""

    def told(after: int, **further: object) -> list[dict[str, object]]:
        simulation = Simulation(method, values_for(method, toy, rounds=3, **values, **further), 0, torch.device("cpu"))
        simulation.may_end = lambda t: t == after
        return [untimed(simulation.run_round()) for _ in range(3)]

    def on_test(row: dict[str, object]) -> set[str]:
        return {key for key in row if f"val_{key}" in row} | {"client_accuracy", "local_accuracies"} & set(row)

    every, end, early = told(0), told(0, eval_test="end"), told(2, eval_test="end")
    assert {"global_accuracy", "wlp", "local_accuracy", "client_accuracy"} <= on_test(every[0])
    assert [bool(on_test(row)) for row in end] == [False, False, True]
    assert [bool(on_test(row)) for row in early] == [False, True, True]
    assert early[1:] == every[1:] and end[2] == every[2]
    assert all(rare == {k: v for k, v in row.items() if k in rare} for rare, row in zip(end, every, strict=True))
    assert all(set(row) - set(rare) <= on_test(row) for rare, row in zip(end, every, strict=True))
    longer = Simulation(method, values_for(method, toy, rounds=4, **values, eval_test="end"), 0, torch.device("cpu"))
    assert [longer.planned(row) for row in end] == [*end[:2], {k: v for k, v in end[2].items() if k in end[1]}]


def test_the_last_evaluation_before_a_trial_may_end_is_measured_on_the_test_set(toy: Path) -> None:
    """Not every round is evaluated: a trial that ends in round 5 has the test metrics of round 4."""
    values = values_for("fedavg", toy, rounds=9, eval_every=2, eval_test="end")
    simulation = Simulation("fedavg", values, 0, torch.device("cpu"))
    simulation.may_end = lambda t: t == 5
    assert [t for t in (2, 4, 6, 8, 9) if simulation.measures_test(t)] == [4, 9]


def test_a_target_is_watched_only_where_it_is_measured(toy: Path) -> None:
    _, rows = simulate("fedavg", toy, 2, target=0.01, eval_test="end")
    assert all(row["val_rounds_to_target"] == 1 and "rounds_to_target" not in row for row in rows)


def test_something_must_be_measured_before_the_end(toy: Path) -> None:
    with pytest.raises(UserError, match="eval_test must be every where validation_fraction is 0"):
        simulate("fedavg", toy, 1, validation_fraction=0.0, eval_test="end")
