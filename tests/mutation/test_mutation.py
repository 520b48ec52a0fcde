"""What is changed in a file, which tests are asked about it, and how what becomes of it is told."""

from __future__ import annotations

import ast
import os
import time
from pathlib import Path

import pytest

from tests.mutation.operators import Mutant, mutants
from tests.mutation.report import Tried
from tests.mutation.selection import ROOT, files, nearest_tests
from tests.mutation.trials import IMPORTS, SLOWER, Trial, broken, in_forks


def changes(body: str) -> set[str]:
    """What may stand in place of the one line of a function, without outer brackets."""
    source = f"def f(a, b, c):\n    {body}\n"
    return {ast.unparse(ast.parse(m.apply(source)).body[0]).partition("\n")[2].strip() for m in mutants("x.py", source)}


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("return a + b", {"return a - b"}),
        ("return a @ b", set()),
        ("return a // b", {"return a * b"}),
        ("return a < b", {"return a <= b"}),
        ("return a < b <= c", {"return a <= b <= c", "return a < b < c"}),
        ("return a is not b", {"return a is b"}),
        ("return a or b or c", {"return a and b and c"}),
        ("return not a", {"return a"}),
        ("return -a", {"return a"}),
        ("return 3", {"return 4", "return 2"}),
        ("return 0.5", {"return 1.0"}),
        ("return 0.0", {"return 1.0"}),
        ("return True", {"return False"}),
        ("return 'text'", set()),
        ("return a.detach()", {"return a"}),
        ("return torch.exp(a)", set()),
        ("return a.mean()", {"return a.sum()"}),
        ("return min(a, b)", {"return max(a, b)"}),
        ("return g(a, b)", {"return g(b, a)"}),
        ("return g(a, k=b)", {"return g(a)"}),
        ("return zip(a, b, strict=True)", set()),
        ("a.train()", {"pass", "a.eval()"}),
        ("a.x = b", {"pass"}),
        ("a = b", set()),
        ("a += b", {"pass"}),
        ("return a if b else c", {"return a if not b else c"}),
        ("return [x for x in a if b]", {"return [x for x in a if not b]"}),
        ("raise ValueError(a + b)", set()),
        ("assert a < b", set()),
        ("return f'{a + b}'", set()),
        ("warnings.warn(a + b)", set()),
        ("return torch.maximum(a, b)", set()),
        ("return F.mse_loss(a, b)", set()),
        ("return F.mse_loss(a, b.detach())", {"return F.mse_loss(a, b)"}),
        ("return squared_distance(a, b)", set()),
        ("return distances(a, b)", {"return distances(b, a)"}),
        ("return Limit({'q': 0}, equals='fedavg')", set()),
    ],
)
def test_each_change(line: str, changed: set[str]) -> None:
    assert changes(line) == changed


def test_every_file_has_tests_that_exist() -> None:
    for file in files():
        found = nearest_tests(file)
        assert found, file
        assert all((ROOT / test.partition("::")[0]).is_file() for test in found)


def test_the_nearest_tests_are_asked_first() -> None:
    dfrd = nearest_tests("trainables/methods/dfrd.py")
    assert dfrd[:2] == [
        "tests/trainables/methods/replays/test_replay_dfrd.py",
        "tests/trainables/methods/test_dfrd.py",
    ]
    building_block = nearest_tests("trainables/building_blocks/server_distillation.py")
    assert building_block[0] == "tests/trainables/building_blocks/test_server_distillation.py"
    assert "tests/trainables/methods/replays/test_replay_dfrd.py::test_dfrd" in building_block
    assert nearest_tests("trainables/methods/fedprox.py")[0] == (
        "tests/trainables/methods/replays/test_replay_averages.py::test_fedprox"
    )


def test_forks_answer_and_are_limited() -> None:
    def do(trial: Trial) -> dict[str, str]:
        if trial.source == "loop":
            while True:
                pass
        if trial.source == "crash":
            os._exit(3)
        return {"status": trial.source}

    less = (1.0 - IMPORTS) / SLOWER  # so that the limit is one second
    trials = [Trial(None, what, [([], less)]) for what in ("killed", "loop", "crash", "survived")]
    assert [round(trial.limit, 9) for trial in trials] == [1.0] * 4
    start = time.process_time()
    answers = {trial.source: answer["status"] for trial, answer in in_forks(trials, do, workers=2)}
    assert answers == {"killed": "killed", "loop": "timeout", "crash": "died", "survived": "survived"}
    assert time.process_time() - start < 60


def test_what_fails_or_cannot_be_collected_without_a_mutant_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_good(): pass\ndef test_bad(): assert False\n")
    (tmp_path / "test_other.py").write_text("import no_such_module\n")
    fine, wrong, other = (
        str(tmp_path / name) for name in ("test_it.py::test_good", "test_it.py::test_bad", "test_other.py")
    )
    assert broken([fine, str(tmp_path / "test_it.py"), fine]) == []
    assert sorted(broken([fine, wrong, other])) == [wrong, other]


def test_a_written_mutant_must_be_noticed_by_a_number() -> None:
    mutant = Mutant("made.py", "", 1, "", "written", 0, 0, "", "", test="t")
    by_number = {"status": "killed", "how": "AssertionError: client 1: weight differs by 0.3"}
    assert Tried(mutant, "", by_number).noticed
    assert not Tried(mutant, "", {"status": "killed", "how": "NameError: x"}).noticed
    assert not Tried(mutant, "", {"status": "timeout"}).noticed
