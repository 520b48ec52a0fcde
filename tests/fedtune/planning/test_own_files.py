"""A method and a model in files of a user's own: named once, recorded with their hash, sent to the trials as text, and
run for nobody who has not named them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from analysis.runs import load_run
from fedtune.options import SearchRequest
from fedtune.planning.plan import Plan, plan
from fedtune.planning.resumption import check_unchanged, complete
from fedtune.record import provenance, run_directory
from fedtune.record.experiment import Experiment
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.toy import write_toy
from tests.trainables import jobs
from trainables import own_code, registry
from trainables.data import cache
from trainables.simulation.replicates import Replicates
from trainables.tune import Trial
from trainables.worker.job import Job
from trainables.worker.rounds_jsonl import read_rows

METHOD = """\
import dataclasses
from trainables.methods import fedavg

METHOD = dataclasses.replace(fedavg.METHOD, name="mine", title="Mine")
"""
CONTRADICTING = """
from search_spaces.parameter import real

Config = dataclasses.make_dataclass(
    "Config", [("mu", float, real(5.0, low=0.0, high=2.0, doc="M."))], bases=(METHOD.Config,), frozen=True
)
METHOD = dataclasses.replace(METHOD, Config=Config)
"""
#: Without a weight in it nothing can be learned, so that its numbers are told from those of another text.
NET = """\
import torch


class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = torch.nn.Linear(64, classes)

    def forward(self, x):
        return self.head(x.flatten(1) * SCALE)


SCALE = 1.0
"""


@pytest.fixture
def files(workplace: Path) -> Path:
    """A folder with both files, on a machine where nobody has named any."""
    (workplace / "mymethod.py").write_text(METHOD)
    (workplace / "mynet.py").write_text(NET)
    return workplace


def planned(folder: Path, method: str = "") -> Plan:
    settings = (f"model={folder}/mynet.py:Net", "clients=3", "omega=1", "local_steps=2", "rounds=1")
    return plan(SearchRequest(method or f"{folder}/mymethod.py", dataset=str(write_toy(folder)), set=settings))


def begun(folder: Path, method: str = "") -> Path:
    made = planned(folder, method)
    run_directory.create(made.folder, made.experiment, made.space, provenance.provenance(**made.facts))
    own_code.forget()  # what follows is another command
    return made.folder


def checked(folder: Path, **options: bool) -> list[str]:
    run = load_run(folder)
    return check_unchanged(run, *complete(folder, Experiment.of(run)), **options)


def job_of(made: Plan, folder: Path) -> Job:
    method, values = made.experiment.method, dict(made.middle)
    return jobs.job_of(folder, method, values, code=registry.own_codes(method, values))


def test_both_are_recorded_with_their_hash_and_found_again(files: Path) -> None:
    folder = begun(files)
    said = json.loads((folder / run_folder.PROVENANCE).read_text())
    assert said["method_file"] == {
        "method": "mine",
        "file": "mymethod.py",
        "hash": own_code.Code("", METHOD).hash,
    }
    assert said["model_file"] == {
        "model": f"{files}/mynet.py:Net",
        "file": "mynet.py",
        "hash": own_code.Code("", NET).hash,
    }
    assert load_run(folder).experiment["method"] == "mine" and folder.name == "mine-default"
    assert checked(folder) == []
    assert registry.method("mine").title == "Mine"


@pytest.mark.parametrize("name", ["mymethod.py", "mynet.py", "FEDTUNE_METHODS"])
def test_a_file_that_was_changed_is_refused_or_accepted(
    files: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if listed := name == "FEDTUNE_METHODS":
        monkeypatch.setenv(name, str(files / "mymethod.py"))
        name = "mymethod.py"
    folder, text = begun(files, "mine" if listed else ""), (files / name).read_text()
    assert checked(folder) == [] and provenance.went_on(folder) is None
    (files / name).write_text(text + "# another comment\n")
    with pytest.raises(UserError, match=rf"^{name} must be as it was when .* began .*--other-versions") as told:
        checked(folder)
    assert len(told.value.problems) == 1
    assert checked(folder, other_versions=True) == []
    said = str(provenance.went_on(folder))
    assert f"goes on with {name}" in said and "may give other numbers" in said
    assert checked(folder) == [], "accepted once, and recorded"
    (files / name).write_text(text)
    assert checked(folder) == [], "what it began with"


def test_a_method_of_the_package_has_no_file_of_its_own(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTUNE_METHODS", str(files / "mymethod.py"))
    folder = begun(files, "fedavg")
    assert "method_file" not in json.loads((folder / run_folder.PROVENANCE).read_text())
    (files / "mymethod.py").write_text(METHOD + "# another comment\n")
    assert checked(folder) == [] and provenance.went_on(folder) is None


def test_a_trial_runs_the_text_that_it_was_sent(files: Path) -> None:
    made = planned(files)
    job = job_of(made, files / "one")
    jobs.complete(job)
    (files / "mynet.py").write_text("raise SystemError('this is run by no trial')\n")
    own_code.forget()
    jobs.complete(dataclasses.replace(job, folder=str(files / "two")))
    one, two = (jobs.untimed_rows(files / name)[0] for name in ("one", "two"))
    assert one == two
    other = [dataclasses.replace(code, text=code.text.replace("SCALE = 1.0", "SCALE = 0.0")) for code in job.code]
    third = Trial({"job": dataclasses.replace(job, folder=str(files / "three"), code=tuple(other))})
    third.step()
    assert read_rows(files / "three" / "rounds.jsonl")[0]["global_loss"] != one["global_loss"]


def test_a_trial_runs_its_own_file_and_none_of_that_name_elsewhere(files: Path) -> None:
    made = planned(files)
    for folder in map(str, range(6)):  # other projects on this machine, whose methods have the same name, and fail
        (files / folder).mkdir()
        (files / folder / "mymethod.py").write_text(f"{METHOD}# {folder}\nraise ValueError({folder!r})\n")
        own_code.named(files / folder / "mymethod.py", "method")
    job = job_of(made, files / "one")
    own_code.forget()  # the trial is another process, perhaps on another machine
    (files / "mymethod.py").unlink()
    jobs.complete(job)


def test_a_broken_file_elsewhere_hides_no_method(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(files)
    other = files / "other" / "mymethod.py"
    other.parent.mkdir()
    other.write_text(METHOD + "raise ValueError('broken')\n")
    own_code.named(other, "method")  # named last
    own_code.forget()
    assert registry.method("mine").title == "Mine"
    assert own_code.loaded() == [str(files / "mymethod.py")]
    own_code.forget()
    monkeypatch.chdir(other.parent)  # here the broken file comes first
    (files / "mymethod.py").write_text(METHOD.replace("Mine", "Far away"))
    assert registry.method("mine").title == "Far away"
    (files / "mymethod.py").unlink()
    own_code.forget()
    with pytest.raises(UserError, match=r"other/mymethod.py cannot be run \(line 5\): ValueError: broken"):
        registry.method("mine")


def test_a_run_from_somebody_else_runs_no_file(files: Path) -> None:
    folder = begun(files)
    for name in ("mymethod.py", "mynet.py"):
        (files / name).write_text(f"open({str(files / 'was_run')!r}, 'w')\n" + (files / name).read_text())
    (cache.home() / "own").rename(files / "not_here")  # another machine: nobody has named these files there
    own_code.forget()
    with pytest.raises(UserError, match="Unknown method 'mine'"):
        checked(folder)
    own_code.named(files / "mymethod.py", "method")  # the method is trusted, the model not yet
    (files / "was_run").unlink(missing_ok=True)
    registry.method("mine")
    (files / "was_run").unlink()
    what = r"mynet.py is Python code that nobody has named on this machine.* a metric by --metric .*mynet.py:FUNCTION"
    with pytest.raises(UserError, match=what):
        checked(folder)
    checked(folder, other_versions=True)  # which accepts other content, but runs nothing
    with pytest.raises(UserError, match=r"mynet.py is Python code that nobody has named on this machine"):
        Replicates("fedavg", load_run(folder).experiment["values"], (0,), device="cpu", data_dir=None)
    assert not (files / "was_run").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "METHOD of mymethod.py must be a trainables.method.Method, got no METHOD"),
        (METHOD.replace('"mine"', '"fedprox"'), "must be a name that no method of fedtune has, got 'fedprox'"),
        ("import nothing_like_it\n", r"mymethod.py cannot be run \(line 1\): ModuleNotFoundError"),
        ("import mynet\n", r"\(line 1\): ModuleNotFoundError: .* must stand alone, so mynet beside it is not found"),
        ("raise SystemExit(3)\n", r"mymethod.py cannot be run \(line 1\): SystemExit: 3"),
        (METHOD + CONTRADICTING, r"default of mu must be a number in \[0, 2\], got 5.0 \(.*mymethod.py\)"),
        (None, "method must be the path of an existing Python file"),
    ],
)
def test_a_file_that_is_no_method_is_said_before_anything(files: Path, text: str | None, said: str) -> None:
    (files / "mymethod.py").unlink() if text is None else (files / "mymethod.py").write_text(text)
    with pytest.raises(UserError, match=said):
        planned(files)
    assert not (files / "runs").exists()


#: A server that fails in a round, an `init` with another signature, and one round that needs more than one step.
FAILING = """
@dataclasses.dataclass(frozen=True)
class State(fedavg.State):
    round: int = 0

def init(config, fed, rng):
    return State(fedavg.init(config, fed, rng).model)

def server(config, fed, state, uploads, rng):
    if state.round + 1 == {round}:
        return state.nothing
    return State(fedavg.server(config, fed, state, uploads, rng).model, None, state.round + 1)

METHOD = dataclasses.replace(METHOD, State=State, init=init, server=server)
"""
EXITS = ("return state.nothing", "raise SystemExit(3)")
STRICT = """
METHOD = dataclasses.replace(METHOD, check=lambda config, federation: ["Two."] if config.local_steps < 2 else [])
"""


def test_a_first_round_that_fails_is_said_before_anything(files: Path) -> None:
    for added, said in (
        (FAILING.format(round=1), r"of mine fails: AttributeError: .*'nothing' \(mymethod.py, line 15\)\. No run"),
        ("\nMETHOD = dataclasses.replace(METHOD, init=lambda config: None)\n", "of mine fails: TypeError: .*argument"),
        (FAILING.format(round=1).replace(*EXITS), r"of mine fails: SystemExit: 3 \(mymethod.py, line 15\)\. No run"),
    ):
        own_code.forget()
        (files / "mymethod.py").write_text(METHOD + added)
        with pytest.raises(UserError, match=said):
            planned(files)
        assert not (files / "runs").exists()
    own_code.forget()
    (files / "mymethod.py").write_text(METHOD + STRICT)  # tried with the steps that it may take
    assert planned(files).experiment.method == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FAILING, "AttributeError: 'State' object has no attribute 'nothing' (mymethod.py, line 15)"),
        (FAILING.replace(*EXITS), "SystemExit: 3 (mymethod.py, line 15)"),
    ],
)
def test_a_later_error_is_told_with_its_line(files: Path, text: str, said: str) -> None:
    (files / "mymethod.py").write_text(METHOD + text.format(round=2))
    made = planned(files)
    job = dataclasses.replace(job_of(made, files / "one"), values={**made.middle, "rounds": 2})
    ending = jobs.run(job)
    assert ending.stop_reason == "error" and ending.round == 1
    assert ending.error == said


def test_an_object_is_known_by_its_file(files: Path) -> None:
    path = own_code.named(files / "mymethod.py", "method")
    module = own_code.module(path)
    assert isinstance(module, ModuleType)
    assert registry.named(module) == registry.named(module.METHOD) == registry.named(path) == "mine"
    assert registry.named(registry.method("fedavg")) == "fedavg"
    with pytest.raises(UserError, match="must be a method's name, the path of its file, or a Method"):
        registry.named(torch.nn.Linear)


def test_its_clients_train_in_a_loop(files: Path) -> None:
    with pytest.raises(UserError, match="executor must be auto or loop for a model of your own"):
        settings = (f"model={files}/mynet.py:Net", "clients=3", "omega=1", "executor=vmap")
        plan(SearchRequest("fedavg", dataset=str(write_toy(files)), name=files / "runs" / "mine", set=settings))
