"""Objectives of several configurations as one: what becomes a vector, and what keeps them apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainables.simulation.objective_settings import Differs, Setting, United, likeness

WEIGHTS = (0.5, 3.0)


@dataclass(frozen=True)
class Config:
    weight: float = 0.5
    kind: str = "mse"
    steps: int = 3


def setting(*values: Any) -> Setting:
    vector = torch.tensor(values)[0] if all(isinstance(value, float) for value in values) else None
    return Setting(values, vector)


@pytest.mark.parametrize(
    ("computed", "expected"),
    [
        (lambda s, x: s * x, lambda w, x: w * x),
        (lambda s, x: x * s, lambda w, x: x * w),
        (lambda s, x: s / 2 * x, lambda w, x: w / 2 * x),
        (lambda s, x: x / s, lambda w, x: x / w),
        (lambda s, x: 2 / s + x, lambda w, x: 2 / w + x),
        (lambda s, x: x + s, lambda w, x: x + w),
        (lambda s, x: x - s, lambda w, x: x - w),
        (lambda s, x: (1.0 - s) * x, lambda w, x: (1.0 - w) * x),
        (lambda s, x: (s - 1.0 + s) * x, lambda w, x: (w - 1.0 + w) * x),
        (lambda s, x: s**2 * -s * x, lambda w, x: w**2 * -w * x),
        (lambda s, x: 2**s + x**s, lambda w, x: 2**w + x**w),
        (lambda s, x: torch.mul(x, s) if s > 0 else x, lambda w, x: x * w),
        (lambda s, x: torch.where(x > s, x, s), lambda w, x: x.clamp(min=w)),
    ],
)
def test_each_of_several_objectives_computes_with_its_own_number(
    computed: Callable[[Any, Tensor], Tensor], expected: Callable[[float, Tensor], Tensor]
) -> None:
    """Guards every operation of a setting; the expected value is that of the plain number."""

    def objective(config: Config) -> Callable[[Tensor], Tensor]:
        return lambda x: computed(config.weight, x)

    x = torch.tensor([[1.0, 2.0], [0.25, 4.0]], dtype=torch.float64)
    code = likeness(objective, None)
    assert code == likeness(objective, None)
    united = United([partial(objective, Config(weight)) for weight in WEIGHTS])
    found = torch.vmap(lambda numbers, row: united.of(numbers)()(row))(united.numbers(x), x)
    assert torch.equal(found, torch.stack([expected(w, row) for w, row in zip(WEIGHTS, x, strict=True)]))


def test_what_all_agree_on_stays_as_it_is() -> None:
    one = partial(max, Config(), 2.0)
    united = United([one, partial(max, Config(), 2.0)])
    assert united.numbers(torch.ones(2)) == () and united.of(()) is one
    united = United([one, partial(max, Config(steps=4), 2.0)])
    (of_kinds, weight) = united.of(()).args
    assert weight == 2.0 and isinstance(of_kinds.steps, Setting) and (of_kinds.weight, of_kinds.kind) == (0.5, "mse")


def test_a_question_has_one_answer_or_says_who_belongs_together() -> None:
    assert (setting(0.5, 3.0) > 0) is True and (setting(0.5, 3.0) == 1.0) is False and setting("a", "b") != "c"
    assert setting(0.5, 3.0) < setting(1.0, 4.0) and setting(2.0, 1.0) >= 1 and setting(1, 0) <= 1
    assert bool(setting(1, 2)) and setting("a", "a") == "a"
    with pytest.raises(Differs) as said:
        assert setting(0.0, 0.5, 0.0) == 0
    assert said.value.answers == (True, False, True)
    asked: list[Callable[[Setting], Any]] = [
        float,
        int,
        str,
        range,
        hash,
        math.log,
        lambda s: s * 2,
        lambda s: [1, 2, 3][s],
    ]
    for question in asked:
        with pytest.raises((Differs, TypeError)):
            question(setting(1, 2))
    with pytest.raises(Differs) as said:
        math.log(setting(1.0, 2.0))
    assert said.value.answers == (1.0, 2.0)


def plain(config: Config) -> Config:
    return config


def test_what_may_be_one_program() -> None:
    """Numbers, names and switches may differ; functions, kinds of configurations and modules may not. A function that
    keeps values of its own may keep anything."""
    of = Config()
    one = likeness(partial(plain, of), of)
    assert one == likeness(partial(plain, Config(2.0, "l2", 7)), Config(2.0))
    assert one != likeness(plain, of) != likeness(partial(plain, 2.0), of)
    assert likeness(partial(plain, 1.0), of) == likeness(partial(plain, 2), of) != likeness(partial(plain, x=1.0), of)
    narrow, wide = nn.Linear(2, 3), nn.Linear(2, 4)
    assert likeness(partial(plain, narrow), of) == likeness(partial(plain, nn.Linear(2, 3)), of)
    assert likeness(partial(plain, narrow), of) != likeness(partial(plain, wide), of)
    kept = [lambda x, c=c: c for c in (of, of)]
    assert likeness(kept[0], of) == likeness(kept[1], of) != likeness(kept[1], replace(of, weight=2.0))
