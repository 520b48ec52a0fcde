"""`python -m benchmarks.replay`: what is measured anew stands beside what was, and a page is made of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.curve_table import save
from benchmarks.replay import __main__ as command
from benchmarks.replay import defaults
from benchmarks.replay.auto.section import section
from benchmarks.replay.defaults import DECIDING, PRESENT, VARIANTS
from benchmarks.replay.kept import whens, with_others
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
        given = ("--folder", str(tmp_path), *LITTLE) if what in ("run", "defaults") else ()
        monkeypatch.setattr("sys.argv", ["replay", what, *given, *words])
        return command.main()

    return call


def results() -> dict[str, Any]:
    return dict(json.loads(command.RESULTS.read_text(encoding="utf-8")))


def test_what_is_replayed_stands_beside_what_was(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From no results to the page of a release, and further searchers, objectives and defaults after that."""
    assert call("record") == 2 and "make bench-search" in capsys.readouterr().err
    assert call("run") == 2 and "make tables" in capsys.readouterr().err
    assert call("defaults") == 2, "there is nothing to add it to"
    means = np.stack([np.arange(10) / 10, -np.arange(10) / 10], axis=1)
    save(several(np.tile(means[:, None], (1, 4, 1)), DECIDING[0]), tmp_path / "cells.npz")
    assert call("run", "--searchers", "nobody") == 2 and "nobody is no searcher" in capsys.readouterr().err

    assert call("run", "--clocks", "1", "--searchers", "random-1", "grid-1", "grid-3", "optuna-nsga2") == 0
    out = capsys.readouterr().out
    assert "Regret after 12 federations" in out and f"Several objectives: {DECIDING[0]}" in out
    text = (tmp_path / "search-quality.md").read_text()
    assert "| `grid-1` | 0.0 (0.0 to 0.0) |" in text, "the whole grid without noise has no regret"
    assert "| a blind choice | 45.0 | 45.0 |" in text
    assert "`grid-3`: 3 seeds each, and the table has 2 for the search." in text
    assert f"The table `{DECIDING[1]}`: not replayed yet." in text and "- `fedtune-1`: not replayed this time." in text
    assert call("record") == 0 and call("page", "--check") == 0
    assert packed.read(command.KEPT) == results()
    command.DOCS.write_text(text.replace("45.0", "4.5"))
    assert call("page", "--check") == 1 and call("page") == 0 and call("page", "--check") == 0

    before = results()
    assert call("run", "--objectives", "--searchers", "random-1", "optuna-tpe") == 0
    monkeypatch.setattr(defaults, "VARIANTS", {n: VARIANTS[n] for n in (PRESENT, "--sampler random")})
    assert call("defaults") == 0
    found = results()
    assert {name: one["searchers"] for name, one in found["tables"].items()} == {
        name: one["searchers"] for name, one in before["tables"].items()
    }
    assert [*found["objectives"]["tables"][DECIDING[0]]["searchers"]] == ["random-1", "optuna-tpe"]
    assert found["defaults"]["tables"] == [DECIDING[0]]
    assert found["defaults"]["variants"][PRESENT]["deciding"] == {"value": 0.0, "low": 0.0, "high": 0.0, "n": 2}
    text = (tmp_path / "search-quality.md").read_text()
    assert "## Defaults" in text and "| `--sampler random` |" in text and "By `val_global_accuracy`, `val_fm`." in text


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
    assert section(found["auto"]) in text and "The tables of rotated_digits are not recorded yet." in text


def measured(*searchers: str, tables: tuple[str, ...] = ("one",), repetitions: int = 5, **machine: str) -> Any:
    """Results as `bench.measure` has them, with nothing but what decides what stands beside what."""
    on = {"processor": "P", "cores": 2, "date": "D", "revision": "R"} | machine
    entry = {"text": "A toy.", "rounds": 4, "blind": 0.4, "floor": 0.1}
    found = {name: entry | {"searchers": {s: {"n": repetitions} for s in searchers}} for name in tables}
    occasion = {"repetitions": repetitions, "slots": 1, "seconds": 1, "processes": 1, "machine": on}
    return {**occasion, "budgets": [3, 8], "tables": found, "objectives": {"tables": {}}, "unrecorded": ["two"]}


def test_tables_and_searchers_keep_the_date_on_which_they_were_replayed() -> None:
    first = measured("random-1", "random-3", repetitions=8)
    both = with_others(first, measured("random-1", tables=("two",), repetitions=5, date="later"))
    assert [*both["tables"]] == ["one", "two"] and both["unrecorded"] == []
    assert {name: one["occasion"]["repetitions"] for name, one in both["tables"].items()} == {"one": 8, "two": 5}
    assert "`one`: 8 repetitions" in whens(both) and "`two`: 5 repetitions" in whens(both)
    further = with_others(first, measured("oracle-random", repetitions=8, date="later", revision="next"))
    searchers = further["tables"]["one"]["searchers"]
    assert [*searchers] == ["random-1", "random-3", "oracle-random"] and "occasion" not in searchers["random-1"]
    assert searchers["oracle-random"]["occasion"]["machine"]["date"] == "later"
    assert "Of these searchers, `oracle-random`: 8 repetitions" in whens(further)


def test_only_what_can_be_compared_stands_side_by_side() -> None:
    first = measured("random-1", "random-3", repetitions=8)

    def joined(now: Any, before: Any = first) -> list[str]:
        return [*with_others(before, now)["tables"]["one"]["searchers"]]

    every = ["random-1", "random-3", "oracle-random"]
    assert joined(measured("oracle-random", repetitions=8)) == joined(measured("oracle-random")) == every
    assert joined(measured("oracle-random", repetitions=9)) == ["oracle-random"], "some lack repetitions of it"
    assert joined(measured("random-1", "random-3", "grid-1")) == ["random-1", "random-3", "grid-1"]
    # Another number of threads rounds otherwise; another table is another one.
    for change, alone in ((1 + 1e-12, False), (1 + 1e-6, True)):
        moved = copy.deepcopy(first)
        moved["tables"]["one"]["blind"] *= change
        assert (joined(measured("oracle-random", repetitions=8), moved) == ["oracle-random"]) is alone
    # Columns of other budgets would be taken for these.
    kept = with_others(first | {"budgets": [1, 2]}, measured("random-1", tables=("two",)))
    assert [*kept["tables"]] == ["two"]
