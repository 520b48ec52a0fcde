"""A sampler of a user's own: the file of docs/add-a-sampler.md, found by FEDTUNE_SAMPLERS."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fedtune.decisions import own_sampler
from fedtune.decisions.history import Part
from fedtune.decisions.next_trial import configuration
from fedtune.options import SearchRequest, own_samplers
from fedtune.planning.plan import plan
from fedtune.planning.resumption import check_unchanged
from fedtune.record.provenance import sampler_file
from search_spaces.errors import UserError
from tests.fedtune.conftest import frozen, space, start
from tests.fedtune.played import begin, play, searched
from tests.fedtune.queues import opened

PAGE = Path(__file__).parents[3] / "docs" / "add-a-sampler.md"
DEF = "def propose(history, space, rng):\n"
OWN: dict[str, Any] = {"sampler": "mysampler", "scheduler": "asha", "grace": 1, "trials": 12, "rounds": 4, "lag": 3}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's file."""
    found = re.search(r"```python mysampler.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None and len(found[1].splitlines()) < 40
    path = tmp_path / "mysampler.py"
    path.write_text(found[1])
    monkeypatch.setenv("FEDTUNE_SAMPLERS", str(path))
    return path


def test_the_file_of_the_page_searches_and_goes_on_to_the_same_end(mine: Path, tmp_path: Path) -> None:
    """However many trials run at once, and however often the driver is killed."""
    run = searched(tmp_path / "calm", **OWN)
    assert len({tuple(run.parameters(n).values()) for n in range(12)}) == 12
    begin(tmp_path / "killed", **OWN)
    play(tmp_path / "killed", width=3, sessions=2)
    assert frozen(tmp_path / "killed") == frozen(tmp_path / "calm")


def test_it_sees_what_its_trial_may_look_at_and_no_more(mine: Path, tmp_path: Path) -> None:
    """Also trials that were stopped; values are turned so that larger is better."""
    mine.write_text(
        "SEEN = []\ndef propose(history, space, rng):\n    SEEN.append(history)\n"
        "    return {key: rng.uniform(d.low, d.high) for key, d in space.search.items()}\n"
    )
    run = searched(tmp_path / "run", **OWN, metric=("bytes_up",))
    part = Part(tmp_path / "run", start(tmp_path / "other", **OWN, metric=("bytes_up",)), space())
    assert part.sampler is not None
    configuration(part, run.frozen, [run.trial(n) for n in range(10)], None)
    (history,) = part.sampler.__globals__["SEEN"]
    assert [one.complete for one in history] == [run.trial(n).state.name == "COMPLETE" for n in range(10)]
    for one, trial in zip(history, run.frozen, strict=False):
        assert one.values == {"alpha": trial.params["alpha"], "lambda": trial.params["lambda"]}
        last = trial.values[0] if trial.values else trial.intermediate_values[trial.user_attrs["rounds"]]
        assert one.results == (-last,) and one.rounds == trial.user_attrs["rounds"]


def test_it_is_told_what_runs_where_it_asks(mine: Path, tmp_path: Path) -> None:
    """Those that its trial may not look at, whether or not they have ended in the meantime; no further seed twice."""
    mine.write_text(
        "def propose(history, space, rng, running):\n    low = {key: d.low for key, d in space.search.items()}\n"
        "    return low | {'alpha': low['alpha'] + 0.01 + max((one['alpha'] for one in running), default=0)}\n"
    )
    low = space().search["alpha"].low
    run = searched(tmp_path / "run", **{**OWN, "lag": 3, "trials": 6, "scheduler": "none"})
    alphas = [run.trial(number).params["alpha"] for number in range(6)]
    for number in range(2, 6):  # sees all but the two before it
        assert alphas[number] == pytest.approx(low + 0.01 + max(alphas[number - 2 : number]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "def propose(history, space, rng):\n    return {'alpha': 9.0, 'lambda': 0.5}\n",
            "must propose a value of the",
        ),
        (
            "def propose(history, space, rng):\n    return {'alpha': 1.0}\n",
            "must propose a value of the space for each",
        ),
        ("def propose(history, space, rng):\n    return 5\n", "a mapping of names to values"),
        ("def propose(history, space, rng):\n    return 1 / 0\n", "The sampler mysampler failed: ZeroDivisionError"),
        ("def propose(history, space, rng):\n    raise SystemExit(3)\n", "The sampler mysampler failed: SystemExit: 3"),
        ("propose = 5\n", "must define propose"),
        ("1 / 0\n", "cannot be loaded as a sampler: ZeroDivisionError"),
        ("import run\n", "cannot be loaded as a sampler: ModuleNotFoundError.* must stand alone, so run beside it"),
        ("raise SystemExit(3)\n", "cannot be loaded as a sampler: SystemExit: 3"),
    ],
)
def test_what_is_wrong_with_it_is_one_sentence(mine: Path, tmp_path: Path, text: str, says: str) -> None:
    mine.write_text(text)
    made = start(tmp_path / "run", **OWN)
    with pytest.raises(UserError, match=says) as told:
        opened(tmp_path / "run", made).propose()
    assert len(told.value.problems) == 1


def test_a_run_directory_alone_runs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDTUNE_SAMPLERS", raising=False)
    made = start(tmp_path / "run", **OWN)
    with pytest.raises(UserError, match="FEDTUNE_SAMPLERS does not name it"):
        opened(tmp_path / "run", made)
    assert own_samplers() == {} and sampler_file("mysampler") is None
    with pytest.raises(UserError, match="Unknown sampler 'mysampler'"):
        plan(SearchRequest("fedavg", sampler="mysampler", name=tmp_path / "made"))  # type: ignore[arg-type]


@pytest.mark.parametrize("sampler", ["tpe", None])
def test_a_file_with_the_name_of_a_sampler_of_fedtune_is_refused(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: Any
) -> None:
    """Named or by default."""
    file = mine.rename(tmp_path / f"{sampler or 'ei'}.py")
    monkeypatch.setenv("FEDTUNE_SAMPLERS", str(file))
    with pytest.raises(UserError, match=f"{file.name} must be a name that no sampler of fedtune has"):
        plan(SearchRequest("fedavg", sampler=sampler, name=tmp_path / "made"))


def test_a_file_that_was_changed_is_refused(mine: Path, tmp_path: Path) -> None:
    from analysis.runs import load_run
    from fedtune.record import provenance
    from fedtune.record.run_directory import create

    planned = plan(SearchRequest("fedavg", sampler="mysampler", trials=2, rounds=2, name=tmp_path / "made"))  # type: ignore[arg-type]
    made = planned.experiment
    facts = provenance.provenance(device="cpu", **planned.facts)
    create(planned.folder, made, planned.space, facts)
    run = load_run(planned.folder)
    assert run.provenance["sampler_file"] == sampler_file("mysampler")
    check_unchanged(run, made, planned.space)
    mine.write_text(mine.read_text() + "# another\n")
    with pytest.raises(UserError, match=r"mysampler\.py must be as it was when .* began"):
        check_unchanged(run, made, planned.space)
    assert own_sampler.load("mysampler") is not None
