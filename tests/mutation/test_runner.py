"""Mutants get into a process, and what becomes of them is told rightly; on files made for the purpose."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import pytest

from tests import packed
from tests.mutation import record, swap
from tests.mutation.mutant import Mutant
from tests.mutation.operators import mutants
from tests.mutation.processes import in_forks
from tests.mutation.report import Tried, score
from tests.mutation.results import Listed, Survivors
from tests.mutation.selection import Kept
from tests.mutation.targets import DEVICE

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


def test_a_written_mutant_must_be_noticed_by_a_number() -> None:
    mutant = Mutant("made.py", "", 1, "", 1, "written", 0, 0, "", "", True, test="t")
    by_number = {"status": "killed", "how": "AssertionError: client 1: weight differs by 0.3"}
    assert Tried(mutant, SOURCE, by_number).noticed
    assert not Tried(mutant, SOURCE, {"status": "killed", "how": "NameError: x"}).noticed
    assert not Tried(mutant, SOURCE, {"status": "timeout"}).noticed


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
