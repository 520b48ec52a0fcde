"""What is changed in a file, and what is left alone."""

from __future__ import annotations

import ast

import pytest

from tests.mutation.operators import mutants


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


def test_a_condition_is_negated_once() -> None:
    source = "def f(a):\n    if a > 0:\n        return a\n    if a == 2:\n        return 'x'\n"
    found = [m.change for m in mutants("x.py", source)]
    assert found.count("a > 0 → (not (a > 0))") == 1
    assert [change for change in found if change.startswith("a == 2")] == ["a == 2 → (a != 2)"]


def test_declarations_docstrings_and_annotations_are_left_alone() -> None:
    head = '"""1 + 1."""\n\n\nclass C:\n    """2."""\n\n'
    declared = '    x: "int | 3" = integer(1, low=0)\n\n    def f(self) -> int:\n        """3."""\n'
    assert mutants("x.py", head + declared) == []


def test_names_do_not_hang_on_the_place() -> None:
    source = "def f(a):\n    return a + a.mean() + a.mean()\n"
    moved = "import os\n\n\n" + source
    before, after = mutants("x.py", source), mutants("x.py", moved)
    assert [m.id for m in before] == [m.id for m in after]
    assert [m.line + 3 for m in before] == [m.line for m in after]
    assert len({m.id for m in before}) == len(before)


def test_bytes_and_letters_are_not_confused() -> None:
    """The papers' symbols take more than one byte."""
    source = "def f(α, β):\n    return 'τ', α + β\n"
    assert [m.apply(source).splitlines()[1] for m in mutants("x.py", source)] == ["    return 'τ', (α - β)"]
