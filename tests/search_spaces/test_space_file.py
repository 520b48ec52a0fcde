"""A space file is right, or every one of its problems is said with its line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from search_spaces import presets
from search_spaces.errors import UserError
from search_spaces.parameter import Parameter, integer, parameters, real
from search_spaces.space import Space
from search_spaces.space_file import EXPERIMENT

Declared = dict[str, Parameter]


def load(tmp_path: Path, text: str, declared: Declared, method: str = "m") -> Space:
    path = tmp_path / "space.yaml"
    path.write_text(text, encoding="utf-8")
    return presets.load(method, str(path), declared)


def problems(tmp_path: Path, text: str, declared: Declared) -> list[str]:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text, declared)
    return [problem.replace(str(tmp_path) + "/", "") for problem in caught.value.problems]


def test_a_whole_file(tmp_path: Path, declared: Declared) -> None:
    space = load(
        tmp_path,
        """\
method: m
title: EMA generator, α × λ
source: Fig. 5
search:
  alpha: {grid: [0.25, 1.5, 1]}
  lambda_: {low: 0.1, high: 0.9, step: 0.4}
  rate: {low: 1e-4}
  steps:
  rho: {low: 5, high: 40, log: true}
  merge_op: {options: [add, null]}
  use_ema: {}
  kind: {options: {a: {width: {low: 2, high: 4}}, c: }}
fix: {decay: 0.3, dataset: svhn}
profiles:
  small: {seeds: 2, even: 4}
  paper: {trials: 60, sampler: grid, even: 6, select_on_test: true}
figures: [heatmap]
metric: [val_global_accuracy, val_local_accuracy]
""",
        declared,
    )
    assert (space.name, space.method, space.title, space.source) == ("space", "m", "EMA generator, α × λ", "Fig. 5")
    assert space.search["alpha"].grid == (0.25, 1.5, 1.0)
    d = space.distributions()
    assert d["alpha"] == FloatDistribution(0.25, 1.5)
    assert d["lambda"] == FloatDistribution(0.1, 0.9, step=0.4)
    assert d["rate"] == FloatDistribution(1e-4, 0.3, log=True), "the end that is not given is the declaration's"
    assert d["steps"] == IntDistribution(5, 100, log=True)
    assert d["rho"] == IntDistribution(5, 40, log=True)
    assert space.search["merge_op"].options == ("add", "none")
    assert d["a.width"] == IntDistribution(2, 4) and "a.lr" not in d
    assert space.fix == {"decay": 0.3, "dataset": "svhn"}
    assert space.profiles == {"small": {"seeds": 2, "even": 4}, "paper": {"trials": 60, "sampler": "grid", "even": 6}}
    assert space.select_on_test and space.figures == ("heatmap",)
    assert space.metric == ("val_global_accuracy", "val_local_accuracy")


def test_every_problem_at_once_with_its_line(tmp_path: Path, declared: Declared) -> None:
    found = problems(
        tmp_path,
        """\
method: other
serach: {}
search:
  alhpa: {low: 0}
  alpha: {low: 3, high: 4}
  rate: {low: 0.2, high: 0.1}
  rho: {grid: [1, 2.5, 500]}
  merge_op: {options: [mul, sub, mul]}
  use_ema: {low: 0}
  dataset: {options: [digits]}
  steps: [1, 2]
  even: {hihg: 4}
fix:
  lambda: -1
  alpha: 1
  rate: 1
profiles:
  big: {}
  small: {seeds: 0, decay: much, select_on_test: true}
figures: 3
metric: accuracy
""",
        declared,
    )
    assert found == [
        "Unknown key 'serach' (space.yaml, line 2). Did you mean 'search'?",
        "method must be 'm', the method this search is for, got 'other' (space.yaml, line 1).",
        "Unknown parameter 'alhpa' (space.yaml, line 4). Did you mean 'alpha'?",
        "low of alpha must be a number in [0, 2], got 3 (space.yaml, line 5).",
        "high of alpha must be a number in [0, 2], got 4 (space.yaml, line 5).",
        "low of rate must be at most its high, 0.1, got 0.2 (space.yaml, line 6).",
        "grid of rho must be a whole number in [0, 100], got 2.5 (space.yaml, line 7).",
        "grid of rho must be a whole number in [0, 100], got 500 (space.yaml, line 7).",
        "merge_op must be one of mul, add, none, got 'sub' (space.yaml, line 8).",
        "'mul' is listed twice for merge_op (space.yaml, line 8). Remove one.",
        "Unknown key 'low' of use_ema (space.yaml, line 9). It is true or false; write {}.",
        "dataset is a text and cannot be searched (space.yaml, line 10). Put it under `fix`.",
        "steps must be written as {low: ..., high: ...}, {values: [...]} or {grid: [...]}, got [1, 2] (space.yaml, "
        "line 11).",
        "Unknown key 'hihg' of even (space.yaml, line 12). It takes low, high, log, step, grid, values, cost. Did you "
        "mean 'high'?",
        "lambda must be a number in [0, 0.99], got -1 (space.yaml, line 14).",
        "Unknown profile 'big' (space.yaml, line 18). Known: paper, small.",
        "select_on_test must be true or false, in the profile `paper`, got True (space.yaml, line 19).",
        "seeds must be a whole number of at least 1, got 0 (space.yaml, line 19).",
        "decay must be a number in [0, 1], got 'much' (space.yaml, line 19).",
        "Unknown metric 'accuracy' (space.yaml, line 21). " + found[-2].split(". ", 1)[1],
        "figures must be a list of names, got 3 (space.yaml, line 20).",
    ]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("alpha: {grid: []}", "grid of alpha must be a list of at least one number, got []"),
        ("alpha: {grid: 0.5}", "grid of alpha must be a list of at least one number, got 0.5"),
        ("alpha: {grid: [0.5, 0.5]}", "grid of alpha must be distinct numbers, got 0.5 twice"),
        ("alpha: {grid: [0.5, high]}", "grid of alpha must be a number in [0, 2], got 'high'"),
        ("alpha: {grid: [0.5, 1], low: 0.6}", "low of alpha must be at most 0.5, which its grid holds, got 0.6"),
        ("alpha: {grid: [0.5, 1], high: 0.6}", "high of alpha must be at least 1, which its grid holds, got 0.6"),
        ("alpha: {low: wide}", "low of alpha must be a number in [0, 2], got 'wide'"),
        ("alpha: {low: .nan}", "low of alpha must be a number in [0, 2], got nan"),
        ("alpha: {low: true}", "low of alpha must be a number in [0, 2], got True"),
        ("alpha: {low: 0, high: 1, log: true}", "low of alpha must be above 0 on a log scale, got 0"),
        ("alpha: {low: 0, high: 1, log: maybe}", "log of alpha must be true or false, got 'maybe'"),
        ("alpha: {low: 0, high: 1, step: 0.3}", "step of alpha must be a whole part of the way from 0 to 1, got 0.3"),
        (
            "alpha: {grid: [0, 0.3, 1], step: 0.25}",
            "step of alpha must be a whole part of the way from 0 to 0.3, got 0.25",
        ),
        (
            "alpha: {low: 0, high: 1, step: 0.10000000001}",
            "step of alpha must be a whole part of the way from 0 to 1, got 0.10000000001",
        ),
        ("alpha: {low: 0, high: 1, step: 0}", "step of alpha must be above 0, got 0"),
        ("alpha: {low: 0.5, high: 1, step: 0.5, log: true}", "step of alpha must be left out on a log scale, got 0.5"),
        ("rho: {low: 0, high: 10, step: 2.5}", "step of rho must be a whole number, got 2.5"),
        ("alpha: 0.5", "alpha must be written as {low: ..., high: ...}, {values: [...]} or {grid: [...]}, got 0.5"),
        ("merge_op: mul", "merge_op must be written as {options: [...]}, got 'mul'"),
        ("merge_op: {options: []}", "options of merge_op must be a list of at least one option, got []"),
        ("open: {low: 3}", "open must be given low and high here, as it is declared without them, got {'low': 3}"),
        ("kind: {options: {a: {depth: {}}}}", "Unknown parameter 'depth'"),
        ("kind: {options: {c: {width: {}}}}", "Unknown parameter 'width'"),
        ("kind: {options: {a: {width: {low: 2, high: 99}}}}", "high of width must be a whole number in [1, 8], got 99"),
    ],
)
def test_one_wrong_entry(tmp_path: Path, declared: Declared, entry: str, said: str) -> None:
    found = problems(tmp_path, f"method: m\nsearch:\n  {entry}\n", declared)
    assert len(found) == 1 and found[0].startswith(said) and "(space.yaml, line 3)" in found[0], found


def test_a_low_above_the_high_is_named_with_the_line_of_the_low_where_there_is_one(
    tmp_path: Path, declared: Declared
) -> None:
    both = "method: m\nsearch:\n  alpha:\n    high: 0.5\n    low: 1.5\n"
    assert problems(tmp_path, both, declared) == [
        "low of alpha must be at most its high, 0.5, got 1.5 (space.yaml, line 5)."
    ]


def test_searched_fixed_and_set_by_a_profile_exclude_each_other(tmp_path: Path, declared: Declared) -> None:
    found = problems(
        tmp_path,
        "method: m\nsearch: {alpha: {}}\nfix: {alpha: 1, rho: 3}\nprofiles:\n  paper: {rho: 4, alpha: 1}\n",
        declared,
    )
    assert found == [
        "alpha is both searched and fixed (space.yaml, line 3). Remove one.",
        "rho is fixed and cannot be set by a profile too (space.yaml, line 5). Remove one.",
        "alpha is searched and cannot be set by a profile too (space.yaml, line 5). Remove one.",
    ]


def test_the_keyword_and_its_field_name_are_one_parameter(tmp_path: Path, declared: Declared) -> None:
    assert problems(tmp_path, "method: m\nsearch: {lambda: {}, lambda_: {}}\n", declared) == [
        "lambda is given twice under search (space.yaml, line 2). Remove one."
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "space.yaml is empty."),
        ("# nothing\n", "space.yaml is empty."),
        ("null\n", "space.yaml is empty."),
        ("- a\n- b\n", "space.yaml must be a mapping of `key: value` lines, got a list (space.yaml, line 1)."),
        (
            "just words\n",
            "space.yaml must be a mapping of `key: value` lines, got the text 'just words' (space.yaml, line 1).",
        ),
        (
            "method: m\nsearch:\n\talpha: {}\n",
            "space.yaml, line 3: there is a tab where YAML wants spaces. Indent with spaces.",
        ),
        (
            "method: m\nsearch: {alpha: {low: 0\nfix: {rho: 1}\n",
            "space.yaml, line 3: not valid YAML, expected ',' or '}', but got ':'",
        ),
        (
            "method: m\nsearch: [alpha\n",
            "space.yaml, line 3: not valid YAML, expected ',' or ']', but got '<stream end>' (in the part that starts "
            "at line 2).",
        ),
        (
            "method: 'm\n",
            "space.yaml, line 2: not valid YAML, found unexpected end of stream (in the part that starts at line 1).",
        ),
        (
            "method: m\nsearch: {alpha: {}}\nsearch: {rho: {}}\n",
            "space.yaml, line 3: the key 'search' is there twice (first in line 2). Remove one.",
        ),
        (
            "method: m\nsearch: &a {alpha: {}}\nfix: *a\n",
            "space.yaml, line 3: YAML aliases (`*a`) are not supported. Write the value out.",
        ),
        (
            "method: !!python/name:os.system\nsearch: {alpha: {}}\n",
            "space.yaml, line 1: '' with the tag 'tag:yaml.org,2002:python/name:os.system' is not",
        ),
        ("? [1, 2]\n: 3\n", "space.yaml, line 1: a key must be plain text, not a list or a mapping."),
        ("method: m\n---\nmethod: m\n", "space.yaml, line 2: not valid YAML, but found another document"),
        ("method: m\n", "space.yaml searches nothing. List at least one parameter under `search`, or"),
        ("method: m\nsearch:\n", "space.yaml searches nothing. List at least one parameter under `search`, or"),
        (
            "method: m\nsearch: [alpha]\n",
            "search must be a mapping of `name: value`, got ['alpha'] (space.yaml, line 2).",
        ),
        ("search: {alpha: {}}\n", "space.yaml does not say its method. Add the line `method: m`."),
        ("method: m\ntitle: [a]\nsearch: {alpha: {}}\n", "title must be text, got ['a'] (space.yaml, line 2)."),
        ("[" * 3000, "space.yaml"),
        ("method: \x00m\n", "space.yaml is not YAML: unacceptable character"),
    ],
)
def test_malformed_files(tmp_path: Path, declared: Declared, text: str, said: str) -> None:
    found = problems(tmp_path, text, declared)
    assert len(found) == 1 and found[0].startswith(said), found


def test_files_that_cannot_be_read(tmp_path: Path, declared: Declared) -> None:
    (tmp_path / "latin.yaml").write_bytes("title: café".encode("latin-1"))
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, said in (
        ("gone.yaml", "There is no space"),
        ("latin.yaml", "is not UTF-8 text"),
        ("folder.yaml", "is a directory, not a space"),
        ("pipe.yaml", "is a pipe or a device, not a space"),
    ):
        with pytest.raises(UserError, match=said) as caught:
            presets.load("m", str(tmp_path / name), declared)
        assert len(caught.value.problems) == 1


def test_one_at_a_time(tmp_path: Path, declared: Declared) -> None:
    text = "method: m\nsearch: {alpha: {grid: [0, 0.5]}, merge_op: {}}\none_at_a_time: true\n"
    space = load(tmp_path, text, declared)
    assert (
        space.one_at_a_time
        and space.grid_points()[0] == {"alpha": 0.5, "merge_op": "mul"}
        and len(space.grid_points()) == 4
    )
    assert not load(tmp_path, text.replace("true", "false"), declared).one_at_a_time
    assert problems(
        tmp_path,
        "method: m\nsearch: {alpha: {low: 1}, merge_op: {options: [add]}, kind: {}}\none_at_a_time: true\n",
        declared,
    ) == [
        "search of alpha must be wide enough to hold its default, 0.5, with one_at_a_time, got [1, 2] (space.yaml, "
        "line 3).",
        "search of merge_op must be wide enough to hold its default, mul, with one_at_a_time, got add (space.yaml, "
        "line 3).",
        "kind owns further parameters and cannot be varied one at a time (space.yaml, line 3). List its options "
        "without them.",
    ]
    assert problems(tmp_path, text.replace("true", "often"), declared) == [
        "one_at_a_time must be true or false, got 'often' (space.yaml, line 3)."
    ]


@dataclass(frozen=True)
class Plain:
    ones: int = integer(3, low=1, high=9, step=1, doc="A whole number with a step of one.")
    free: float = real(1.0, log=True, doc="A log-scaled number without bounds.")


@pytest.mark.parametrize(
    ("entry", "low", "high", "step", "log"),
    [
        ("alpha: {grid: [0.25, 1.5], low: 0.25, high: 1.5}", 0.25, 1.5, None, False),  # the ends of the grid
        ("alpha: {grid: [0.5], low: 0.5}", 0.5, 0.5, None, False),
        ("alpha: {grid: [0.5], high: 0.5}", 0.5, 0.5, None, False),
        # The rate is declared in [1e-6, 10] and searched in [1e-3, 0.3]: an end beyond leaves all up to the bound.
        ("rate: {low: 0.5}", 0.5, 10.0, None, True),
        ("rate: {low: 0.01}", 0.01, 0.3, None, True),
        ("rate: {high: 1e-4}", 1e-6, 1e-4, None, True),
        ("rate: {high: 0.1}", 1e-3, 0.1, None, True),
        # A high that no declared step reaches is lowered; a grid has no step.
        ("even: {low: 4, high: 9}", 4, 8, 2, False),
        ("decay: {grid: [0.05, 0.12]}", 0.05, 0.12, None, False),
        # Without a step the declared one is taken; one of 1 need not be said of whole numbers.
        ("decay: {low: 0.2}", 0.2, 1.0, 0.1, False),
        ("rho: {low: 1}", 1, 100, None, False),
        ("rho: {low: 0, high: 10, step: 1}", 0, 10, None, False),
        ("rho: {low: 0, high: 10, step: 2}", 0, 10, 2, False),
        ("ones: {low: 2}", 2, 9, None, False),
        # A declared scale is logarithmic only above zero.
        ("free: {low: -2.0, high: 2}", -2.0, 2.0, None, False),
        ("free: {low: 0.0, high: 2}", 0.0, 2.0, None, False),
        ("free: {low: 0.5, high: 2}", 0.5, 2.0, None, True),
    ],
)
def test_what_an_entry_does_not_say_follows_from_the_declaration(
    tmp_path: Path, declared: Declared, entry: str, low: float, high: float, step: float | None, log: bool
) -> None:
    known = declared | parameters(Plain)
    (found,) = load(tmp_path, f"method: m\nsearch: {{{entry}}}\n", known).search.values()
    assert (found.low, found.high, found.step, found.log) == (low, high, step, log)


def test_every_problem_of_a_list_of_options_is_said(tmp_path: Path, declared: Declared) -> None:
    found = problems(tmp_path, "method: m\nsearch: {merge_op: {options: [sub, mul, mul, div]}}\n", declared)
    assert [problem.split(" (")[0].split(", got")[-1].strip() for problem in found] == [
        "'sub'",
        "'mul' is listed twice for merge_op",
        "'div'",
    ]


VARIED = """
method: m
search: {alpha: {grid: [0, 1]}}
vary:
  rho: [40, 5]
  merge_op: {options: [add, null]}
  dataset: [digits, mine.npz]
  use_ema:
"""


def test_conditions_are_lists_of_values(tmp_path: Path, declared: Declared) -> None:
    space = load(tmp_path, VARIED, declared)
    assert list(space.search) == ["alpha"] and list(space.vary) == ["rho", "merge_op", "dataset", "use_ema"]
    assert [d.values() for d in space.vary.values()] == [
        (40, 5),
        ("add", "none"),
        ("digits", "mine.npz"),
        (False, True),
    ]
    assert space.cells() == 2 * 16 == len(space.grid_points())
    assert len(space.conditions()) == 16
    first = {"rho": 40, "merge_op": "add", "dataset": "digits", "use_ema": False}
    assert space.grid_points()[:2] == [{"alpha": 0} | first, {"alpha": 0} | first | {"use_ema": True}]
    assert space.contains({"alpha": 0.5} | first) and not space.contains({"alpha": 0.5})
    assert not space.contains({"alpha": 0.5} | first | {"dataset": "other"})
    assert space.searches({"alpha": 0.5}) and set(space.distributions()) == {"alpha"}


def test_the_range_of_a_condition_is_that_of_its_values(tmp_path: Path, declared: Declared) -> None:
    """On a log scale where its parameter is and the values allow it."""
    known = declared | {"shift": Parameter("shift", "real", 0.0, "", low=0.0, high=10.0, log=True)}
    vary = load(tmp_path, "method: m\nvary: {rho: [40, 5], steps: [5, 50, 20], shift: [1, 0.5]}\n", known).vary
    assert [(d.low, d.high, d.log, d.grid) for d in vary.values()] == [
        (5, 40, False, (40, 5)),
        (5, 50, True, (5, 50, 20)),
        (0.5, 1.0, True, (1.0, 0.5)),
    ]
    assert not load(tmp_path, "method: m\nvary: {shift: [1, 0]}\n", known).vary["shift"].log


def test_a_space_may_vary_conditions_alone(tmp_path: Path, declared: Declared) -> None:
    space = load(tmp_path, "method: m\nvary: {rho: [5, 40]}\n", declared)
    assert not space.select_on_test and not space.one_at_a_time
    assert not space.search and space.grid_points() == [{"rho": 5}, {"rho": 40}]
    assert load(tmp_path, "method: m\nsearch: {alpha: {}}\n", declared).conditions() == [{}]


def test_what_a_profile_may_set_of_the_experiment(tmp_path: Path, declared: Declared) -> None:
    text = (
        "method: m\nsearch: {alpha: {}}\nprofiles: {small: {seeds: 1, trials: 1, sampler: random, scheduler: none}}\n"
    )
    space = load(tmp_path, text, declared)
    assert space.profiles["small"] == {"seeds": 1, "trials": 1, "sampler": "random", "scheduler": "none"}
    assert problems(tmp_path, text.replace(": 1", ": 0"), declared) == [
        "seeds must be a whole number of at least 1, got 0 (space.yaml, line 3).",
        "trials must be a whole number of at least 1, got 0 (space.yaml, line 3).",
    ]
    assert {key: parameter.default for key, parameter in EXPERIMENT.items()} == {
        "seeds": 1,
        "trials": 30,
        "sampler": "ei",
        "scheduler": "asha",
    }


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("rho: {low: 1, high: 5}", "Unknown key 'low' of rho under `vary` (space.yaml, line 2)"),
        ("rho: 5", "rho under `vary` must be a list of at least one value, got 5 (space.yaml, line 2)."),
        ("rho: []", "rho under `vary` must be a list of at least one value, got [] (space.yaml, line 2)."),
        ("rho: {}", "rho under `vary` must be a list of at least one value, got {} (space.yaml, line 2)."),
        ("rho: {grid: 5}", "rho under `vary` must be a list of at least one value, got 5 (space.yaml, line 2)."),
        (
            "rho: {grid: {grid: [5]}}",
            "rho under `vary` must be a list of at least one value, got {'grid': [5]} (space.yaml, line 2).",
        ),
        ("dataset: [null]", "dataset must be a name or a path, got None (space.yaml, line 2)."),
        ("rho: [5, 500]", "rho must be a whole number in [0, 100], got 500 (space.yaml, line 2)."),
        ("rho: [5, 5]", "5 is listed twice for rho (space.yaml, line 2). Remove one."),
        (
            "use_ema: [true]",
            "use_ema under `vary` must be written as {}, for yes and no, got [True] (space.yaml, line 2).",
        ),
        ("rhoo: [5]", "Unknown parameter 'rhoo' (space.yaml, line 2). Did you mean 'rho'?"),
        ("alpha: [1]", "alpha is both searched and varied (space.yaml, line 2). Remove one."),
    ],
)
def test_a_wrong_condition(tmp_path: Path, declared: Declared, entry: str, said: str) -> None:
    found = problems(tmp_path, f"method: m\nvary: {{{entry}}}\nsearch: {{alpha: {{}}}}\n", declared)
    assert found[0].startswith(said), found


def test_every_wrong_condition_is_told(tmp_path: Path, declared: Declared) -> None:
    vary = "{rho: [500, 600, 5, 5, 7, 7], steps: [1], alpha: [1], lambda: [2]}"
    search = "{alpha: {}, steps: {}}"
    assert problems(tmp_path, f"method: m\nvary: {vary}\nsearch: {search}\n", declared) == [
        "rho must be a whole number in [0, 100], got 500 (space.yaml, line 2).",
        "rho must be a whole number in [0, 100], got 600 (space.yaml, line 2).",
        "5 is listed twice for rho (space.yaml, line 2). Remove one.",
        "7 is listed twice for rho (space.yaml, line 2). Remove one.",
        "steps is both searched and varied (space.yaml, line 2). Remove one.",
        "alpha is both searched and varied (space.yaml, line 2). Remove one.",
        "lambda must be a number in [0, 0.99], got 2 (space.yaml, line 2).",
    ]


def test_a_condition_is_neither_fixed_nor_set_by_a_profile(tmp_path: Path, declared: Declared) -> None:
    text = "method: m\nvary: {rho: [5, 40]}\nfix: {rho: 5}\nprofiles: {small: {rho: 5}}\n"
    assert problems(tmp_path, text, declared) == [
        "rho is both varied and fixed (space.yaml, line 3). Remove one.",
        "rho is varied and cannot be set by a profile too (space.yaml, line 4). Remove one.",
    ]
