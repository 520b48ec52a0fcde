"""The plan of a search over several methods: who takes part, how the budget is divided, and every bad request."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtune.machine import cluster, resources
from fedtune.options import AutoRequest
from fedtune.planning import auto_budget, auto_plan
from fedtune.planning.auto_plan import AutoPlan, options, plan_auto
from fedtune.planning.plan import AMX
from search_spaces.errors import UserError
from search_spaces.parameter import Parameter
from tests.toy import write_toy
from trainables import registry

#: All that FedKF's space sets otherwise than FedAvg's, but how many clients take part.
CONDITIONS = ("clients=3", "min_samples=2", "partition=dir_dominant", "client_test_fraction=0.2")
COSTS = {"fedavg": 1.0, "fedprox": 2.0, "dfrd": 5.0, "scaffold": 2.0, "local": 1.0}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "machine", lambda: resources.Machine(resources.cores(), 0))


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def costs(method: str, values: Any, seed: int, **rest: Any) -> dict[str, float]:
        second = COSTS.get(method, 1.0)
        return {"seconds": second, "seed-rounds": 1.0, "bytes": 3e6, "bytes_up": 1e6 * second}

    monkeypatch.setattr(auto_budget, "measured", costs)


def planned(tmp_path: Path, toy: Path, say: Callable[[str], None] = lambda text: None, **changes: Any) -> AutoPlan:
    given: dict[str, Any] = {
        "dataset": str(toy),
        "methods": ("fedavg,fedprox",),
        "budget": "600rounds",
        "name": tmp_path / "runs" / "auto",
        "slots": 2,
        "rounds": 4,
        "set": ("clients=3", "omega=100", "min_samples=2"),
    }
    return plan_auto(AutoRequest(**given | changes), say)


def problems(tmp_path: Path, toy: Path, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        planned(tmp_path, toy, **changes)
    assert not (tmp_path / "runs").exists()
    return str(caught.value)


def test_a_value_is_converted_once_for_every_method(tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards values that are converted for a method, and then once more as those of its search."""
    found: list[tuple[str, object]] = []
    convert = Parameter.convert

    def counted(self: Parameter, raw: object, where: str = "") -> Any:
        found.append((self.key, raw))
        return convert(self, raw, where)

    monkeypatch.setattr(Parameter, "convert", counted)
    made = planned(tmp_path, toy)
    assert [one.experiment.values["omega"] for one in made.searches] == [100.0, 100.0]
    assert [raw for key, raw in found if key == "omega" and raw in ("100", 100.0)] == ["100"] * 2  # the space has 0.1


def test_the_budget_is_divided(tmp_path: Path, toy: Path) -> None:
    made = planned(tmp_path, toy)
    record = made.record
    assert {(one.experiment.lag, one.experiment.early) for one in made.searches} == {(4, 0)}
    # A quarter for fresh seeds, of which two of four rounds of both methods take 16; three final seeds; the rest
    # searches.
    assert (record.fresh_budget, record.final_budget, record.search_budget) == (150, 12, 438)
    assert (record.fresh, record.most_fresh, record.clock, record.deadline) == (2, 10, None, None)
    fixed = planned(tmp_path, toy, fresh_seeds=4).record
    assert (fixed.fresh, fixed.most_fresh, fixed.fresh_budget) == (4, 4, 32), "no more than is asked for"
    assert record.least == 3 and record.unit == record.cost == "seed-rounds"


@pytest.mark.parametrize(("budget", "least"), [("28rounds", 1), ("40rounds", 2), ("60rounds", 3), ("600rounds", 3)])
def test_every_method_gets_its_minimum_where_the_search_pays_for_it(
    tmp_path: Path, toy: Path, budget: str, least: int
) -> None:
    """A trial of each of the two methods takes 8 of the 8, 20, 32 and 438 seed-rounds that are the search's."""
    assert planned(tmp_path, toy, budget=budget).record.least == least


def test_without_names_the_dearest_methods_are_left_out_until_the_budget_pays(
    tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = {name: registry.method(name) for name in sorted(COSTS) if name != "local"}
    monkeypatch.setattr(registry, "methods", lambda: several)
    # Four rounds of 5 (dfrd), 1, 2 and 2 seconds and 2 beside them; of each one trial and two fresh seeds on two slots,
    # and one final seed of the dearest; 10 for Ray: 24 + 48 + 22 + 10, without dfrd 13 + 26 + 10 + 10.
    everybody = planned(tmp_path, toy, methods=("all",), budget="105s")
    assert [one.name for one in everybody.record.methods] == ["dfrd", "fedavg", "fedprox", "scaffold"]
    few = planned(tmp_path, toy, methods=("all",), budget="60s")
    assert [one.name for one in few.record.methods] == ["fedavg", "fedprox", "scaffold"]
    assert [(one.name, one.why) for one in few.record.excluded] == [
        ("dfrd", "the budget does not pay for it beside cheaper methods; a trial of it costs 20 s")
    ]
    assert "at least" in problems(tmp_path, toy, methods=("dfrd,fedavg,fedprox,scaffold",), budget="60s")
    assert "each of 2 methods" in problems(tmp_path, toy, methods=("all",), budget="12s"), "two are too many"
    rounds = planned(tmp_path, toy, methods=("all",), budget="40rounds").record
    assert [one.name for one in rounds.methods] == ["fedavg", "fedprox", "scaffold"], "of equal costs the slowest goes"


def test_bundles_share_a_budget_that_is_not_in_time(tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "machine", lambda: resources.Machine(2, 0))
    made = planned(tmp_path, toy, per_trial="bundle=4", slots=8)
    assert {(one.experiment.bundle, one.experiment.concurrency) for one in made.searches} == {(4, 8)}
    monkeypatch.setattr(cluster, "machines", lambda address: [resources.Machine(8, 1, "H100")])
    made = planned(tmp_path / "cluster", toy, per_trial="bundle=4", slots=8, address="10.0.0.1:6379")
    assert {(one.experiment.bundle, one.experiment.gpus_per_trial) for one in made.searches} == {(4, 0.0625)}


def test_a_time_is_that_of_the_clock(tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter((100.0, 107.0))  # two methods that are named are timed, whatever that takes
    monkeypatch.setattr(auto_plan.time, "monotonic", lambda: next(readings))
    record = planned(tmp_path, toy, budget="10m").record
    # Planning took 7 seconds. A quarter for fresh seeds; three final seeds of 4·2 + 2 seconds on two slots, the third
    # after the other two; the search has the rest.
    assert (record.clock, record.fresh_budget, record.final_budget) == (7.0, 150, 20)
    assert record.search_budget == 600 - 7 - 150 - 20 and record.deadline == 600
    assert record.costs("seconds") == (1.0, 2.0)


def test_where_all_methods_may_take_part_timing_has_an_end(
    tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sixth of the budget; every look at the clock is fifteen seconds later here."""
    several = {name: registry.method(name) for name in sorted(COSTS) if name not in ("local", "dfrd")}
    monkeypatch.setattr(registry, "methods", lambda: several)
    readings = itertools.count(100.0, 15.0)
    monkeypatch.setattr(auto_plan.time, "monotonic", lambda: next(readings))
    record = planned(tmp_path, toy, methods=("all",), budget="120s").record
    assert [one.name for one in record.methods] == ["fedavg", "fedprox", "scaffold"]
    record = planned(tmp_path / "less", toy, methods=("all",), budget="80s", rounds=1).record
    assert [one.name for one in record.methods] == ["fedavg", "scaffold"]
    assert [one.why for one in record.excluded] == ["the budget does not pay for timing it; name it with --methods"]


def test_the_simplest_methods_are_timed_first(tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedAvg before all, DFRD with its generator last; the record has them in the order of their names."""
    several = {name: registry.method(name) for name in ("dfrd", "fedavg", "fednova", "fedprox")}
    monkeypatch.setattr(registry, "methods", lambda: several)
    readings = itertools.count(100.0, 15.0)
    monkeypatch.setattr(auto_plan.time, "monotonic", lambda: next(readings))
    said: list[str] = []
    record = planned(tmp_path, toy, said.append, methods=("all",), budget="150s", rounds=1).record
    timed = [text.removeprefix("measuring ") for text in said if text.startswith("measuring ")]
    assert timed == ["fedavg", "fednova", "fedprox"] == [one.name for one in record.methods]
    assert [one.name for one in record.excluded] == ["dfrd"]


def test_all_methods_have_the_validation_share_that_a_search_would_take(tmp_path: Path, toy: Path) -> None:
    """Of 240 samples a tenth is so few that chance is much of what differs; what is set stays, for one method too."""
    made = planned(tmp_path, toy)
    assert {search.experiment.values["validation_fraction"] for search in made.searches} == {0.25}
    assert sum(note.startswith("Validation share 0.25: 0.1 would be fewer") for note in made.notes) == 1
    for name, set_ in (("b", "validation_fraction=0.1"), ("c", "fedprox.validation_fraction=0.2")):
        given = ("clients=3", "min_samples=2", set_)
        both = planned(tmp_path, toy, set=given, name=tmp_path / "runs" / name).searches
        found = [search.experiment.values["validation_fraction"] for search in both]
        assert found == ([0.1, 0.1] if name == "b" else [0.25, 0.2])


@pytest.mark.parametrize(
    ("changed", "models"),
    [
        ({}, {"lenet5"}),
        ({"model": "cnn"}, {"cnn"}),
        ({"set": ("clients=4", "fedprox.model=cnn2")}, {"lenet5", "cnn2"}),
        ({"set": ("clients=4", "local_steps=2")}, {"auto"}),
        ({"methods": ("fedavg,dense",), "set": ("clients=4", "local_steps=1")}, {"lenet_code"}),
    ],
)
def test_all_methods_have_the_small_model_that_a_search_would_take(
    tmp_path: Path, changed: dict[str, Any], models: set[str]
) -> None:
    """Else a round of the papers' cnn on images of 28 × 28 takes more than a small budget; DHF cannot have it, and
    DENSE only one that normalises batches."""
    own = write_toy(tmp_path, size=28)
    made = planned(tmp_path, own, **{"methods": ("fedavg,fedprox,dhf",), "set": ("clients=4",), **changed})
    assert {search.experiment.values["model"] for search in made.searches} == models
    told = [note for note in made.notes if note.startswith("Model ")]
    quick = models & {"lenet5", "lenet_code"}
    assert [note.split(":")[0] for note in told] == [f"Model {name}" for name in quick]
    if models == {"lenet5"}:
        (left,) = made.record.excluded
        assert left.name == "dhf" and left.why.startswith("model must be one of") and "'lenet5'" in left.why


@pytest.mark.parametrize(
    ("methods", "steps", "dearest"),
    [
        ("fedavg,dfrd", 2, "dfrd"),  # FedAvg's clients compute 58 billion multiply-adds
        ("fedkf,fedavg", 7, "fedkf"),  # and here 201
        ("fedavg,fedprox", 17, None),
        ("fedavg,dhf", 17, None),  # which could train no lenet5
        ("server-side data-free", 1, "dfrd"),
    ],
)
def test_the_dearest_of_the_methods_decides_which_model_all_have(
    tmp_path: Path, methods: str, steps: int, dearest: str | None
) -> None:
    """By hand: 4 clients have 60 images each. FedKF's compute 8 passes of each, others 3. Of a family DENSE, which
    needs batches that are normalised, is left out and does not count; it is dearer than DFRD."""
    own = write_toy(tmp_path, size=28)
    made = planned(tmp_path, own, methods=(methods,), set=("clients=4", f"local_steps={steps}"))
    left = {one.name for one in made.record.excluded}
    assert {search.experiment.values["model"] for search in made.searches} == {"lenet5" if dearest else "auto"}
    assert left == ({"dense", "dhf"} if "server" in methods else {"dhf"} if "dhf" in methods else set())
    told = [note for note in made.notes if note.startswith("Model ")]
    assert len(told) == (dearest is not None)
    if dearest is not None:
        image = 9 * (28**2 * 1 * 64 + 14**2 * 64 * 128 + 7**2 * 128 * 256 + 3**2 * 256 * 512) + 512 * 4
        clients = {"fedkf": 8}.get(dearest, 3) * 4 * 60 * steps * image / 1e9
        assert f"the clients of a round of {dearest} would compute {clients:,.0f} billion multiply-adds" in told[0]
        assert "takes lenet5 for all methods." in told[0]


@pytest.mark.parametrize(("methods", "said"), [("fedavg,dfrd", 1), ("fedavg,fedprox", 0)])
def test_where_bfloat16_makes_a_server_faster_it_says_so(
    tmp_path: Path, methods: str, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.models.precision.processor_flags", lambda: frozenset({"amx_bf16"}))
    made = planned(tmp_path, write_toy(tmp_path, size=28), methods=(methods,))
    assert sum(note == AMX for note in made.notes) == said


@pytest.mark.parametrize(
    ("changed", "measured"),
    [
        ({}, ["end", "end"]),
        ({"set": ("clients=3", "omega=100", "min_samples=2", "eval_test=every")}, ["every", "every"]),
        ({"set": ("clients=3", "omega=100", "min_samples=2", "fedprox.eval_test=every")}, ["end", "every"]),
    ],
)
def test_its_searches_measure_on_the_test_set_where_a_trial_may_end(
    tmp_path: Path, toy: Path, changed: dict[str, Any], measured: list[str]
) -> None:
    made = planned(tmp_path, toy, **changed)
    assert [search.experiment.values["eval_test"] for search in made.searches] == measured


def test_a_small_budget_pays_for_fewer_seeds(tmp_path: Path, toy: Path) -> None:
    # Two fresh seeds of both cost 16 seed-rounds, a final one 4: at most half of the budget.
    found = [planned(tmp_path, toy, budget=f"{count}rounds").record for count in (56, 55, 48, 47, 30)]
    assert [(one.fresh, one.final) for one in found] == [(2, 3), (2, 2), (2, 2), (2, 1), (2, 1)]
    asked = planned(tmp_path, toy, budget="59rounds", fresh_seeds=3).record
    assert (asked.fresh, asked.final) == (3, 1)


def test_methods_share_the_conditions(tmp_path: Path, toy: Path) -> None:
    plan = planned(tmp_path, toy, methods=("fedavg", "fedprox", "dfrd"), set=("clients=3", "omega=100", "dfrd.alpha=1"))
    shared = ("dataset", "clients", "active_clients", "partition", "omega", "rho", "rounds", "model", "batch_norm")
    for key in shared:
        assert len({str(one.experiment.values[key]) for one in plan.searches}) == 1, key
    assert plan.searches[2].experiment.values["alpha"] == 1.0 and "alpha" not in plan.searches[2].space.search
    for made, space in ((one.experiment, one.space) for one in plan.searches):
        (first,) = made.first
        assert made.part and first["values"] == space.declared_point()


def test_a_named_space_brings_its_ranges_and_its_conditions(tmp_path: Path, toy: Path) -> None:
    changes: dict[str, Any] = {
        "methods": ("local,dhf",),
        "space": "personal",
        "metric": "local_accuracy",
        "rounds": None,
    }
    plan = planned(tmp_path, toy, **changes, set=("clients=3", "min_samples=2"))
    assert [(one.experiment.method, one.experiment.space, list(one.space.search)) for one in plan.searches] == [
        ("local", "personal", ["lr"]),
        ("dhf", "personal", ["lr", "tau"]),
    ]
    for made, space in ((one.experiment, one.space) for one in plan.searches):
        dimension = space.search["lr"]
        assert (dimension.low, dimension.high) == (0.005, 0.2) and made.rounds == plan.record.rounds == 10
        # Of the data and of local training, as the space says, but for what is asked otherwise.
        held = ("partition", "omega", "client_test_fraction", "local_epochs", "batch_size", "model", "clients")
        assert [made.values[key] for key in held] == ["dir_pfl", 0.1, 0.25, 1, 10, "cnn2", 3]
        assert made.values["dataset"] == str(toy)
    changed = planned(tmp_path, toy, **changes, set=("clients=3", "min_samples=2", "batch_size=16", "dhf.omega=1"))
    assert [(one.experiment.values["batch_size"], one.experiment.values["omega"]) for one in changed.searches] == [
        (16, 0.1),
        (16, 1),
    ]


def test_a_default_space_brings_no_conditions(tmp_path: Path, toy: Path) -> None:
    plan = planned(tmp_path, toy, methods=("fedkf",), set=("clients=3", "min_samples=2"))
    values = plan.searches[0].experiment.values
    assert (values["partition"], values["readout"], values["active_clients"]) == ("dir_class", "oca", 0)


def test_spaces_with_other_conditions_are_refused_before_anything_is_timed(
    tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: Any, **rest: Any) -> dict[str, float]:
        raise AssertionError("rounds were timed")

    monkeypatch.setattr(auto_budget, "measured", never)
    problems(tmp_path, toy, methods=("fedavg,fedkf",), space="tuned", set=CONDITIONS)


def test_methods_without_the_space_are_left_out(tmp_path: Path, toy: Path) -> None:
    plan = planned(tmp_path, toy, methods=("local,dhf,qffl",), space="personal", metric="local_accuracy")
    (left,) = plan.record.excluded
    assert left.name == "qffl" and left.why.startswith("Unknown space of qffl 'personal'")
    with pytest.raises(UserError, match="its space asks for several values of partition and nu; fix one with --set"):
        planned(tmp_path, toy, methods=("dhf",), space="partition_nu", metric="local_accuracy")
    with pytest.raises(UserError, match="its space asks for several values of omega; fix one with --set"):
        planned(tmp_path, toy, methods=("fedavg",), space="fairness", set=("clients=3", "min_samples=2"))
    with pytest.raises(UserError, match="every parameter of its space is fixed"):
        planned(
            tmp_path,
            toy,
            methods=("dhf",),
            space="partition_nu",
            metric="local_accuracy",
            set=("clients=3", "nu=0", "partition=dir_pfl"),
        )


def test_who_is_left_out_and_why(tmp_path: Path, toy: Path) -> None:
    plan = planned(tmp_path, toy, methods=("fedavg,dfrd,local,scaffold",), no_label_counts=True, max_bytes_up="1.5MB")
    why = {one.name: one.why for one in plan.record.excluded}
    assert set(why) == {"dfrd", "local", "scaffold"}
    assert why["dfrd"] == "label counts leave its clients"
    assert why["local"] == "it has no global model, and val_global_accuracy is measured of one"
    assert why["scaffold"] == "its clients send 2 MB in a round, more than 1.5 MB (--max-bytes-up)"
    assert f"dfrd is left out: {why['dfrd']}." in plan.notes


def test_a_condition_that_a_method_cannot_have_leaves_it_out(tmp_path: Path, toy: Path) -> None:
    """DHF's clients have models of its own choice, and the model that all share where nobody names one is none."""
    (left,) = planned(tmp_path, toy, methods=("fedavg,fedprox,dhf",)).record.excluded
    assert left.name == "dhf" and left.why.startswith("model must be one of cnn, cnn2, cnn3, resnet10, got 'auto'")


def test_requirements_are_recorded_and_rule_methods_out(tmp_path: Path, toy: Path) -> None:
    require = ("wlp>=0.2", "bytes_up<=5e7")
    plan = planned(tmp_path, toy, methods=("fedavg", "local"), metric="local_accuracy", require=require)
    assert plan.record.require == plan.searches[0].experiment.require == ("val_wlp>=0.2", "bytes_up<=5e+07")
    assert [(one.name, one.why) for one in plan.record.excluded] == [
        ("local", "it has no global model, and val_wlp is measured of one")
    ]


@pytest.mark.parametrize(
    ("asked", "methods", "every"),
    [
        ("partial training", ("feddropout", "fedrolex", "heterofl"), True),
        (("heterofl", "fedavg,partial"), ("heterofl", "fedavg", "feddropout", "fedrolex"), False),
    ],
)
def test_a_part_of_a_familys_name_stands_for_its_methods(asked: Any, methods: tuple[str, ...], every: bool) -> None:
    """Where a method is named beside it, the budget has to pay for all."""
    found: list[str] = []
    made = options(AutoRequest(budget="9rounds", methods=asked), found)
    assert (made.methods, made.every, found) == (methods, every, [])


def test_widths_and_own_models(tmp_path: Path, toy: Path) -> None:
    plan = planned(tmp_path, toy, methods=("fedavg", "heterofl"), set=("clients=3", "min_samples=2", "rho=10"))
    assert [one.name for one in plan.record.methods] == ["heterofl"]
    assert plan.searches[0].experiment.values["rho"] == 10
    personal = planned(tmp_path, toy, methods=("fedavg", "local"), metric="local_accuracy")
    assert [one.name for one in personal.record.methods] == ["fedavg", "local"]
    assert personal.record.metric == "val_local_accuracy"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"methods": ("fedavg,fedprx",)}, "Unknown method or family 'fedprx' (--methods). Did you mean 'fedprox'?"),
        ({"methods": ("",)}, "No method is named"),
        (
            {"budget": "10rounds"},
            "budget must be at least 28 seed-rounds, which pays for one trial of each of 2 methods",
        ),
        (
            {"budget": "60rounds", "least": 9},
            "budget must be at least 100 seed-rounds, which pays for 9 trials of each",
        ),
        ({"budget": "20s"}, "budget must be at least 41 s"),
        ({"budget": "90"}, "budget must be a length such as 30m or 2h"),
        ({"budget": "soon"}, "budget must be a length such as 30m or 2h"),
        ({"budget": "0rounds"}, "budget must be a length such as 30m or 2h"),
        ({"max_bytes_up": "much"}, "max-bytes-up must be an amount such as 50MB, got 'much'"),
        ({"metric": "accuracy"}, "Unknown metric 'accuracy'"),
        ({"methods": "quantum"}, "Unknown method or family 'quantum' (--methods). Known: 'any architecture, mutual"),
        ({"set": ("rho=10",)}, "No method is left: its clients all train the same model"),
        ({"set": ("alpah=1",)}, "Unknown parameter 'alpah'"),
        ({"set": ("dfrd.alpha=1",)}, "Unknown parameter 'dfrd.alpha'"),
        ({"set": ("clients",)}, "--set must be name=value or method.name=value, got 'clients'"),
        ({"set": ("clients=-1",)}, "clients must be"),
        ({"set": ("validation_fraction=0",)}, "there are no validation data to select on"),
        ({"metric": "p_acc"}, "is measured only where client_test_fraction is above 0"),
        ({"equal": True, "least": 2}, "--least would change nothing"),
        ({"least": 0}, "least must be a whole number in [1, 1000], got 0"),
        ({"require": ("wlp>0.3",)}, "require must be METRIC>=NUMBER"),
        ({"require": ("wlp>=0.5", "wlp<=0.4")}, "contradict each other"),
        ({"require": ("p_acc>=0.5",)}, "is measured only where client_test_fraction is above 0"),
        ({"require": ("psnr<=20",)}, "is measured only where attack_images is above 0"),
        ({"space": "tunde"}, "Unknown space 'tunde' (--space). Did you mean 'tuned'?"),
        ({"space": "mine.yaml"}, "space must be the name of a space of the methods, got 'mine.yaml' (--space)."),
        (
            {"methods": ("fedavg,fedkf",), "space": "tuned", "set": CONDITIONS},
            "The methods' spaces 'tuned' must have the same active_clients, got 0 in that of fedavg, 2 in that of "
            "fedkf. Give one value with --set active_clients=VALUE.",
        ),
        ({"dataset": "mnsit"}, "mnsit"),
        ({"slots": 0}, "slots must be a whole number in"),
        (
            {"per_trial": "bundle=4", "budget": "1h"},
            "bundle of trials must be 1 with a budget in time, as what a trial",
        ),
        ({"slots": None, "address": "auto"}, "depends on how many trials run at once on the cluster. Give --slots."),
    ],
)
def test_bad_requests_are_told_in_a_sentence(tmp_path: Path, toy: Path, changes: dict[str, Any], said: str) -> None:
    told = problems(tmp_path, toy, **changes)
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_name_that_is_taken(tmp_path: Path, toy: Path) -> None:
    (tmp_path / "runs" / "auto").mkdir(parents=True)
    with pytest.raises(UserError, match="exists already"):
        planned(tmp_path, toy)
