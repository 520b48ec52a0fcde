"""Mutants get into a process, and what becomes of them is told rightly; on files made for the purpose."""

from __future__ import annotations

import ast
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from tests import packed, tiers
from tests.mutation import record, report, results, swap, trials
from tests.mutation.__main__ import sampled
from tests.mutation.mutant import Mutant
from tests.mutation.operators import mutants
from tests.mutation.processes import in_forks
from tests.mutation.report import Tried, score
from tests.mutation.results import Listed, Results, Survivors
from tests.mutation.selection import Kept
from tests.mutation.targets import DEVICE, LAST
from tests.mutation.trials import Collected, collect, in_child

SOURCE = """
import functools

def outer(n):
    def inner(x):
        return x + n
    return inner

@functools.lru_cache
def cached(x):
    return x * 2

add_one = outer(1)
"""


def functions_of(source: str, path: str) -> tuple[dict[str, object], swap.Living]:
    """What executing a text defines, and the functions that then live."""
    names: dict[str, object] = {}
    exec(compile(source, path, "exec"), names)
    found = [names["outer"], names["add_one"], names["cached"].__wrapped__]  # type: ignore[attr-defined]
    living: swap.Living = {}
    for function in found:
        assert isinstance(function, FunctionType)
        living.setdefault(swap.place(function.__code__), []).append(function)
    return names, living


def the(source: str, change: str) -> Mutant:
    return next(m for m in mutants("made.py", source) if m.change == change)


def test_functions_made_by_a_call_and_behind_decorators_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "ROOT", Path("/nowhere"))
    names, living = functions_of(SOURCE, "/nowhere/made.py")
    assert swap.swap(the(SOURCE, "x + n → (x - n)"), SOURCE, living)
    assert names["add_one"](5) == 4  # type: ignore[operator]
    assert names["outer"](2)(5) == 3  # type: ignore[operator]
    assert swap.swap(the(SOURCE, "x * 2 → (x / 2)"), SOURCE, living)
    assert names["cached"](6) == 3  # type: ignore[operator]


def test_what_is_not_in_a_function_is_not_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "ROOT", Path("/nowhere"))
    _, living = functions_of(SOURCE, "/nowhere/made.py")
    assert not swap.swap(the(SOURCE, "1 → 2"), SOURCE, living)
    assert swap.replacements("made.py", SOURCE, SOURCE + "\ndef more(): pass\n") is None


def test_only_a_function_with_the_same_closure_takes_the_code() -> None:
    found = swap.replacements("made.py", SOURCE, SOURCE.replace("x + n", "x"))
    assert found is not None and [code.co_qualname for code in found] == ["outer"]


def test_what_ran_early_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.gettrace()
    names, living = functions_of(SOURCE, "/nowhere/made.py")
    early = swap.Early()
    early.paths = {"/nowhere/made.py"}
    try:
        with early:
            names["add_one"](1)  # type: ignore[operator]
    finally:
        sys.settrace(before)
    assert {name for _, name, _ in early.places} == {"outer.<locals>.inner"}
    assert early.places < living.keys()


def test_forks_answer_and_are_limited() -> None:
    def do(job: str) -> dict[str, str]:
        if job == "loop":
            while True:
                pass
        if job == "crash":
            os._exit(3)
        return {"status": job}

    jobs = ["killed", "loop", "crash", "survived"]
    start = time.process_time()
    answers = dict(in_forks(jobs, do, lambda job: 0.5, workers=2))
    assert {job: answer["status"] for job, answer in answers.items()} == {
        "killed": "killed",
        "loop": "timeout",
        "crash": "died",
        "survived": "survived",
    }
    assert time.process_time() - start < 60


def test_a_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed, survived = mutants("made.py", SOURCE)[:2]
    path = tmp_path / "results.jsonl"
    first = Results(path)
    first.tell(killed, {"status": "killed", "killer": "t"})
    first.tell(survived, {"status": "survived"})
    assert Results(path).answers.keys() == {killed.id, survived.id}
    monkeypatch.setattr(results, "digest", lambda: "another state of the code")
    assert Results(path).answers == {}
    assert Results(path, keep=True).answers.keys() == {killed.id}


def test_the_score_leaves_out_equivalent_survivors_only() -> None:
    several = mutants("made.py", SOURCE)[:3]
    status = ["killed", "survived", "timeout"]
    tried = [Tried(m, SOURCE, {"status": s}) for m, s in zip(several, status, strict=True)]
    m = several[1]
    assert score(tried, Survivors()) == pytest.approx(100 * 2 / 3)
    listed = Listed(m.file, m.function, m.text, m.change, "why")
    assert score(tried, Survivors([listed])) == pytest.approx(100 * 2 / 3)
    equal = Listed(m.file, m.function, m.text, m.change, "why", equivalent=True)
    assert score(tried, Survivors([equal])) == 100


def test_stale_entries_are_told() -> None:
    killed, survived = mutants("made.py", SOURCE)[:2]
    tried = [Tried(killed, SOURCE, {"status": "killed"}), Tried(survived, SOURCE, {"status": "survived"})]
    entries = [Listed(m.file, m.function, m.text, m.change, "why") for m in (killed, survived)]
    gone = Listed("made.py", "outer", "no such line", "1 → 2", "why")
    found = report.stale(tried, Survivors([*entries, gone]), [killed, survived])
    assert len(found) == 2
    assert "noticed now" in found[0] and killed.change in found[0]
    assert "no such mutant" in found[1]


def test_a_written_mutant_must_be_noticed_by_a_number() -> None:
    mutant = Mutant("made.py", "", 1, "", 1, "written", 0, 0, "", "", True, test="t")
    by_number = {"status": "killed", "how": "AssertionError: client 1: weight differs by 0.3"}
    assert Tried(mutant, SOURCE, by_number).noticed
    assert not Tried(mutant, SOURCE, {"status": "killed", "how": "NameError: x"}).noticed
    assert not Tried(mutant, SOURCE, {"status": "timeout"}).noticed


def test_the_sample_is_drawn_by_name() -> None:
    every = mutants("made.py", SOURCE)
    drawn = sampled(every, 3, seed=1)
    assert len(drawn) == 3 and drawn == sampled(every[::-1], 3, seed=1)[::-1]
    left = [m for m in every if m not in drawn]
    assert sampled([*drawn, *left[:1]], 3, seed=1) == drawn
    assert any(sampled(every, 3, seed) != drawn for seed in range(2, 9))


def test_tests_are_chosen_by_statement_then_function_then_file(tmp_path: Path) -> None:
    path = tmp_path / "tests.json.xz"
    statements = {"made.py | cached | return x * 2": 0, "made.py | outer | ": 1, "made.py |  | ": 2}
    tests = [["quick", 1.0], ["slow", 50.0], ["quickest", 0.1]]
    packed.write(path, {"tests": tests, "groups": [[0, 1], [1], [2]], "statements": statements})
    kept = Kept.read(path)
    by_change = {m.change: m for m in mutants("made.py", SOURCE)}
    assert kept.asked(by_change["x * 2 → (x / 2)"], SOURCE, 10) == [("quick", 1.0)]
    assert kept.asked(by_change["x * 2 → (x / 2)"], SOURCE, 100) == [("quick", 1.0), ("slow", 50.0)]
    # The nested function is not known: neither by its statement nor by its name.
    assert kept.asked(by_change["x + n → (x - n)"], SOURCE, 10) == [("quickest", 0.1)]
    assert kept.asked(by_change["1 → 2"], SOURCE, 10) == [("quickest", 0.1)]


def test_declarations_of_a_file_without_functions_are_asked_of_the_contracts() -> None:
    tests = [("a.py::t", 0.1), (f"{LAST[0]}/b.py::t", 2.0), (f"{LAST[1]}/c.py::t", 1.0)]
    by_change = {m.change: m for m in mutants("made.py", SOURCE)}
    assert Kept(tests, [], {}).asked(by_change["1 → 2"], SOURCE, 10) == [tests[2], tests[1]]
    assert Kept(tests, [], {}).asked(by_change["x + n → (x - n)"], SOURCE, 10) == []


def test_slow_tests_and_those_that_are_gone_are_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    tests = [("a.py::quick", 1.0), ("a.py::slow", 2.0), ("b.py::gone", 1.0), ("a.py::of_the_function", 3.0)]
    tests += [("a.py::replay", 4.0)]
    statements = {"made.py | cached | return x * 2": 0, "made.py | cached | ": 1}
    kept = Kept(tests, [[0, 1, 2], [3]], statements)
    mutant = next(m for m in mutants("made.py", SOURCE) if m.change == "x * 2 → (x / 2)")
    by_hand = dataclasses.replace(mutant, kind="written", what="a wrong step", test="a.py::replay")
    slowly = dataclasses.replace(by_hand, test="a.py::slow")

    def chosen(found: Collected, quick: bool = False) -> list[list[str]]:
        def there(files: set[str]) -> Collected:
            assert files == {"a.py", "b.py"}
            return found

        asked, broken = kept.choose([(m, SOURCE) for m in (mutant, by_hand, slowly)], there, quick=quick)
        assert broken == found.broken
        return [[test for test, _ in one] for one in asked]

    every = Collected(asked=[test for test, _ in tests] + ["a.py::new"])
    assert chosen(every) == [["a.py::quick", "a.py::slow", "b.py::gone"], ["a.py::replay"], ["a.py::slow"]]
    assert capsys.readouterr().out == ""
    quick = Collected(["a.py::quick", "a.py::of_the_function", "a.py::replay"], ["a.py::slow"], ["c.py"])
    assert chosen(quick, quick=True) == [["a.py::quick"], ["a.py::replay", "a.py::quick"], ["a.py::quick"]]
    out = capsys.readouterr().out
    assert "1 of 5 tests are not there any more and are not asked: b.py::gone" in out
    assert "3 tests may be asked; 1 take too long." in out
    # Where no test of the statement is left, those of its function are asked.
    left = Collected(["a.py::of_the_function"])
    assert chosen(left) == [["a.py::of_the_function"], [], []]


def test_what_make_test_leaves_out_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `tests/tiers.py`, in a file of the repository whose tests are said to have taken this long."""
    file, taken = "tests/test_exact.py", {}
    every = in_child(lambda: collect([file, "tests/test_gone.py"], quick=False).asked)
    for place, seconds in enumerate((tiers.SLOW + 0.1, tiers.NIGHT + 0.1, tiers.SLOW - 0.1)):
        taken[every[place]] = seconds
    monkeypatch.setattr(tiers, "recorded", lambda: taken)
    found = in_child(lambda: dataclasses.asdict(collect([file], quick=True)))
    assert found == {"asked": every[2:], "slow": every[:2], "broken": []}


def test_a_file_of_tests_that_cannot_be_collected_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    monkeypatch.setattr(trials, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert in_child(lambda: collect(["test_broken.py"], quick=False).broken) == ["test_broken.py"]


def test_what_make_test_notices_by_itself_is_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = mutants("made.py", SOURCE)[:2]
    by_hand = dataclasses.replace(first, kind="written", what="a wrong step", test="t")
    otherwise = {"status": "killed", "killer": "another", "how": "TypeError"}
    answers = [(first, {"status": "killed"}), (second, {"status": "survived"}), (by_hand, otherwise)]
    tried = [Tried(mutant, SOURCE, answer, quick=True) for mutant, answer in answers]
    assert report.report(tried, Survivors(), [first, second], sampled=False, quick=True) == 0
    out = capsys.readouterr().out
    assert "1 of 1 noticed by the tests of `make test`" in out and "50.0 % of 2 mutants noticed by the tests of" in out


def test_a_device_left_out_is_asked_of_the_tests_on_another_device_first(tmp_path: Path) -> None:
    source = "def f(fed):\n    return torch.zeros(2, dtype=torch.bool, device=fed.device)\n"
    path = tmp_path / "tests.json.xz"
    tests = [["a.py::t", 1.0], [f"{DEVICE}.py::t", 2.0], ["b.py::t", 3.0]]
    packed.write(path, {"tests": tests, "groups": [[0, 1, 2]], "statements": {"made.py | f | ": 0}})
    asked = {
        m.change.partition(" → ")[2]: [test for test, _ in Kept.read(path).asked(m, source, 10)]
        for m in mutants("made.py", source)
    }
    assert asked["torch.zeros(2, dtype=torch.bool)"] == [f"{DEVICE}.py::t", "a.py::t", "b.py::t"]
    assert asked["torch.zeros(2, device=fed.device)"] == ["a.py::t", f"{DEVICE}.py::t", "b.py::t"]


def test_what_ran_is_traced_by_line() -> None:
    recorder = record.Recorder()
    recorder.paths = {"/nowhere/made.py": "made.py"}
    names: dict[str, Callable[[int], int]] = {}
    exec(compile("def f(x):\n    if x:\n        return 1\n    return 2\n", "/nowhere/made.py", "exec"), names)
    before = sys.gettrace()
    sys.settrace(recorder.trace)
    try:
        names["f"](0)
    finally:
        sys.settrace(before)
    assert {line for file, line in recorder.now if file == "made.py"} == {1, 2, 4}


def test_statements_know_their_lines_and_functions() -> None:
    body = "x = [\n            1,\n        ]\n        if (\n            x\n        ):\n            pass\n"
    source = f"class C:\n    def f(self):\n        {body}"
    found = set(record.statements(ast.parse(source)))
    assert (3, 3, 5, "C.f") in found
    assert (6, 6, 8, "C.f") in found, "of an `if` the condition only"
    assert (2, 2, 2, "C") in found
    assert record.enclosing(source, 4) == (3, "C.f")


def test_the_quickest_tests_are_chosen_and_every_function_first() -> None:
    seconds = {"t.py::a[1]": 0.1, "t.py::a[2]": 0.2, "t.py::b": 5.0}
    assert record.chosen(set(seconds), seconds, record.key("made.py", "f", "x")) == [
        "t.py::a[1]",
        "t.py::b",
        "t.py::a[2]",
    ]


def test_a_files_own_tests_are_chosen_first_and_those_that_compare_the_code_with_itself_last() -> None:
    seconds = {
        "tests/contracts/t.py::a": 0.1,
        "m/t.py::b": 4.0,
        "m/test_replay_made.py::c": 6.0,
        "m/test_made.py::d": 5.0,
    }
    inside, outside = (
        record.chosen(set(seconds), seconds, record.key("trainables/methods/made.py", function, ""))
        for function in ("f", "")
    )
    assert inside == ["m/test_made.py::d", "m/test_replay_made.py::c", "m/t.py::b", "tests/contracts/t.py::a"]
    assert outside == [inside[-1], *inside[:-1]]


def test_tests_of_a_file_that_imports_the_module_come_before_others() -> None:
    near, far = "tests/trainables/simulation/test_executors.py", "tests/trainables/models/test_models.py"
    assert "trainables.simulation.executors" in record.imported(near)
    assert "trainables.simulation.executors" not in record.imported(far)
    seconds = {f"{far}::quick": 0.1, f"{near}::slow": 5.0, "gone.py::quicker": 0.01}
    for name, expected in (("executors", [f"{near}::slow"]), ("attack", [])):
        found = record.chosen(set(seconds), seconds, record.key(f"trainables/simulation/{name}.py", "f", ""))
        assert found[: len(expected)] == expected
        assert found[len(expected) : len(expected) + 2] == ["gone.py::quicker", f"{far}::quick"]


def test_one_test_on_another_device_is_kept_however_many_are_quicker() -> None:
    seconds = {f"t.py::test_{i}": 0.1 for i in range(record.MOST + 5)} | {
        f"{DEVICE}.py::a": 3.0,
        f"{DEVICE}.py::b": 2.0,
    }
    found = record.chosen(set(seconds), seconds, record.key("made.py", "f", ""))
    assert len(found) == record.MOST + 1 and found[-1] == f"{DEVICE}.py::b"


def test_more_tests_are_kept_of_a_file_than_of_a_statement() -> None:
    seconds = {f"t.py::test_{i}": 0.1 for i in range(record.OF_A_FILE + 5)}
    assert len(record.chosen(set(seconds), seconds, record.key("made.py", "", ""))) == record.OF_A_FILE


PASSES = """
import pytest
from declared import VALUE

def test_passes():
    assert VALUE() == 1

def test_fails():
    assert VALUE() == 2

@pytest.mark.skip
def test_is_skipped():
    pass
"""


def test_a_file_is_asked_of_tests_that_run_a_declaration_or_import_it_and_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "declared.py").write_text("VALUE = lambda: 1\n\n\ndef used():\n    return 2\n")
    (tmp_path / "test_declared.py").write_text(PASSES)
    (tmp_path / "test_runs.py").write_text(
        "import importlib\n\ndef test_runs():\n    importlib.import_module('declared').VALUE()\n"
    )
    (tmp_path / "test_imports.py").write_text("import declared\n\ndef test_imports():\n    pass\n")
    (tmp_path / "test_else.py").write_text("def test_else():\n    pass\n")
    for name, value in (("ROOT", tmp_path), ("files", lambda: ["declared.py"])):
        monkeypatch.setattr(record, name, value)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    record.imported.cache_clear()
    recorder = record.Recorder()
    before = sys.gettrace()
    pytest.main(["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", "."], [recorder])
    sys.settrace(before)
    known = record.gathered(recorder)
    record.imported.cache_clear()
    assert recorder.failed == {"test_declared.py::test_fails", "test_declared.py::test_is_skipped"}
    asked = {"test_declared.py::test_passes", "test_runs.py::test_runs", "test_imports.py::test_imports"}
    assert known.places == {record.key("declared.py", "", ""): asked}


def test_a_part_is_recorded_again(tmp_path: Path) -> None:
    path, f, g = tmp_path / "tests.json.xz", record.key("made.py", "f", ""), record.key("made.py", "g", "")
    seconds = {"old.py::a": 1.0, "new.py::gone": 1.0}
    before = record.Known({f: {"old.py::a", "new.py::gone"}, g: {"new.py::gone"}}, seconds)
    now = record.Known({f: {"new.py::b"}}, {"new.py::b": 0.5})
    record.write(record.joined(before, now, {"new.py"}), path)
    kept = record.read(path)
    assert kept.places == {f: {"old.py::a", "new.py::b"}}
    assert kept.seconds == {"old.py::a": 1.0, "new.py::b": 0.5}


def test_tests_on_ray_are_not_recorded() -> None:
    """They could not be run in a fork."""
    items: Any = [SimpleNamespace(fixturenames=names) for names in (["toy"], ["conduct", "ray_cluster"], [])]
    record.Recorder().pytest_collection_modifyitems(items)
    assert [item.fixturenames for item in items] == [["toy"], []]
