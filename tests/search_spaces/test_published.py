"""Every published number has a named space whose runs a report puts beside it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import pytest

from analysis.published import papers
from analysis.published.papers import Bound, Published, same_dataset
from search_spaces import presets
from search_spaces.space import Space

#: What a paper sets by data set: on another data set than a space's own, one gives it with --set.
BY_DATASET = {"classes_per_client", "clients", "omega", "rho", "target"}
#: A parameter that a table varies and its spaces hold, so that one gives it with --set, and why.
HELD = {
    ("dfrd_tab2", "base"): "a space distils on one base, as every other table of DFRD's does; the others are its runs",
    ("fedmdcg_tab9_11", "omega"): "the box plot is of one ω, at which the options of the server are compared",
    ("fedmdcg_tab15_17", "omega"): "the box plot is of one ω, at which the kinds of diversity are compared",
}
#: The rows (file, table, method) that no space can meet, and why.
OUT_OF_REACH = {
    ("dhf_tab1_3", "DHF, Table 3", method): "its clients have two architectures there, and one, of several widths, here"
    for method in ("dense", "fedftg")
}


def spaces(name: str) -> list[Space]:
    """The named spaces that name this file of published numbers."""
    return [space for space in _spaces() if space.published == name]


@functools.cache
def _spaces() -> tuple[Space, ...]:
    registry = importlib.import_module("trainables.registry")
    return tuple(
        presets.load(method, name, registry.declared(method))
        for method in sorted(presets.files())
        for name in sorted(presets.names(method))
    )


def settings(space: Space) -> dict[str, Any]:
    """Every value of the paper's profile, what the space searches or varies at its first point."""
    return _settings(space.method, space.name)


@functools.cache
def _settings(method: str, name: str) -> dict[str, Any]:
    registry = importlib.import_module("trainables.registry")
    declared = registry.declared(method)
    space = presets.load(method, name, declared)
    chosen = {key: value for key, value in space.profiles["paper"].items() if key in declared}
    first = {key: found.values(2)[0] for key, found in space.search.items()} | space.conditions()[0]
    return registry.resolve(method, space.fix | chosen | first)


def meets(space: Space, line: Published) -> bool:
    """Whether a run of the space's paper profile can be the published experiment."""
    if space.method != line.method:
        return False
    config = settings(space)
    given = {key for file, key in HELD if file == space.published}
    if not same_dataset(line.dataset, config["dataset"]):
        given |= BY_DATASET
    keys = {c.key for c in line.settings} - given
    return all(possible(space, config, [c for c in line.settings if c.key == key]) for key in keys)


def possible(space: Space, config: dict[str, Any], conditions: Sequence[Bound]) -> bool:
    """Whether one value that the space has for a parameter meets all conditions on it."""
    key = conditions[0].key
    found = space.search.get(key) or space.vary.get(key)
    values = found.values(100) if found is not None else (config[key],) if key in config else ()
    return any(all(c.holds({key: value}) for c in conditions) for value in values)


@pytest.mark.parametrize("name", papers.names())
def test_every_published_row_has_a_space_that_can_meet_it(name: str) -> None:
    missing = {
        (name, line.table, line.method)
        for line in papers.published(name)
        if not any(meets(space, line) for space in spaces(name))
    }
    assert missing == {row for row in OUT_OF_REACH if row[0] == name}


@pytest.mark.parametrize("name", papers.names())
def test_every_space_that_names_a_table_can_meet_a_row_of_it(name: str) -> None:
    """A report beside a table in which nothing can be compared would say `not tried` in every line."""
    assert spaces(name)
    for space in spaces(name):
        assert any(meets(space, line) for line in papers.published(name)), f"{space.method}/{space.name}"


@pytest.mark.parametrize(("name", "key"), HELD)
def test_what_a_space_holds_can_be_given(name: str, key: str) -> None:
    """The list names only what a space holds, and every value of the table is one that the method accepts."""
    registry = importlib.import_module("trainables.registry")
    held = [space for space in spaces(name) if key not in {*space.search, *space.vary} and key in space.fix]
    asked = {(line.method, c.value) for line in papers.published(name) for c in line.settings if c.key == key}
    assert held and len(asked) > 1
    for space in held:
        for method, value in asked:
            if method == space.method:
                registry.resolve(method, settings(space) | {key: value})


def test_a_row_of_other_settings_is_not_met() -> None:
    (space,) = (space for space in spaces("dhf_tab1_3") if (space.method, space.name) == ("fedgen", "partition"))
    rows = [line for line in papers.published("dhf_tab1_3") if line.method == "fedgen"]
    assert {line.table for line in rows if meets(space, line)} == {"DHF, Table 2"}
