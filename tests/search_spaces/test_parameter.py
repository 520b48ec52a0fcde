"""Every kind of parameter takes what it should and refuses the rest with the standard sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import UserError
from search_spaces.parameter import (
    Parameter,
    canonical,
    choice,
    convert_all,
    defaults,
    flag,
    integer,
    other_default,
    parameters,
    real,
    text,
)
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
        *(("use_ema", raw, True) for raw in ("true", "yes", "on", "True", "YES")),
        *(("use_ema", raw, False) for raw in ("false", "no", "off", "False", "NO")),
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
        ("merge_op", "a. b", "merge_op must be one of mul, add, none, got 'a. b' (here)."),
        ("dataset", "", "dataset must be a name or a path, got '' (here)."),
        ("dataset", 3, "dataset must be a name or a path, got 3 (here)."),
        ("dataset", ["a"], "dataset must be a name or a path, got ['a'] (here)."),
    ],
)
def test_refused(declared: dict[str, Parameter], key: str, raw: Any, said: str) -> None:
    with pytest.raises(UserError) as caught:
        declared[key].convert(raw, "here")
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        (
            real(1.0, low=2.0, high=0.0, tune=(0.2, 1.5), doc="R."),
            "low of a must be at most its high, 0, got 2.0 (here).",
        ),
        (real(5.0, low=0.0, high=2.0, doc="R."), "default of a must be a number in [0, 2], got 5.0 (here)."),
        (integer(1.5, low=0, doc="I."), "default of a must be a whole number of at least 0, got 1.5 (here)."),
        (choice("c", ("a", "b"), doc="C."), "default of a must be one of a, b, got 'c' (here)."),
        (choice("a", ("a", "b"), tune=("a", "c"), doc="C."), "tune of a must be one of a, b, got 'c' (here)."),
        (integer(1, high=3, tune=(1, 9), doc="I."), "tune of a must be a whole number of at most 3, got 9 (here)."),
        *(
            (
                real(1.0, low=0.0, tune=tune, doc="R."),
                "tune of a must be a pair (low, high), or False, or True where it has a low and a high, "
                f"got {tune} (here).",
            )
            for tune in (True, (2.0, 1.0), (1.0,), [1.0, 2.0])
        ),
        (real(None, low=0.0, doc="R."), ""),
        (real(math.inf, low=0.0, doc="R."), ""),
        (real(0.5, low=0.0, high=1.0, tune=True, doc="R."), ""),
        (choice("a", {"a": Config, "b": None}, tune=("b",), doc="C."), ""),
    ],
)
def test_a_declaration_that_contradicts_itself(declaration: Any, said: str) -> None:
    found = parameters(make_dataclass("Declaring", [("a", Any, declaration)]))["a"].contradictions("here")
    assert found == ([said] if said else [])


def test_all_problems_of_several_values_at_once(declared: dict[str, Parameter]) -> None:
    with pytest.raises(UserError) as caught:
        convert_all(declared, {"alpha": 9, "lamda": 0.5, "rho": 3, "steps": 0}, "--set")
    assert caught.value.problems == (
        "alpha must be a number in [0, 2], got 9 (--set).",
        "Unknown parameter 'lamda' (--set). Did you mean 'lambda'?",
        "steps must be a whole number in [1, 1000], got 0 (--set).",
    )


def test_keys_have_neither_dashes_nor_a_last_underscore() -> None:
    assert defaults(Config)["lambda"] == 0.5 and canonical("local-steps") == "local_steps"


def test_a_label_has_the_symbol_where_that_says_more() -> None:
    names = [("lambda", "λ"), ("mu", ""), ("mu", "mu")]
    labels = [Parameter(key, "real", 0.0, "", symbol=symbol).label for key, symbol in names]
    assert labels == ["λ (lambda)", "mu", "mu"]


#: What a declaration that says nothing more means.
NOTHING: dict[str, Any] = {
    "symbol": "",
    "source": "",
    "unit": "",
    "low": None,
    "high": None,
    "log": False,
    "step": None,
    "options": (),
    "names": {},
    "children": {},
    "tune": False,
    "condition": False,
    "files": False,
    "work": "",
}


def said(cls: type) -> dict[str, dict[str, Any]]:
    """Every field of every parameter that `cls` declares."""
    return {key: {f.name: getattr(p, f.name) for f in fields(p)} for key, p in parameters(cls).items()}


def test_a_declaration_that_says_nothing_more() -> None:
    @dataclass(frozen=True)
    class Plain:
        a_real: float = real(0.5, doc="R.")
        an_integer: int = integer(3, doc="I.")
        a_choice: str = choice("a", ("a", "b"), doc="C.")
        a_flag: bool = flag(True, doc="F.")
        a_text: str = text("t", doc="T.")

    assert said(Plain) == {
        "a_real": NOTHING | {"name": "a_real", "kind": "real", "default": 0.5, "doc": "R."},
        "an_integer": NOTHING | {"name": "an_integer", "kind": "integer", "default": 3, "doc": "I."},
        "a_choice": NOTHING
        | {"name": "a_choice", "kind": "choice", "default": "a", "doc": "C.", "options": ("a", "b")},
        "a_flag": NOTHING | {"name": "a_flag", "kind": "flag", "default": True, "doc": "F."},
        "a_text": NOTHING | {"name": "a_text", "kind": "text", "default": "t", "doc": "T."},
    }
    assert Plain() == Plain(0.5, 3, "a", True, "t")


def test_a_declaration_that_says_everything() -> None:
    @dataclass(frozen=True)
    class Owned:
        width: int = integer(4, doc="W.")

    number: dict[str, Any] = {"low": 1, "high": 9, "log": True, "step": 2, "unit": "u", "tune": (2, 8)}
    every: dict[str, Any] = {"symbol": "s", "source": "Eq. 1"}
    named = {"a": "the first"}

    @dataclass(frozen=True)
    class Whole:
        a_real: float = real(5.0, doc="R.", condition=True, **number, **every)
        an_integer: int = integer(5, doc="I.", condition=True, work="steps", **number, **every)
        a_choice: str = choice(
            "a", {"a": Owned, "b": None}, names=named, doc="C.", tune=("a",), condition=True, files=True, **every
        )
        a_flag: bool = flag(False, doc="F.", tune=True, **every)
        a_text: str = text("t", doc="T.", condition=True, **every)

    known = {"condition": True, **every}
    owned = {"options": ("a", "b"), "names": named, "children": {"a": tuple(parameters(Owned).values())}}
    assert said(Whole) == {
        "a_real": NOTHING | number | known | {"name": "a_real", "kind": "real", "default": 5.0, "doc": "R."},
        "an_integer": NOTHING
        | number
        | known
        | {"name": "an_integer", "kind": "integer", "default": 5, "doc": "I.", "work": "steps"},
        "a_choice": NOTHING
        | owned
        | known
        | {"name": "a_choice", "kind": "choice", "default": "a", "doc": "C.", "tune": ("a",), "files": True},
        "a_flag": NOTHING | every | {"name": "a_flag", "kind": "flag", "default": False, "doc": "F.", "tune": True},
        "a_text": NOTHING | known | {"name": "a_text", "kind": "text", "default": "t", "doc": "T."},
    }


def test_another_default_keeps_what_it_does_not_change() -> None:
    @dataclass(frozen=True)
    class Whole:
        rate: float = real(0.5, low=0.1, high=9.0, log=True, symbol="η", doc="R.", source="Eq. 1", tune=(0.2, 2.0))

    @dataclass(frozen=True)
    class Part(Whole):
        rate: float = other_default(Whole, "rate", 0.7, source="Eq. 2", tune=False)

    assert Part().rate == 0.7 and Whole().rate == 0.5
    assert said(Part)["rate"] == said(Whole)["rate"] | {"default": 0.7, "source": "Eq. 2", "tune": False}


@pytest.mark.parametrize(
    ("low", "high", "must"),
    [
        (None, None, "a number"),
        (0.5, None, "a number of at least 0.5"),
        (None, 2, "a number of at most 2"),
        (0, 2, "a number in [0, 2]"),
    ],
)
def test_the_bounds_in_words(low: float | None, high: float | None, must: str) -> None:
    assert Parameter("x", "real", 1.0, "", low=low, high=high).must() == must


def test_a_choice_may_be_something_of_a_users_own_file() -> None:
    @dataclass(frozen=True)
    class Own:
        model: str = choice("a", ("a", "b"), doc="M.", files=True)
        plain: str = choice("a", ("a", "b"), doc="P.")

    both = parameters(Own)
    assert both["model"].convert("dir/my net.py:Net") == "dir/my net.py:Net"
    assert both["model"].convert("net.py") == "net.py"
    for wrong in ("c", "net.py:", "net.py:1", "net.txt:Net"):
        with pytest.raises(UserError, match=r"model must be one of a, b, FILE.py:NAME, got"):
            both["model"].convert(wrong)
    with pytest.raises(UserError, match=r"plain must be one of a, b, got 'net.py:Net'"):
        both["plain"].convert("net.py:Net")
