"""`python -m benchmarks.replay`: what is measured anew stands beside what was, and a page is made of it."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.curve_table import save
from benchmarks.replay import __main__ as command
from benchmarks.replay.cells import points
from benchmarks.replay.kept import with_others
from benchmarks.tables.auto_specs import METHODS, named
from benchmarks.tests.test_replay_auto import table
from benchmarks.tests.test_replay_objectives import several
from tests import packed

#: Words of a command that takes seconds.
LITTLE = ("--processes", "1", "--repetitions", "2")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls the command on the tables in a folder. What it writes goes there, what stands for a release into `docs`."""
    (tmp_path / "docs").mkdir()
    for name, path in (
        ("OUT", tmp_path),
        ("RESULTS", tmp_path / "search-quality.json"),
        ("KEPT", tmp_path / "docs" / "search-quality.json.xz"),
        ("DOCS", tmp_path / "docs" / "search-quality.md"),
    ):
        monkeypatch.setattr(command, name, path)

    def call(what: str, *words: str) -> int:
        given = ("--table", str(tmp_path), *LITTLE) if what == "run" else ()
        monkeypatch.setattr("sys.argv", ["replay", what, *given, *words])
        return command.main()

    return call


def results() -> dict[str, Any]:
    return dict(json.loads(command.RESULTS.read_text(encoding="utf-8")))


def test_what_is_replayed_stands_beside_what_was(call: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From no results to the page of a release, and further searchers and objectives after that."""
    assert call("record") == 2 and "make bench-search" in capsys.readouterr().err
    assert call("run") == 2 and "fedtune export RUN --table FILE" in capsys.readouterr().err
    means = np.stack([np.arange(10) / 10, -np.arange(10) / 10], axis=1)
    save(several(np.tile(means[:, None], (1, 4, 1)), "mine"), tmp_path / "cells.npz")
    assert call("run", "--searchers", "nobody") == 2 and "nobody is no searcher" in capsys.readouterr().err

    file = ("--table", str(tmp_path / "cells.npz"))
    assert call("run", *file, "--searchers", "random-1", "grid-1", "grid-3", "optuna-nsga2") == 0
    out = capsys.readouterr().out
    assert re.search(r"\| grid-1 \| \d+\.\d  0\.0  0\.0 \|", out), "the whole grid without noise has no regret"
    found = results()
    assert found["tables"]["mine"]["searchers"]["grid-3"] == {
        "impossible": "3 seeds each, and the table has 2 for the search"
    }
    assert found["tables"]["mine"]["blind"] == pytest.approx(0.45, abs=1e-4), "half a step of the table's codes"
    assert call("record") == 0 and call("page", "--check") == 0
    assert packed.read(command.KEPT) == results()
    text = command.DOCS.read_text()
    command.DOCS.write_text(text.replace("Quality", "Quantity"))
    assert call("page", "--check") == 1 and call("page") == 0 and call("page", "--check") == 0

    before = results()
    assert call("run", "--objectives", "--searchers", "random-1", "optuna-tpe") == 0
    found = results()
    assert {name: one["searchers"] for name, one in found["tables"].items()} == {
        name: one["searchers"] for name, one in before["tables"].items()
    }
    assert [*found["objectives"]["tables"]["mine"]["searchers"]] == ["random-1", "optuna-tpe"]


def test_a_table_of_one_seed_ends_in_a_sentence(call: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(table("fedavg", np.arange(8) / 10, seeds=1, name="alone"), tmp_path / "alone.npz")
    assert call("run", "--table", str(tmp_path / "alone.npz"), "--searchers", "random-1") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "got 8 and 0 (alone): from one seed it cannot be told" in said
    assert "Traceback" not in said and not command.RESULTS.exists()


def test_the_family_is_replayed_beside_the_figures_of_a_release(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = packed.read(Path(command.__file__).parents[1] / "recorded" / "search-quality.json.xz")
    packed.write(command.KEPT, before)
    for n, method in enumerate(METHODS):
        name = named("blobs", method)
        path = tmp_path / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        save(table(method, 0.5 + 0.02 * n - 0.05 * np.abs(np.arange(4) - 2), name=name), path)
    assert call("run", "--tables", "auto", "--auto-repetitions", "1", "--auto-budgets", "25") == 0
    found = results()
    assert {key: value for key, value in found.items() if key != "auto"} == {
        key: value for key, value in before.items() if key != "auto"
    }
    assert found["auto"]["repetitions"] == 1 and found["auto"]["unrecorded"] == ["digits", "rotated_digits"]
    (entry,) = found["auto"]["datasets"].values()
    (at,) = entry["budgets"]
    assert (at["federations"], at["n"]) == (25, 1) and at["spent"] <= at["seed_rounds"]
    text = (tmp_path / "search-quality.md").read_text(encoding="utf-8")
    assert f"| blobs | 25 | {points(entry['blind'])} | {points(at['regret']['auto'])} |" in text


def measured(*searchers: str, tables: tuple[str, ...] = ("one",), repetitions: int = 5, **machine: str) -> Any:
    """Results as `bench.measure` has them, with nothing but what decides what stands beside what."""
    on = {"processor": "P", "cores": 2, "date": "D", "revision": "R"} | machine
    entry = {"text": "A toy.", "rounds": 4, "blind": 0.4, "floor": 0.1}
    found = {name: entry | {"searchers": {s: {"n": repetitions} for s in searchers}} for name in tables}
    occasion = {"repetitions": repetitions, "slots": 1, "seconds": 1, "processes": 1, "machine": on}
    return {**occasion, "budgets": [3, 8], "tables": found, "objectives": {"tables": {}}}


def test_tables_and_searchers_keep_the_date_on_which_they_were_replayed() -> None:
    first = measured("random-1", "random-3", repetitions=8)
    both = with_others(first, measured("random-1", tables=("two",), repetitions=5, date="later"))
    assert [*both["tables"]] == ["one", "two"]
    assert {name: one["occasion"]["repetitions"] for name, one in both["tables"].items()} == {"one": 8, "two": 5}
    further = with_others(first, measured("oracle-random", repetitions=8, date="later", revision="next"))
    searchers = further["tables"]["one"]["searchers"]
    assert [*searchers] == ["random-1", "random-3", "oracle-random"] and "occasion" not in searchers["random-1"]
    assert searchers["oracle-random"]["occasion"]["machine"]["date"] == "later"


def test_only_what_can_be_compared_stands_side_by_side() -> None:
    first = measured("random-1", "random-3", repetitions=8)

    def joined(now: Any, before: Any = first) -> list[str]:
        return [*with_others(before, now)["tables"]["one"]["searchers"]]

    every = ["random-1", "random-3", "oracle-random"]
    assert joined(measured("oracle-random", repetitions=8)) == joined(measured("oracle-random")) == every
    assert joined(measured("oracle-random", repetitions=9)) == ["oracle-random"], "some lack repetitions of it"
    assert joined(measured("random-1", "random-3", "grid-1")) == ["random-1", "random-3", "grid-1"]
    # Another number of threads rounds and fits otherwise; another table is another one.
    for change, alone in ((1 + 1e-12, False), (1 + 1e-7, False), (1 + 1e-5, True)):
        moved = copy.deepcopy(first)
        moved["tables"]["one"]["blind"] *= change
        assert (joined(measured("oracle-random", repetitions=8), moved) == ["oracle-random"]) is alone
    # Columns of other budgets would be taken for these.
    kept = with_others(first | {"budgets": [1, 2]}, measured("random-1", tables=("two",)))
    assert [*kept["tables"]] == ["two"]
