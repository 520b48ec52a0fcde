"""Every kind of parameter takes what it should and refuses the rest with the standard sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import UserError
from search_spaces.parameter import Parameter, build, canonical, convert_all, defaults
from tests.search_spaces.conftest import Config


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("alpha", 1, 1.0),
        ("alpha", "0.5", 0.5),
        ("rate", "1e-3", 1e-3),
        ("alpha", 0, 0.0),
        ("alpha", 2, 2.0),
        ("steps", "7", 7),
        ("steps", 7.0, 7),
        ("use_ema", "off", False),
        ("use_ema", True, True),
        ("merge_op", None, "none"),
        ("merge_op", "add", "add"),
        ("dataset", "x.npz", "x.npz"),
        ("dataset", Path("a") / "b", "a/b"),
    ],
)
def test_taken(declared: dict[str, Parameter], key: str, raw: Any, value: Any) -> None:
    got = declared[key].convert(raw)
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize(
    ("key", "raw", "said"),
    [
        ("alpha", 2.1, "alpha must be a number in [0, 2], got 2.1 (here)."),
        ("alpha", "much", "alpha must be a number in [0, 2], got 'much' (here)."),
        ("alpha", math.nan, "alpha must be a number in [0, 2], got nan (here)."),
        ("alpha", math.inf, "alpha must be a number in [0, 2], got inf (here)."),
        ("alpha", True, "alpha must be a number in [0, 2], got True (here)."),
        ("alpha", [1], "alpha must be a number in [0, 2], got [1] (here)."),
        ("lambda", -0.1, "lambda must be a number in [0, 0.99], got -0.1 (here)."),
        ("steps", 1.5, "steps must be a whole number in [1, 1000], got 1.5 (here)."),
        ("open", "x", "open must be a number, got 'x' (here)."),
        ("use_ema", 1, "use_ema must be true or false, got 1 (here)."),
        ("merge_op", "addd", "merge_op must be one of mul, add, none, got 'addd' (here). Did you mean 'add'?"),
        ("merge_op", "a. b", "merge_op must be one of mul, add, none, got 'a. b' (here). Known: add, mul, none."),
        ("dataset", "", "dataset must be a name or a path, got '' (here)."),
        ("dataset", 3, "dataset must be a name or a path, got 3 (here)."),
        ("dataset", ["a"], "dataset must be a name or a path, got ['a'] (here)."),
    ],
)
def test_refused(declared: dict[str, Parameter], key: str, raw: Any, said: str) -> None:
    with pytest.raises(UserError) as caught:
        declared[key].convert(raw, "here")
    assert str(caught.value) == said


def test_all_problems_of_several_values_at_once(declared: dict[str, Parameter]) -> None:
    with pytest.raises(UserError) as caught:
        convert_all(declared, {"alpha": 9, "lamda": 0.5, "rho": 3, "steps": 0}, "--set")
    assert caught.value.problems == (
        "alpha must be a number in [0, 2], got 9 (--set).",
        "Unknown parameter 'lamda' (--set). Did you mean 'lambda'?",
        "steps must be a whole number in [1, 1000], got 0 (--set).",
    )


def test_build_takes_its_own_and_leaves_the_rest() -> None:
    config = build(Config, {"lambda": 0.7, "alpha": 1.0, "somebody_elses": 3})
    assert config == Config(lambda_=0.7, alpha=1.0)
    assert defaults(Config)["lambda"] == 0.5 and canonical("local-steps") == "local_steps"


def test_a_label_has_the_symbol_where_that_says_more() -> None:
    names = [("lambda", "λ"), ("mu", ""), ("mu", "mu")]
    labels = [Parameter(key, "real", 0.0, "", symbol=symbol).label for key, symbol in names]
    assert labels == ["λ (lambda)", "mu", "mu"]
