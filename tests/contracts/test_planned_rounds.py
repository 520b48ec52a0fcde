"""A run can be continued beyond its plan where its first rounds do not depend on how many are planned: every method
says where they do (`Method.follows_plan`)."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import trainables
from tests.contracts.test_methods import METHODS, light, same, simulate
from trainables import registry
from trainables.simulation.rounds import Row

#: Configurations of the methods with a schedule, and whether it spans the planned rounds.
SCHEDULES: list[tuple[str, dict[str, Any], bool]] = [
    ("dhf", {"gme_interval": 0}, False),
    ("dhf", {"gme_interval": 2}, False),
    ("dhf", {"gme_interval": 3}, True),
    ("fedcg", {"ramp": "sigmoid"}, False),
    ("fedcg", {"ramp": "polynomial"}, True),
    ("fedcg", {"ramp": "polynomial", "ramp_power": 0}, False),
    ("fedkd", {}, True),
    ("fedkd", {"energy_start": 0.9, "energy_end": 0.9}, False),
    ("fedmdcg", {}, True),
    ("fedmdcg", {"ramp_power": 0}, False),
    ("fedphp", {}, True),
    ("fedphp", {"mu": 0}, False),
]


#: By method, configurations, how many rounds, and whether a schedule spans them.
SPANS: dict[str, list[tuple[dict[str, Any], int, bool]]] = {
    "dhf": [
        ({"gme_interval": 0}, 7, False),
        ({"gme_interval": 3}, 2, True),
        ({"gme_interval": 3}, 7, True),
        ({"gme_interval": 3}, 9, False),
    ],
    "fedcg": [
        ({"ramp": "polynomial", "ramp_power": 1}, 7, True),
        ({"ramp": "polynomial", "ramp_power": 0}, 7, False),
        ({"ramp": "sigmoid", "ramp_power": 1}, 7, False),
    ],
    "fedkd": [
        ({"energy_start": 0.9, "energy_end": 0.95}, 7, True),
        ({"energy_start": 0.9, "energy_end": 0.9}, 7, False),
    ],
    "fedavg": [({}, 7, False)],
}


@pytest.mark.parametrize("name", SPANS)
def test_where_a_schedule_spans_the_plan(name: str) -> None:
    method = registry.method(name)
    for values, rounds, follows in SPANS[name]:
        assert method.follows_plan(method.Config(**values), rounds) is follows, (values, rounds)


def first_rounds(
    name: str, toy: Path, planned: int, values: dict[str, Any], count: int = 4
) -> tuple[list[Row], Any, bool]:
    """The first four rounds of so many planned ones: rows, state, and whether the method says that the plan matters."""
    simulation, rows = simulate(name, toy, count, rounds=planned, **light(name) | values)
    follows = simulation.method.follows_plan(simulation.config, count)
    return rows, simulation.save(), follows


@pytest.mark.parametrize("name", sorted(set(METHODS) - {name for name, _, _ in SCHEDULES}))
def test_the_first_rounds_are_those_of_a_longer_run(name: str, toy: Path) -> None:
    rows, state, follows = first_rounds(name, toy, 2, {}, count=2)
    longer_rows, longer_state, _ = first_rounds(name, toy, 4, {}, count=2)
    assert not follows and rows == longer_rows and same(state, longer_state)


@pytest.mark.parametrize(("name", "values", "follows"), SCHEDULES, ids=lambda part: str(part))
def test_a_schedule_over_the_planned_rounds_is_declared(
    name: str, values: dict[str, Any], follows: bool, toy: Path
) -> None:
    rows, state, said = first_rounds(name, toy, 4, values)
    longer_rows, longer_state, _ = first_rounds(name, toy, 6, values)
    assert said is follows
    assert (rows == longer_rows and same(state, longer_state)) is not follows


@pytest.mark.parametrize("target", [0.01, 1.0])
def test_whether_a_target_is_reached_does_not_hang_on_the_plan(target: float, toy: Path) -> None:
    rows, _, _ = first_rounds("fedavg", toy, 4, {"target": target, "lr": 1e-6})
    longer_rows, _, _ = first_rounds("fedavg", toy, 6, {"target": target, "lr": 1e-6})
    assert rows == longer_rows and {row["rounds_to_target"] for row in rows} == ({1} if target < 1 else {None})


def test_only_methods_that_say_so_read_how_many_rounds_are_planned() -> None:
    root = Path(trainables.__file__).parent
    readers = {
        path.stem
        for folder in ("methods", "building_blocks", "models", "data")
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "rounds"
    }
    undeclared = registry.method("fedavg").follows_plan
    assert readers == {m.name for m in registry.methods().values() if m.follows_plan is not undeclared}
    assert readers == {name for name, _, _ in SCHEDULES}
