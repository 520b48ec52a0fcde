"""The named spaces behind one table of a paper agree on all that the paper holds equal."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import pytest

from search_spaces import presets
from tests.equal_terms import TABLES, Table, differing


def configuration(named: str, profile: str, at: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Every value of `method/space` in a profile, what it searches at its first point that has the conditions `at`;
    with rounds and seeds."""
    method, _, name = named.partition("/")
    registry = importlib.import_module("trainables.registry")
    declared = registry.declared(method)
    space = presets.load(method, name, declared)
    chosen = space.profiles[profile]
    values = {key: value for key, value in chosen.items() if key in declared}
    budget = {key: chosen[key] for key in ("rounds", "seeds", "validation_fraction", "select_on_test") if key in chosen}
    wanted = {key: value for key, value in (at or {}).items() if key in space.vary}
    point = next(p for p in space.grid_points(2) if wanted.items() <= p.items())
    return registry.resolve(method, space.fix | values | point) | budget


@pytest.mark.parametrize("profile", presets.PROFILES)
@pytest.mark.parametrize("table", [t for t in TABLES if t.spaces], ids=lambda t: t.source)
def test_spaces_of_one_table_agree_on_what_the_paper_holds_equal(table: Table, profile: str) -> None:
    held = table.held | {"rounds", "seeds"}
    configurations = {named: configuration(named, profile, table.at) for named in table.spaces}
    for known in table.differences:
        if configurations[known.space][known.key] == known.value:
            del configurations[known.space][known.key]
    assert differing(held, configurations) == {}
    for key, value in table.at.items():
        assert {c[key] for c in configurations.values() if key in c} == {value}


@pytest.mark.parametrize("table", [t for t in TABLES if t.differences], ids=lambda t: t.source)
def test_a_listed_difference_is_one_and_has_its_reason(table: Table) -> None:
    for known in table.differences:
        others = [
            name for name in table.spaces if name != known.space and known.key in configuration(name, "small", table.at)
        ]
        assert known.reason and others
        assert any(
            configuration(known.space, profile, table.at)[known.key] == known.value
            and all(configuration(name, profile, table.at)[known.key] != known.value for name in others)
            for profile in presets.PROFILES
        )


@pytest.mark.parametrize("table", [t for t in TABLES if t.spaces], ids=lambda t: t.source)
def test_the_list_names_what_the_methods_declare(table: Table) -> None:
    """A parameter of the list that is renamed is noticed; every table holds what its methods share of it."""
    known = [set(configuration(named, "small")) for named in table.spaces]
    assert table.held <= set().union(*known)
    assert {"lr", "batch_size", "local_steps", "omega", "partition", "model"} <= set.intersection(*known) & table.held


def test_a_difference_is_found_and_a_parameter_of_one_method_is_none() -> None:
    configurations = {"a": {"gen_steps": 1, "lr": 1}, "b": {"gen_steps": 2, "lr": 1, "tau": 3}}
    found = differing({"gen_steps", "lr", "tau"}, configurations)
    assert found == {"gen_steps": {"a": 1, "b": 2}}
