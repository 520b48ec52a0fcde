"""Every preset of every method is valid against what the method declares, in both profiles."""

from __future__ import annotations

import importlib
import importlib.resources
from pathlib import Path
from typing import Any

import pytest

from search_spaces import documents, presets
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError
from search_spaces.parameter import Parameter

ALL = sorted((method, name) for method in presets.files() for name in presets.names(method))


def declared_for(method: str) -> dict[str, Parameter]:
    return importlib.import_module("trainables.registry").declared(method)


def test_there_are_presets_and_default_comes_first() -> None:
    assert presets.names("dfrd")[0] == "default"
    assert {"alpha_lambda", "betas", "transferability", "merge_op", "components", "weighting", "omega", "rho"} <= set(
        presets.names("dfrd")
    )
    assert presets.names("no_such_method") == []


def test_every_space_is_in_one_file_and_every_file_has_some() -> None:
    read = [(key, path) for path in presets.FOLDER.iterdir() for key in documents.read(path).root.items["spaces"].items]
    assert sorted(key for key, _ in read) == [f"{method}/{name}" for method, name in ALL]
    assert {path for _, path in read} == set(presets.FOLDER.iterdir())
    assert all(presets.files()[method][name] == path for key, path in read for method, name in [key.split("/")])


def test_a_space_adds_to_what_its_file_says_of_all(
    tmp_path: Path, declared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two.yaml").write_text(
        """title: of both
search:
  alpha: {low: 0.25, high: 0.5}
fix: {steps: 5}
profiles:
  small: {rounds: 3, seeds: 2}
  paper: {rounds: 9}
figures: [box]
spaces:
  m/plain: {}
  m/own:
    source: here
    search:
      alpha: {grid: [0.5, 1]}
      rate: {}
    fix: {steps: 7}
    profiles:
      small: {seeds: 1, trials: 4}
    figures: null
"""
    )
    monkeypatch.setattr(presets, "FOLDER", tmp_path)
    monkeypatch.setattr(presets, "files", presets.files.__wrapped__)
    declared = {**declared, "rounds": Parameter("rounds", "integer", 1, "Rounds.", low=1)}
    plain, own = (presets.load("m", name, declared) for name in presets.names("m")[::-1])
    assert (plain.name, plain.title, plain.source, plain.figures) == ("plain", "of both", "", ("box",))
    assert list(plain.search) == ["alpha"] and plain.fix == {"steps": 5}
    assert plain.profiles == {"small": {"rounds": 3, "seeds": 2}, "paper": {"rounds": 9}}
    assert (own.name, own.title, own.source, own.figures) == ("own", "of both", "here", ())
    assert list(own.search) == ["alpha", "rate"] and own.fix == {"steps": 7}
    assert own.search["alpha"].grid == (0.5, 1) and own.search["alpha"].low == 0.5
    assert own.profiles == {"small": {"rounds": 3, "seeds": 1, "trials": 4}, "paper": {"rounds": 9}}


@pytest.mark.parametrize(("method", "name"), ALL)
def test_every_preset_loads_and_its_profiles_are_possible(method: str, name: str) -> None:
    declared = declared_for(method)
    registry = importlib.import_module("trainables.registry")
    space = presets.load(method, name, declared)
    assert space.title and space.source and space.name == name
    assert set(space.figures) <= set(importlib.import_module("analysis.figures").figures())
    for profile in presets.PROFILES:
        chosen = {key: value for key, value in space.profiles[profile].items() if key in declared}
        for point in (space.grid_points(2)[0], space.grid_points(2)[-1]):
            registry.resolve(method, {**space.fix, **chosen, **point})
    assert space.profiles["small"]["dataset"] == "digits"
    assert space.profiles["paper"]["seeds"] in (3, 5) and space.select_on_test


def test_the_papers_grid() -> None:
    space = presets.load("dfrd", "alpha_lambda", declared_for("dfrd"))
    points = space.grid_points()
    assert len(points) == 30
    assert (
        points[0] == {"alpha": 0.25, "lambda": 0.1}
        and points[1] == {"alpha": 0.25, "lambda": 0.3}
        and points[-1] == {"alpha": 1.5, "lambda": 0.9}
    )
    assert space.fix == {"base": "fedrolex", "omega": 0.1, "rho": 10}
    assert space.figures == ("heatmap",)


@pytest.mark.parametrize("method", sorted({method for method, _ in ALL}))
def test_declarations_are_sound(method: str) -> None:
    """Defaults are inside their bounds, log scales above zero where searched, and everything is documented."""
    for key, parameter in declared_for(method).items():
        assert parameter.doc.endswith("."), key
        assert parameter.convert(parameter.default) == parameter.default, key
        if parameter.tune is not False:
            dimension = Dimension.of(parameter)
            assert dimension.distribution() is not None
            assert all(parameter.convert(value) == value for value in dimension.values()), key


def test_the_default_space_comes_from_the_declarations(declared: dict[str, Any]) -> None:
    space = presets.load("m", "default", declared)
    assert set(space.search) == {"alpha", "rate", "steps"}
    with pytest.raises(UserError, match="declares nothing to tune"):
        presets.default("m", {"rho": declared["rho"]})


def test_an_unknown_space_names_the_nearest(declared: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"Unknown space of dfrd 'alpha_lamda'.*Did you mean 'alpha_lambda'"):
        presets.load("dfrd", "alpha_lamda", declared)
    with pytest.raises(UserError, match="Known: default"):
        presets.load("m", "zzz", declared)


@pytest.mark.parametrize(("method", "name"), ALL)
def test_no_preset_looks_for_the_best_condition(method: str, name: str) -> None:
    space = presets.load(method, name, declared_for(method))
    assert [d.key for _, d in space.dimensions() if d.parameter.condition] == []
    assert all(dimension.parameter.condition for dimension in space.vary.values())


def test_what_a_method_declares_again_stays_a_condition() -> None:
    """DHF declares the partition once more, with a default of its own."""
    declared = declared_for("dhf")
    conditions = {key for key, parameter in declared.items() if parameter.condition}
    assert {"omega", "rho", "clients", "active_clients", "dataset", "partition", "nu", "target"} <= conditions
    assert not conditions & {"lr", "local_steps", "lambda", "tau", "batch_size"}
