"""A request is checked whole, before anything is created."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedtune
from analysis.runs.best import Best
from fedtune.machine import cluster, resources
from fedtune.machine.resources import Machine, pack
from fedtune.options import RunRequest, SearchRequest
from fedtune.planning import preflight
from fedtune.planning.checks import named_folder, seconds_of
from fedtune.planning.configuration import described, load
from fedtune.planning.plan import AMX, plan
from fedtune.planning.selection import is_measured_at_end, selected_by
from fedtune.planning.settings import settled
from fedtune.record.experiment import Experiment, final_seeds, search_seeds
from fedtune.record.run_directory import create
from search_spaces.errors import UserError
from search_spaces.parameter import Parameter, Value
from tests.fedtune.conftest import experiment, space
from tests.fedtune.played import play
from tests.toy import write_toy
from trainables.simulation.rounds import Simulation


@pytest.fixture
def asked(toy: Path, tmp_path: Path) -> Callable[..., SearchRequest]:
    def make(**options: Any) -> SearchRequest:
        return SearchRequest(
            **{
                "method": "fedavg",
                "dataset": str(toy),
                "name": str(tmp_path / "runs" / "run"),
                "set": ("clients=3", "partition=iid"),
                **options,
            }
        )

    return make


def problems(request: SearchRequest) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        plan(request)
    assert not Path(str(request.name)).parent.exists(), "something was created"
    return caught.value.problems


def test_values_are_laid_over_each_other(asked: Callable[..., SearchRequest], toy: Path) -> None:
    made = plan(asked(rounds=4, seeds=2, set=("clients=3", "partition=iid", "lr=0.05", "omega = 3")))
    assert made.experiment.values["dataset"] == str(toy.resolve())
    assert (made.experiment.rounds, made.experiment.values["rounds"]) == (4, 4)
    assert made.experiment.values["omega"] == 3.0, "--set wins over the space's fix"
    assert "lr" not in made.space.search and made.experiment.values["lr"] == 0.05, "--set fixes a searched parameter"
    assert made.experiment.seeds == (0, 1)
    assert made.facts["method_title"] == "FedAvg"
    assert made.facts["dataset"]["hash"] and set(made.facts["partition"]) == {"0"}


def test_a_value_is_converted_once(asked: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Later steps take it as it is: what one of them made of it could differ from what is recorded."""
    found: list[tuple[str, object]] = []
    convert = Parameter.convert

    def noted(self: Parameter, raw: object, where: str = "") -> Value:
        found.append((self.key, raw))
        return convert(self, raw, where)

    monkeypatch.setattr(Parameter, "convert", noted)
    plan(asked(set=("clients=3", "partition=iid", "lr=0.0431")))
    assert [raw for key, raw in found if key == "lr" and float(str(raw)) == 0.0431] == ["0.0431"]
    assert [raw for key, raw in found if key == "clients" and str(raw) == "3"] == ["3"]


def test_every_value_is_recorded(asked: Callable[..., SearchRequest]) -> None:
    """A resumed run must not follow the defaults of another version."""
    from trainables import registry

    made = plan(asked(set=("clients=3", "partition=iid", "lr=0.05")))
    values, searched = made.experiment.values, made.space.search
    assert set(values) | set(searched) == set(registry.declared("fedavg")) and not set(values) & set(searched)
    assert (
        made.middle == registry.resolve("fedavg", made.middle)
        and made.space.fix["clients"] == 3
        and "momentum" not in made.space.fix
    )


def test_every_value_of_a_final_run_is_recorded_too(toy: Path, tmp_path: Path) -> None:
    """Of a method and of an exported file that holds some values: nothing completes them after they were read."""
    from trainables import registry

    exported = tmp_path / "best.yaml"
    exported.write_text(yaml.safe_dump(GOOD))
    for named, lr in (("fedavg", registry.declared("fedavg")["lr"].default), (str(exported), 0.1)):
        asked = RunRequest(named, dataset=str(toy), seeds=1, set=("clients=3", "partition=iid"), name=tmp_path / "run")
        made = plan(asked)
        assert set(made.experiment.values) == set(registry.declared("fedavg")) and made.experiment.values["lr"] == lr
        assert made.middle == made.space.fix == made.experiment.values


def test_a_final_run_says_that_its_trial_had_not_ended(toy: Path, tmp_path: Path) -> None:
    exported, said = tmp_path / "best.yaml", []
    for more in ({}, {"round": 3}):
        exported.write_text(yaml.safe_dump(GOOD | {"provenance": {"run": "s", "trial": 6, **more}}))
        asked = RunRequest(str(exported), dataset=str(toy), seeds=1, set=("clients=3",), name=tmp_path / "run")
        said.append([note for note in plan(asked).notes if "Trial 6" in note])
    assert said == [[], ["Trial 6 of s had not run to its end when its configuration was taken, in round 3."]]


def test_unknown_options_are_named() -> None:
    with pytest.raises(TypeError, match="unknown options: lamda, trails"):
        fedtune.search("fedavg", trails=3, lamda=1)


def test_a_search_takes_one_metric_or_several(
    asked: Callable[..., SearchRequest], toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Any] = []
    monkeypatch.setattr("fedtune.api.search.carry_out", lambda made, _: planned.append(made))
    for metric in ("wlp", ["wlp", "amp"], None):
        fedtune.search(
            "fedavg",
            dataset=str(toy),
            name=tmp_path / "runs" / "run",
            set=["clients=3", "partition=iid"],
            metric=metric,
        )
    assert [made.experiment.metric for made in planned] == [
        ("val_wlp",),
        ("val_wlp", "val_amp"),
        ("val_global_accuracy",),
    ]


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 0.17),  # of 1,437 training images; 240 are 16.7 per cent
        ({"dataset": "mnist"}, 0.1),  # of 60,000
        ({"set": ("validation_fraction=0.1",)}, 0.1),
        ({"set": ("clients=30", "min_samples=40")}, 0.1),  # 1,200 are needed, and 1,192 would be left
        ({"set": ("clients=29", "min_samples=40")}, 0.17),
        ({"method": "dfrd", "paper": True, "dataset": "digits"}, 0.0),
    ],
)
def test_few_samples_are_validated_on_a_larger_share(changes: dict[str, Any], share: float) -> None:
    """In a search and in a final run alike; papers and users have what they name."""
    method, problems = changes.get("method", "fedavg"), list[str]()
    given = {key: value for key, value in changes.items() if key != "method"}
    found = [settled(kind(method, **given), problems) for kind in (SearchRequest, RunRequest)]
    for settings in found:
        assert settings.value("validation_fraction") == share and not problems
        said = [note for note in settings.chosen if note.startswith("Validation share")]
        assert len(said) == (share == 0.17) and all("--set validation_fraction=0.1 takes 0.1." in one for one in said)


def test_a_quarter_of_the_data_is_validated_on_at_most(asked: Callable[..., SearchRequest]) -> None:
    made = plan(asked())
    assert made.experiment.values["validation_fraction"] == made.space.fix["validation_fraction"] == 0.25
    assert not any(note.startswith("Validation data") for note in made.notes), "there are no more of them"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        # Of 1,437 training images a tenth of each class: √(0.8 · 0.2 / 143) = 3.34 points.
        (
            {"set": ("validation_fraction=0.1",)},
            "Validation data: 143 samples. At 80 % accuracy chance alone moves it by 3.3 points. More of them (358",
        ),
        ({}, None),
        ({"set": ("validation_fraction=0.25",)}, None),
        ({"metric": ("test_global_accuracy",), "set": ("validation_fraction=0.1",)}, None),
    ],
)
def test_a_search_on_few_validation_samples_says_so(values: dict[str, Any], told: str | None) -> None:
    notes = [note for note in plan(SearchRequest("fedavg", **values)).notes if "Validation data" in note]
    assert not notes if told is None else len(notes) == 1 and notes[0].startswith(told)
    assert told is None or notes[0].endswith("--set validation_fraction=0.25.")


def test_the_small_profile_says_how_to_get_the_papers(asked: Callable[..., SearchRequest]) -> None:
    notes = plan(SearchRequest("dfrd", space="alpha_lambda")).notes
    assert (
        "Profile small: digits, 10 rounds" in notes[0]
        and "--paper" in notes[0]
        and "svhn" in notes[0]
        and "\n" not in notes[0]
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "fedavgg"}, "Did you mean 'fedavg'"),
        ({"space": "defualt"}, "Did you mean 'default'"),
        ({"space": "nowhere.yaml"}, "There is no space 'nowhere.yaml'"),
        ({"trials": 0}, "trials must be a whole number in [1, 1000000], got 0"),
        ({"trials": -3}, "trials must be"),
        ({"rounds": 0}, "rounds must be a whole number in [1, 100000], got 0"),
        ({"seeds": 0}, "seeds must be"),
        ({"seed": -1}, "seed must be"),
        ({"time": "soon"}, "time must be a length such as 90s"),
        ({"time": "0s"}, "time must be a length"),
        ({"sampler": "tpee"}, "Did you mean 'tpe'"),
        ({"scheduler": "hyperband"}, "Unknown scheduler 'hyperband'"),
        ({"metric": ("test_wlp", "val_amp"), "sampler": "nsga2"}, "--metric asks for both: wlp, val_amp"),
        ({"metric": ("test_bytes_up",)}, "Unknown metric 'test_bytes_up'"),
        ({"set": ("clients=3", "validation_fraction=0"), "metric": ("wlp",)}, "with --metric test_wlp"),
        ({"metric": ("accuracy",)}, "Unknown metric 'accuracy'"),
        ({"slots": 0}, "slots must be"),
        ({"per_trial": {"cpus": 0.0}}, "cpus of a trial must be a number of at least 0.0001"),
        ({"per_trial": "cpus=10000"}, "cpus of a trial must be at most"),
        ({"per_trial": "gpus=99,cpus=1"}, "gpus of a trial must be"),
        (
            {"per_trial": "cpu=1"},
            "per-trial must be cpus=NUMBER,gpus=NUMBER,bundle=NUMBER or a part of it, got 'cpu=1' (--per-trial)",
        ),
        ({"per_trial": "cpus=1,cpus=2"}, "per-trial must be cpus=NUMBER"),
        ({"per_trial": "2"}, "per-trial must be cpus=NUMBER"),
        ({"per_trial": {"cpus": True}}, "per-trial must be cpus=NUMBER"),
        ({"per_trial": "gpus=-1"}, "gpus of a trial must be 0 or a number of at least 0.0001"),
        ({"order": "sorted"}, "Unknown order 'sorted'"),
        ({"order": "fixed", "address": "10.0.0.1:6379"}, "depends on the number of slots. Give it with --slots."),
        ({"order": "fixed", "address": "10.0.0.1:6379", "slots": "auto"}, "the number of slots. Give it with --slots."),
        ({"set": ("lr",)}, "--set must be name=value, got 'lr'"),
        ({"set": (" =0.1",)}, "--set must be name=value, got ' =0.1'"),
        ({"set": ("learning_rate=1",)}, "Unknown parameter 'learning_rate' (--set)"),
        ({"set": ("lr=fast",)}, "lr must be"),
        ({"set": ("seeds=3",)}, "--seeds"),
        ({"set": ("rho=5",)}, "rho must be 0 for fedavg"),
        ({"dataset": "digitss"}, "digits"),
        ({"dataset": "missing.npz"}, "missing.npz"),
        ({"sampler": "ei", "metric": ("global_accuracy", "wlp")}, "one metric"),
        ({"scheduler": "median", "metric": ("global_accuracy", "wlp")}, "one metric"),
        ({"set": ("lr=0.1", "local_steps=5", "batch_size=16", "momentum=0")}, "nothing is left to search"),
        ({"sampler": "grid", "trials": 100_000}, "cells of the grid"),
        ({"set": ("validation_fraction=0",)}, "no validation data to select on"),
        ({"set": ("eval_test=end",), "metric": ("test_wlp",)}, "needs test data after every evaluated round"),
        ({"warm_start": ("nowhere",)}, "There is no run 'nowhere'"),
        ({"slots": "autoo"}, "slots must be auto or a whole number, got 'autoo' (--slots)"),
        (
            {"slots": "auto", "per_trial": "bundle=2", "address": "10.0.0.1:6379"},
            "On a cluster --slots auto measures trials in processes of their own, and a bundle puts several into one.",
        ),
        ({"per_trial": "bundle=0"}, "bundle of trials must be a whole number in [1, 4096], got 0 (--per-trial)"),
        ({"per_trial": "bundle=1.5"}, "bundle of trials must be a whole number in [1, 4096], got 1.5 (--per-trial)"),
        (
            {"metric": ("bytes_up_pma",)},
            "bytes_up_pma counts the traffic for personal models, which fedavg does not count separately. Select by "
            "--metric bytes_up.",
        ),
        ({"metric": ("bytes_down_gme",)}, "Select by --metric bytes_down."),
        (
            {"metric": ("shared_local_accuracy",)},
            "val_shared_local_accuracy is measured of the shared model that clients train beside a model of their own, "
            "and fedavg has no such. Select by --metric local_accuracy.",
        ),
        ({"metric": ("gd_loss",)}, "gd_loss is not measured for fedavg with these values"),
        ({"metric": ("oca_amp",)}, "val_oca_amp is not measured for fedavg with these values"),
        ({"require": ("wlp>0.3",)}, "require must be METRIC>=NUMBER"),
        ({"require": ("wlp>=0.5", "wlp<=0.4")}, "--require val_wlp>=0.5 and --require val_wlp<=0.4 contradict each"),
        ({"require": ("oca_amp>=0.3",)}, "val_oca_amp is not measured for fedavg with these values, so --require"),
        ({"require": ("psnr<=20",)}, "psnr<=20 needs psnr, which is measured only where attack_images is above 0"),
        ({"method": "fedprox", "metric": ("g_acc_virtual",)}, "val_g_acc_virtual is not measured for fedprox"),
        (
            {"method": "lgfedavg", "metric": ("g_acc_virtual",), "set": {"nu": 0.5, "model": "cnn2"}},
            "val_g_acc_virtual is not measured for lgfedavg with these values. Select by --metric local_accuracy.",
        ),
    ],
)
def test_every_wrong_request_gets_a_sentence(
    asked: Callable[..., SearchRequest], options: dict[str, Any], words: str
) -> None:
    found = problems(asked(**options))
    assert any(words in problem for problem in found), found
    assert all(problem.rstrip().endswith((".", "?")) and "\n" not in problem for problem in found), found


@pytest.mark.parametrize(
    ("method", "metric", "more"),
    [
        ("fedavg", "oca_amp", ("model_cache=true",)),
        ("fedavg", "g_acc_virtual", ()),
        ("fedcg", "gd_loss", ()),
    ],
)
def test_a_metric_that_the_method_measures_is_taken(
    asked: Callable[..., SearchRequest], method: str, metric: str, more: tuple[str, ...]
) -> None:
    made = plan(asked(method=method, metric=(metric,), set=("clients=3", "partition=iid", *more)))
    assert made.experiment.metric[0].endswith(metric)


@pytest.mark.parametrize(
    ("metric", "needed"), [("psnr", "attack_images"), ("rounds_to_target", "target"), ("p_acc", "client_test_fraction")]
)
def test_a_metric_that_would_not_be_measured_is_refused(metric: str, needed: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"measured only where {needed} is above 0"):
        plan(SearchRequest("fedavg", metric=(metric,), name=tmp_path / "made"))
    value = "1" if needed == "attack_images" else "0.25"
    assert plan(
        SearchRequest("fedavg", metric=(metric,), set=(f"{needed}={value}",), name=tmp_path / "made")
    ).experiment.metric


@pytest.mark.parametrize("metric", ["global_accuracy", "wlp"])
def test_a_metric_of_a_model_that_is_not_there_is_refused(metric: str, tmp_path: Path) -> None:
    with pytest.raises(
        UserError,
        match=rf"{metric} is measured of a global model, and fedper has none with these values\. "
        r".*--metric local_accuracy",
    ):
        plan(SearchRequest("fedper", metric=(metric,), name=tmp_path / "made"))
    for name, good in (("fedper", "local_accuracy"), ("fedper", "g_acc_virtual"), ("fedavg", metric)):
        assert plan(SearchRequest(name, metric=(good,), name=tmp_path / "made")).experiment.metric == (f"val_{good}",)


def test_a_round_that_only_shows_what_is_measured_is_short(
    asked: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a plan of the papers' settings on large data takes minutes."""
    ran: list[Simulation] = []
    whole = Simulation.run_round
    monkeypatch.setattr(Simulation, "run_round", lambda s: (ran.append(s), whole(s))[1])
    monkeypatch.setattr(preflight, "IMAGES", 7)
    plan(asked(method="fedcg", metric=("gd_loss",), set=("clients=5", "partition=iid", "local_epochs=3")))
    (one,) = ran
    assert (one.config.local_steps, one.config.local_epochs, one.config.server_steps) == (1, 0, 1)
    assert (one.settings.rounds, one.settings.active_clients, one.settings.clients) == (1, 2, 5)
    assert one.data.validation is not None and len(one.data.validation.indices) == len(one.data.test.indices) == 7
    assert len(one.data.test.y.unique()) > 1, "data may be sorted by class"


def test_the_papers_values_are_trial_0_where_they_lie_in_the_space(
    asked: Callable[..., SearchRequest], tmp_path: Path
) -> None:
    from trainables import registry

    made = plan(asked(method="dfrd", space="alpha_lambda", set=("clients=3", "partition=iid")))
    declared = registry.declared("dfrd")
    values = {key: declared[key].default for key in ("alpha", "lambda")}
    assert made.experiment.first == ({"from": "the paper's values", "values": values},)
    assert made.notes[-1] == f"Trial 0 has the paper's values: alpha {values['alpha']}, lambda {values['lambda']}."
    assert made.experiment.trials == 30, "it is one of the trials that were asked for"
    apart = tmp_path / "apart.yaml"
    apart.write_text("method: dfrd\nsearch: {alpha: {low: 1, high: 2}, lambda: {}}\nfix: {base: fedavg}\n")
    for elsewhere in (
        plan(asked(method="dfrd", space=str(apart))),
        plan(asked(method="dfrd", space="alpha_lambda", sampler="grid", set=("clients=3", "partition=iid"))),
    ):
        assert elsewhere.experiment.first == () and not any("paper's values" in note for note in elsewhere.notes)


def test_all_problems_are_told_at_once(asked: Callable[..., SearchRequest]) -> None:
    found = problems(
        asked(trials=0, time="soon", sampler="tpee", metric=("x",), set=("lr=fast", "nonsense=1", "clients=0"))
    )
    for words in ("trials must", "time must", "'tpee'", "'x'", "lr must", "'nonsense'", "clients must"):
        assert any(words in problem for problem in found), (words, found)


def test_corrupt_data_is_known_before_anything_is_created(asked: Callable[..., SearchRequest], tmp_path: Path) -> None:
    for name, content in (("empty.npz", b""), ("corrupt.npz", b"PK\x03\x04 not a zip")):
        (tmp_path / name).write_bytes(content)
        assert name in problems(asked(dataset=str(tmp_path / name)))[0]


def test_a_space_that_asks_for_pictures_there_are_not_is_refused(
    asked: Callable[..., SearchRequest], tmp_path: Path
) -> None:
    space = tmp_path / "mine.yaml"
    space.write_text("method: fedavg\nsearch: {lr: {}}\nfigures: [heatmpa, box]\n")
    with pytest.raises(UserError) as caught:
        plan(asked(space=str(space)))
    assert len(caught.value.problems) == 1
    assert (
        "figure 'heatmpa'" in caught.value.problems[0]
        and "'heatmap'" in caught.value.problems[0]
        and "mine.yaml" in caught.value.problems[0]
    )


def test_arithmetic_that_the_processor_lacks_is_refused(
    asked: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.models.precision.processor_flags", frozenset)
    monkeypatch.setattr(resources, "machine", lambda: Machine(2, 0))
    found = problems(asked(set=("precision=bf16",)))
    assert len(found) == 1 and found[0].startswith("precision must be fp32")


@pytest.mark.parametrize(
    ("flag", "size", "more", "said"),
    [
        ("amx_bf16", 28, (), True),
        ("avx512_bf16", 28, (), False),
        ("amx_bf16", 8, (), False),
        ("amx_bf16", 28, ("precision=bf16",), False),
        ("amx_bf16", 28, ("server_iters=0",), False),
    ],
)
def test_where_bfloat16_makes_the_server_faster_the_plan_says_so(
    flag: str,
    size: int,
    more: tuple[str, ...],
    said: bool,
    asked: Callable[..., SearchRequest],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not where the processor has no AMX, images are small, it is on already, or nothing is distilled."""
    monkeypatch.setattr("trainables.models.precision.processor_flags", lambda: frozenset({flag}))
    monkeypatch.setattr(resources, "machine", lambda: Machine(2, 0))
    images = write_toy(tmp_path, size=size)
    given: dict[str, Any] = {"dataset": str(images), "set": ("clients=3", "partition=iid", "model=lenet5", *more)}
    made = plan(asked(method="dfrd", **given))
    assert any("--set precision=bf16" in note for note in made.notes) == said
    final = plan(RunRequest("dfrd", seeds=1, name=str(tmp_path / "final"), **given))
    assert (AMX in final.notes) == said


def test_a_space_with_unknown_options_is_refused(asked: Callable[..., SearchRequest], tmp_path: Path) -> None:
    space = tmp_path / "mine.yaml"
    space.write_text(
        "method: fedavg\nsearch: {lr: {}}\nprofiles: "
        "{small: {rounds: 2, sampler: tpee, scheduler: ashaa, seeds: 5000}}\n"
    )
    assert problems(asked(space=str(space))) == (
        "Unknown sampler 'tpee' (the space mine). Did you mean 'tpe'?",
        "Unknown scheduler 'ashaa' (the space mine). Did you mean 'asha'?",
        "seeds must be a whole number in [1, 1000], got 5000 (the space mine).",
    )


def test_a_name_that_is_taken(asked: Callable[..., SearchRequest], tmp_path: Path) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "experiment.yaml").write_text("kind: search")
    with pytest.raises(UserError, match=r"fedtune resume .*fedtune extend"):
        plan(asked(name=tmp_path / "runs" / "mine"))


@pytest.mark.parametrize(
    ("name", "folder"),
    [("mine", "runs/mine"), ("there/mine", "there/mine"), ("./mine/", "mine"), ("~/mine", "home/mine"), ("..", None)]
    + [(name, None) for name in ("", "/", "a/..", "-mine", "a/my run")],
)
def test_a_name_is_a_folder_in_runs_or_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found: list[str] = []
    made = named_folder(name, found)
    if folder is None:
        assert [text.startswith("name must be letters, digits, ") for text in found] == [True]
    else:
        assert (made, found) == (tmp_path / folder, [])


@pytest.mark.parametrize(
    ("paper", "metric", "select_on", "chosen"),
    [
        (False, (), "validation", ("val_global_accuracy",)),
        (False, ("wlp", "bytes_up", "val_wlp"), "validation", ("val_wlp", "bytes_up")),
        (False, ("test_wlp", "bytes_up"), "test", ("wlp", "bytes_up")),
        (False, ("bytes_up",), "validation", ("bytes_up",)),
        (True, (), "test", ("global_accuracy",)),
        (True, ("wlp",), "test", ("wlp",)),
        (True, ("val_wlp",), "validation", ("val_wlp",)),
    ],
)
def test_a_metric_says_on_which_data_a_search_selects(
    tmp_path: Path, paper: bool, metric: tuple[str, ...], select_on: str, chosen: tuple[str, ...]
) -> None:
    """The space's paper profile selects on test data."""
    space = tmp_path / "space.yaml"
    search = "search: {lr: {low: 0.01, high: 0.1}}"
    space.write_text(f"method: fedavg\n{search}\nprofiles: {{paper: {{rounds: 5, select_on_test: true}}}}\n")
    request = SearchRequest("fedavg", space=str(space), paper=paper, metric=metric)
    found: list[str] = []
    made = selected_by(request, settled(request, found), found)
    assert (found, made.select_on, made.metric) == ([], select_on, chosen)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), (30, 30)]
)
def test_times(text: Any, seconds: float) -> None:
    assert seconds_of(text, []) == seconds


def test_final_seeds_are_never_search_seeds() -> None:
    assert not set(search_seeds(999_999, 1000)) & set(final_seeds(0, 1000))
    assert set(search_seeds(0, 3)) == {0, 1, 2}
    assert not set(search_seeds(1, 1000)) & set(search_seeds(2, 1000))


def test_an_experiment_is_read_back_equal(asked: Callable[..., SearchRequest], tmp_path: Path) -> None:
    made = plan(asked(time="2h", metric=("wlp", "bytes_up"), sampler="nsga2", slots=2))
    create(made.folder, made.experiment, made.space, {})
    assert Experiment.read(made.folder) == made.experiment
    earlier = {**made.experiment.to_yaml(), "prior": 0.0}
    del earlier["order"]
    (made.folder / "experiment.yaml").write_text(yaml.safe_dump(earlier))
    assert Experiment.read(made.folder) == made.experiment, "an option that is gone was not used"
    assert not [path for path in made.folder.parent.iterdir() if path != made.folder], "a temporary folder was left"
    for edit, words in (
        ({"version": 99}, "version"),
        ({"version": 1, "name": "x"}, "lacks"),
        ({"version": 1, **made.experiment.to_yaml(), "odd": 1}, "odd"),
    ):
        (made.folder / "experiment.yaml").write_text(yaml.safe_dump(edit))
        with pytest.raises(UserError, match=words):
            Experiment.read(made.folder)


@pytest.mark.parametrize(
    ("machine", "options", "expected"),
    [
        (Machine(1, 0), {}, (1, 1.0, 0.0, 1, "fixed")),
        (Machine(2, 0), {}, (2, 1.0, 0.0, 2, "fixed")),
        (Machine(8, 0), {}, (8, 1.0, 0.0, 8, "arrival")),
        (Machine(64, 0), {}, (30, 1.0, 0.0, 64, "arrival")),  # there are 30 trials
        (Machine(64, 8), {}, (30, 1.0, 0.25, 32, "arrival")),
        (Machine(64, 8), {"trials": 100}, (32, 1.0, 0.25, 32, "arrival")),
        (Machine(8, 0), {"slots": 2}, (2, 1.0, 0.0, 2, "fixed")),
        (Machine(2, 0), {"slots": 32}, (2, 1.0, 0.0, 32, "arrival")),  # proposed as for 32, and two of them run
        (Machine(2, 0), {"slots": 32, "order": "fixed"}, (2, 1.0, 0.0, 32, "fixed")),
        (Machine(8, 1), {"bundle": 16}, (30, 0.0625, 0.0156, 64, "arrival")),  # four processes on a GPU
        (Machine(2, 0), {"bundle": 4, "slots": 6}, (6, 0.25, 0.0, 6, "arrival")),
        (Machine(8, 1), {"bundle": 2, "cpus": 2.0, "gpus": 0.5}, (2, 2.0, 0.5, 2, "fixed")),
        (Machine(8, 0), {"cpus": 4.0}, (2, 4.0, 0.0, 2, "fixed")),
        (Machine(2, 0), {"cpus": 0.5}, (4, 0.5, 0.0, 4, "arrival")),
        (Machine(16, 1), {}, (4, 1.0, 0.25, 4, "arrival")),
        (Machine(16, 2), {"gpus": 1.0}, (2, 1.0, 1.0, 2, "fixed")),
        (Machine(16, 1), {"gpus": 0.0}, (16, 1.0, 0.0, 16, "arrival")),
    ],
)
def test_packing(machine: Machine, options: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found: list[str] = []
    packed = pack(machine, found, **{"trials": 30, **options})
    assert not found
    assert (packed.concurrency, packed.cpus, packed.gpus, packed.slots, packed.order) == expected


@pytest.mark.parametrize(
    ("machine", "options", "words"),
    [
        (Machine(2, 0), {"gpus": 0.5}, "must be 0, as no GPU was found"),
        (Machine(2, 1), {"gpus": 2.0}, "must be at most 1"),
        (Machine(8, 4), {"gpus": 1.5}, "whole number where it is above 1"),
        (Machine(8, 0), {"slots": 0}, "slots must be a whole number in [1, 1000000], got 0"),
    ],
)
def test_packing_that_cannot_be(machine: Machine, options: dict[str, Any], words: str) -> None:
    found: list[str] = []
    pack(machine, found, **{"trials": 30, **options})
    assert len(found) == 1 and words in found[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(asked: Callable[..., SearchRequest], tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0o500)
    with pytest.raises(UserError, match="permission denied"):
        plan(asked(name=tmp_path / "shut" / "runs" / "run"))


def test_a_file_where_runs_should_be(asked: Callable[..., SearchRequest], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="The folder of runs must be a directory"):
        plan(asked(name=tmp_path / "file" / "runs" / "run"))


GOOD: dict[str, Any] = {"fedtune": 1, "method": "fedavg", "parameters": {"lr": 0.1}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({**GOOD, "fedtune": 2}, "fedtune must be 1, the version this fedtune reads, got 2"),
        ({**GOOD, "fedtune": "one"}, "fedtune must be 1, the version this fedtune reads"),
        ({"method": "fedavg"}, "is not an exported configuration"),
        ({"fedtune": 1, "method": "fedavg"}, "lacks the key `parameters`"),
        ({**GOOD, "method": "fedavgg"}, "Did you mean 'fedavg'"),
        ({**GOOD, "method": ["a"]}, "method must be the name"),
        ({**GOOD, "parameters": {"lr": 0.1, "lrr": 1}}, "Unknown parameter 'lrr'"),
        ({**GOOD, "parameters": {"lr": "fast"}}, "lr must be"),
        ({**GOOD, "parameters": {"lr": [1]}}, "lr must be"),
        ({**GOOD, "parameters": [1]}, "parameters must be a mapping"),
        ({**GOOD, "extra": 1}, "Unknown key 'extra'"),
        ({**GOOD, "parameters": {"rho": 5}}, "rho must be 0"),
    ],
)
def test_an_exported_file_that_cannot_be_used(tmp_path: Path, content: dict[str, Any], words: str) -> None:
    path = tmp_path / "best.yaml"
    for text in (yaml.safe_dump(content, sort_keys=False), json.dumps(content, indent=1)):
        path.write_text(text)
        with pytest.raises(UserError) as caught:
            load(path)
        assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "\t:", "a: 1\na: 2"])
def test_a_malformed_exported_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "best.yaml").write_text(text)
    with pytest.raises(UserError, match=r"best\.yaml"):
        load(tmp_path / "best.yaml")


def test_help_is_fast_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['fedtune', '--help']; import fedtune.cli as c\ntry: c.main()\nexcept SystemExit: "
        "pass\n"
        "print(sorted({'torch', 'ray', 'optuna', 'pandas', 'plotly', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]") and "search" in done.stdout


def test_cores_are_those_we_may_use() -> None:
    assert 1 <= resources.cores() <= (os.cpu_count() or 1)


def test_on_a_cluster_shares_are_taken_as_asked_for() -> None:
    """What this machine has says nothing about a cluster, for searches and for final runs."""
    problems: list[str] = []
    packed = resources.pack(None, problems, trials=3, gpus=1.0)
    assert (packed.concurrency, packed.cpus, packed.gpus, packed.order) == (3, 1.0, 1.0, "arrival")
    packed = resources.pack(None, problems, trials=30, slots=4, cpus=2.5)
    assert (packed.concurrency, packed.cpus, packed.gpus, packed.slots) == (4, 2.5, 0.0, 4) and not problems
    resources.pack(None, problems, trials=30, cpus=-1.0, slots=9)
    assert len(problems) == 1 and "cpus of a trial must be a number of at least 0.0001" in problems[0]


@pytest.mark.parametrize(
    ("machines", "given", "gpus"),
    [
        ([Machine(8, 0), Machine(32, 4, "H100")], {}, 0.25),
        ([Machine(8, 0), Machine(32, 4, "H100")], {"per_trial": "gpus=0"}, 0.0),
        ([Machine(8, 0), Machine(32, 4, "H100")], {"per_trial": "cpus=2,gpus=0.5"}, 0.5),
        ([Machine(8, 0), Machine(32, 4, "H100")], {"per_trial": "bundle=16"}, 0.0156),
        ([Machine(8, 0), Machine(0, 4, "H100")], {}, 0.0),
        ([Machine(8, 0)], {}, 0.0),
    ],
)
def test_a_cluster_with_gpus_has_them_used(
    asked: Callable[..., SearchRequest],
    monkeypatch: pytest.MonkeyPatch,
    machines: list[Machine],
    given: dict[str, str],
    gpus: float,
) -> None:
    """The rule of one machine. A GPU where no core is for trials counts for nothing."""
    monkeypatch.setattr(cluster, "machines", lambda address: machines)
    made = plan(asked(trials=12, rounds=4, address="10.0.0.1:6379", **given))
    e = made.experiment
    assert (e.gpus_per_trial, e.concurrency, e.order) == (gpus, 12, "arrival"), "machines that join have room too"
    told = "The cluster has GPUs, so each trial has 0.25 GPU. On its cores instead: --per-trial gpus=0."
    assert (told in made.notes) == (gpus == 0.25)


def test_a_cluster_that_does_not_answer_is_told_with_the_plan(
    asked: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_is_joined", lambda: False)
    with pytest.raises(UserError, match=r"No Ray cluster answers at '127.0.0.1:1' \(--address\)"):
        plan(asked(address="127.0.0.1:1"))


@pytest.mark.parametrize(("given", "seeds", "budget"), [({}, 10, 6 * 4), ({"seeds": 3}, 3, 6 * 4 * 3)])
def test_a_race_has_a_budget_of_seed_rounds(
    asked: Callable[..., SearchRequest], given: dict[str, int], seeds: int, budget: int
) -> None:
    made = plan(asked(race=True, trials=6, rounds=4, seed=1, sampler="random", scheduler="none", **given))
    e = made.experiment
    assert (e.budget, e.seed_rounds, e.each, e.races) == (budget, budget, 1, True)
    assert e.seeds == search_seeds(1, seeds) and e.first_seeds == e.seeds[:1]
    assert e.looks_back, "who gets a further seed depends on what earlier trials did"
    assert f"up to {seeds} seeds" in made.notes[0]
    usual = plan(asked(race=False, trials=6, rounds=4, seeds=3, sampler="random", scheduler="none")).experiment
    assert (usual.budget, usual.seed_rounds, usual.each, usual.looks_back) == (0, 6 * 4 * 3, 3, False)


def test_what_the_order_of_trials_means_is_said(
    asked: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "machine", lambda: Machine(4, 0))
    monkeypatch.setattr(cluster, "machines", lambda address: [Machine(4, 0)])
    for given, told in (
        ({}, "the same seed may give other trials"),
        ({"address": "auto"}, "the same seed may give other trials"),
        ({"order": "fixed"}, None),
        ({"slots": 2}, None),
        ({"slots": 8}, "Trials are proposed as on 8 slots; here 4 of them run at once."),
        ({"sampler": "random", "scheduler": "none"}, None),
    ):
        notes = " ".join(plan(asked(trials=12, rounds=4, **given)).notes)
        assert (told or "") in notes and (told is not None or "slots" not in notes and "same seed" not in notes), given


def test_how_many_trials_share_a_process_is_said_and_recorded(
    asked: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "machine", lambda: Machine(4, 0))
    for of_trial, slots, bundle in (("cpus=0.25", None, 1), ("bundle=3", None, 3), ("bundle=9", 4, 4)):
        made = plan(asked(trials=30, per_trial=of_trial, slots=slots))
        notes = " ".join(made.notes)
        assert made.experiment.bundle == bundle and (f"Up to {bundle} trials share a process" in notes) == (bundle > 1)
        assert ("9 do not run at once on one GPU or core." in notes) == (bundle == 4)


def test_a_race_fills_more_slots_than_it_has_trials_and_a_grid_does_not(
    asked: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three seeds the budget of five trials is fifteen federations, and each is a trial of its own. A grid that is
    no race has one trial for each cell."""
    monkeypatch.setattr(resources, "machine", lambda: Machine(64, 0))
    found = plan(asked(trials=5, rounds=4, seeds=3)).experiment
    assert (found.concurrency, found.order) == (15, "arrival")
    given = {"rounds": 4, "sampler": "grid", "trials": 5, "seeds": 3}
    assert plan(asked(**given, race=True)).experiment.concurrency == 15
    assert plan(asked(**given)).experiment.concurrency == 5


def test_what_a_trial_sees_in_the_fixed_order_follows_from_the_slots(asked: Callable[..., SearchRequest]) -> None:
    given = ({"slots": 1}, {"slots": 2}, {"slots": 8, "order": "fixed"})
    found = [plan(asked(trials=12, rounds=4, **one)).experiment for one in given]
    assert [(e.lag, e.early, e.order) for e in found] == [(1, 4, "fixed"), (4, 8, "fixed"), (16, 32, "fixed")]
    assert [found[1].seen(n) for n in (1, 2, 9, 10, 11, 12)] == [0, 1, 8, 8, 8, 9]
    assert [found[2].seen(n) for n in (7, 8, 39, 40, 47, 48)] == [0, 1, 32, 32, 32, 33]


@pytest.mark.parametrize(
    ("given", "races"),
    [
        ({"seeds": 3}, True),
        ({"seeds": 3, "sampler": "random"}, True),
        ({"seeds": 3, "race": False}, False),
        ({"seeds": 1}, False),
        ({}, False),
        ({"seeds": 3, "sampler": "grid", "trials": None}, False),
        ({"seeds": 3, "metric": ("global_accuracy", "bytes_up")}, False),
    ],
)
def test_a_search_of_several_seeds_is_a_race_where_it_can_be(
    asked: Callable[..., SearchRequest], given: dict[str, Any], races: bool
) -> None:
    made = plan(asked(**{"trials": 6, "rounds": 4, **given}))
    assert made.experiment.races is races and len(made.experiment.seeds) == given.get("seeds", 1)
    said = "A race: every configuration begins with one seed, and gets up to 3 where they are worth it"
    assert any(note.startswith(said) for note in made.notes) is races
    if races:
        again = plan(asked(**{"trials": 6, "rounds": 4, **given, "race": True}))
        assert again.experiment == made.experiment and again.notes == tuple(n for n in made.notes if said not in n)


def test_a_space_with_conditions_gives_every_trial_all_seeds(
    asked: Callable[..., SearchRequest], tmp_path: Path
) -> None:
    file = tmp_path / "varied.yaml"
    file.write_text("method: fedavg\nsearch: {lr: {low: 0.01, high: 0.1}}\nvary: {omega: [1, 10]}\n", encoding="utf-8")
    made = plan(asked(space=str(file), trials=6, rounds=4, seeds=2))
    assert not made.experiment.races and made.experiment.each == 2


def test_a_race_compares_one_metric(asked: Callable[..., SearchRequest]) -> None:
    metrics = ("global_accuracy", "bytes_up")
    assert problems(asked(race=True, metric=metrics)) == (
        "A race compares one metric. Give one --metric, or leave --race out.",
    )


@pytest.mark.parametrize(
    ("changed", "model"),
    [
        ({}, "lenet5"),
        ({"set": ("clients=4", "local_steps=20")}, "lenet5"),
        ({"set": ("clients=4", "local_steps=17")}, "auto"),  # 489 billion
        ({"set": ("clients=4", "local_epochs=1")}, "auto"),  # 240 samples
        ({"set": ("clients=4", "local_epochs=18")}, "lenet5"),
        ({"set": ("clients=4", "active_clients=1")}, "auto"),
        ({"model": "cnn"}, "cnn"),
        ({"model": "auto"}, "auto"),
        ({"method": "dense", "set": ("clients=4", "beta_bn=1", "rho=0")}, "lenet_code"),  # needs batch normalisation
        ({"method": "dfrd", "set": ("clients=4", "local_steps=5", "rho=0")}, "lenet5"),
        ({"method": "dfrd", "set": ("clients=4", "local_steps=5", "rho=0", "server_iters=1")}, "auto"),  # 225 billion
        ({"method": "dfrd", "set": ("clients=4", "local_steps=5")}, "lenet_code"),  # models of a quarter and less
        ({"method": "dfrd", "set": ("clients=4", "local_steps=5", "use_ema=false")}, "auto"),  # half as many
        ({"method": "fedftg", "set": ("clients=4", "local_steps=5", "rho=0")}, "lenet5"),
        ({"method": "fedkf", "set": ("clients=4", "active_clients=0", "local_steps=7")}, "lenet5"),  # 8 passes, not 3
        ({"method": "fedkf", "set": ("clients=4", "active_clients=0", "local_steps=7", "gamma=0")}, "auto"),
        ({"method": "heterofl", "set": ("clients=4", "rho=10")}, "lenet_code"),  # which narrow sub-models need
        ({"dataset": "digits", "set": ("clients=10", "local_steps=1000")}, "auto"),  # images are small
    ],
)
def test_the_small_profile_takes_a_small_model_where_a_round_would_compute_much(
    changed: dict[str, Any], model: str, tmp_path: Path
) -> None:
    """Of 240 images of 28 × 28 every one of 4 clients has 60, which a step takes whole. A forward pass of cnn by hand:
    maps of 28, 14, 7 and 3, 3 × 3 weights, 1, 64, 128, 256 and 512 channels."""
    own = write_toy(tmp_path, size=28)
    asked = {"method": "fedavg", "dataset": str(own), "set": ("clients=4",), "name": str(tmp_path / "x"), **changed}
    found = settled(SearchRequest(**asked), [])
    assert found.values["model"] == found.space.fix.get("model", "auto") == model
    if model not in ("lenet5", "lenet_code"):
        assert not any(note.startswith("Model") for note in found.chosen)
        return
    image = 9 * (28**2 * 1 * 64 + 14**2 * 64 * 128 + 7**2 * 128 * 256 + 3**2 * 256 * 512) + 512 * 4
    given = dict(pair.split("=") for pair in asked["set"])
    steps = int(given.get("local_epochs") or given.get("local_steps", 20)) or int(given["local_steps"])
    passes, server = 8 if asked["method"] == "fedkf" else 3, 0.0
    if asked["method"] in ("dfrd", "fedftg", "dense"):
        # 5 times 64 images. Widths of 4 clients are 1/4 and three times 1/16, of whose models each costs the square.
        teachers = 4 if given.get("rho") == "0" else 1 / 16 + 3 / 256
        generator = {"fedftg": 1}.get(asked["method"], 2) * (2 * teachers + 1)
        server = 5 * 64 * (generator + 5 * {"dfrd": 2}.get(asked["method"], 1) * (teachers + 3))
    said = f"{passes * 4 * 60 * steps * image / 1e9:,.0f} billion multiply-adds"
    assert f"{said} and its server {server * image / 1e9:,.0f}, and" * bool(server) in found.chosen[0]
    assert f"{said}, and above 500 billion" * (not server) in found.chosen[0]
    assert found.chosen[0].startswith(f"Model {model}: ") and found.chosen[0].endswith("--set model=cnn takes cnn.")


@pytest.mark.parametrize(
    ("changed", "measured"),
    [
        ({}, "end"),
        ({"metric": ("wlp", "bytes_up")}, "end"),
        ({"require": ("wlp>=0.1",)}, "end"),
        ({"set": ("eval_test=every",)}, "every"),
        ({"metric": ("test_wlp",)}, "every"),
        ({"log": "tensorboard"}, "every"),
        ({"set": ("target=0.5",)}, "every"),
        ({"set": ("validation_fraction=0",), "metric": ("test_wlp",)}, "every"),
        ({"paper": True, "rounds": 2, "set": ("clients=3",), "trials": 2}, "every"),
        ({"method": "dfrd", "space": "alpha_lambda"}, "end"),
    ],
)
def test_a_small_search_measures_on_the_test_set_where_a_trial_may_end(
    asked: Callable[..., SearchRequest], changed: dict[str, Any], measured: str
) -> None:
    """Unless it is set, or something reads what every round measures there. Where it cannot be so, nothing is
    refused."""
    request = asked(**changed)
    found: list[str] = []
    settings = settled(request, found)
    selection = selected_by(request, settings, found)
    assert is_measured_at_end(request, settings, selection) == (measured == "end") and not found
    assert settings.value("eval_test") == "every"  # which the plan of the search changes


def test_figures_of_curves_keep_the_test_set_in_every_round(
    asked: Callable[..., SearchRequest], tmp_path: Path
) -> None:
    for figures, vary, measured in (
        ("[importance]", "{}", "end"),
        ("[curves]", "{}", "every"),
        ("[]", "{target: [0.1, 0.2]}", "every"),
        ("[]", "{validation_fraction: [0.1, 0.2]}", "every"),
        ("[]", "{omega: [1, 10]}", "end"),
    ):
        file = tmp_path / "own.yaml"
        file.write_text(f"method: fedavg\nsearch: {{lr: {{}}}}\nvary: {vary}\nfigures: {figures}\n")
        made = plan(asked(space=str(file), rounds=2, trials=4, set=("clients=3",)))
        assert made.experiment.values["eval_test"] == made.space.fix.get("eval_test", "every") == measured


def test_final_runs_measure_on_the_test_set_in_every_round(asked: Callable[..., SearchRequest], tmp_path: Path) -> None:
    """That of a method, and that of a search's winner, whose trials did not."""
    given: dict[str, Any] = {"dataset": str(asked().dataset), "set": ("clients=3", "partition=iid"), "seeds": 1}
    own = plan(RunRequest("fedavg", name=str(tmp_path / "own"), **given))
    assert own.experiment.values["eval_test"] == "every"
    made = experiment(tmp_path / "search", values={"eval_test": "end"}, trials=2, scheduler="none")
    create(tmp_path / "search", made, space(), {})
    run = play(tmp_path / "search")
    assert run.config(0)["eval_test"] == "end"
    assert described(run, Best.of(run, 0))["parameters"]["eval_test"] == "every"


def test_the_model_that_was_taken_is_in_the_record_and_told(tmp_path: Path) -> None:
    given: dict[str, Any] = {"dataset": str(write_toy(tmp_path, size=28)), "set": ("clients=4", "partition=iid")}
    for made in (
        plan(SearchRequest("fedavg", name=str(tmp_path / "a"), **given)),
        plan(RunRequest("fedavg", name=str(tmp_path / "b"), seeds=1, **given)),
    ):
        assert made.experiment.values["model"] == "lenet5" and made.space.fix["model"] == "lenet5"
        assert sum(note.startswith("Model lenet5: ") for note in made.notes) == 1
    paper = plan(RunRequest("fedavg", paper=True, name=str(tmp_path / "c"), seeds=1, **given))
    assert paper.experiment.values["model"] == "cnn"


def test_very_many_clients_may_have_fewer_samples_each_than_the_default(tmp_path: Path) -> None:
    """216 of digits' toy's 240 images are trained on: 9 for each of 24 clients. Half of an equal share is kept for the
    smallest; what was asked for is refused as ever, and so is a client without a sample."""
    given: dict[str, Any] = {"dataset": str(write_toy(tmp_path)), "name": str(tmp_path / "none" / "a")}
    made = plan(SearchRequest("fedavg", set=("clients=24",), **given))
    assert made.experiment.values["min_samples"] == made.space.fix["min_samples"] == 4
    assert "min_samples 4: not each of 24 clients can have the default of 10 training samples." in made.notes
    assert "min_samples" not in plan(SearchRequest("fedavg", set=("clients=21",), **given)).space.fix
    for wanted in (("clients=24", "min_samples=10"), ("clients=217",)):
        (problem,) = problems(SearchRequest("fedavg", set=wanted, **given))
        assert problem.startswith("clients × min_samples must be at most 216, the training samples that are dealt"), (
            wanted
        )


def test_a_search_ends_with_a_confirmation_where_it_can(asked: Callable[..., SearchRequest]) -> None:
    """From ten federations on, of one metric under one condition, that are not all seeds of all configurations."""
    confirms = {
        plan(asked(rounds=2, **options)).experiment.confirm: options
        for options in (
            {"trials": 24},
            {"trials": 9},
            {"trials": 24, "confirm": False},
            {"trials": 24, "set": ("clients=3", "partition=iid", "confirm=false")},
            {"trials": 24, "seeds": 2, "race": False},
            {"trials": 24, "metric": ("val_global_accuracy", "bytes_up")},
            {"trials": 10, "sampler": "grid", "space": "default"},
        )
    }
    assert {*confirms} == {4, 0} and confirms[4] == {"trials": 24}
    assert plan(asked(rounds=2, trials=8, seeds=3)).experiment.confirm == 0, "a race gives seeds all along"
    race = plan(asked(rounds=2, trials=8, seeds=3, confirm=True))
    assert (race.experiment.budget, race.experiment.confirm) == (48, 4)
    assert any("the last fifth of its budget" in note for note in race.notes)
    assert any("the last 4 of 24 trials are further seeds" in note for note in plan(asked(trials=24)).notes)
    assert problems(asked(trials=24, confirm=True, sampler="grid"))[0].startswith("confirm must be false for a grid")
    (problem,) = problems(asked(trials=9, confirm=True))
    assert problem == "trials must be at least 10 where confirm is true, got 9 (--trials)."
