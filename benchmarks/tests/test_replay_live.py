"""Live searches beside the models of tables: what is compared, and that a real search and its winner are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.curve_table import CurveTable
from benchmarks.replay import live
from benchmarks.replay.surrogate import Surrogate
from benchmarks.tables.specs import Spec
from benchmarks.tests.test_replay import ERRORS, ROUNDS, smooth


def test_a_search_that_the_model_describes_is_found_as_it_says() -> None:
    """Trials drawn from the model on one seed, all of them 0.03 too high: the shift is that and the seed's, the rest
    has the noise that the model says; in hand-made numbers first."""
    table, _ = smooth()
    model = Surrogate(table)
    at = [{"x": x} for x in (0.1, 0.5, 0.9)]
    means = np.array([model.at(values).true[ROUNDS - 1] for values in at])
    found = live.compared(model, [(v, m + d) for v, m, d in zip(at, means, (0.1, 0.2, 0.3), strict=True)])
    assert (found["trials"], found["shift"], found["error"]) == (3, pytest.approx(0.2), pytest.approx(0.1))
    many = [{"x": float(x)} for x in np.random.default_rng(0).random(400)]
    episode = model.episode(0)
    ended = [(values, float(episode.curve(values, 0)[-1]) + 0.03) for values in many]
    found = live.compared(model, ended)
    own = [model.at(values).sigma ** 2 * model.noise.own[-1 - ROUNDS, -1 - ROUNDS] for values in many]
    error = math.sqrt(float(np.mean(own)))
    assert found["error"] == pytest.approx(error, rel=ERRORS / math.sqrt(2 * 400))
    assert found["expected"] == pytest.approx(math.hypot(model.fit.error, error)) and found["rank"] > 0.5
    fixed = float(np.mean([v - model.at(x).true[ROUNDS - 1] for x, v in ended]))
    assert found["shift"] == pytest.approx(fixed)


def test_the_winner_stands_beside_the_model_with_its_standard_error() -> None:
    model = Surrogate(smooth()[0])
    found = live.winner(model, {"x": 0.3}, [0.7, 0.8, 0.9, 0.8])
    assert found["mean"] == pytest.approx(0.8) and found["seeds"] == 4
    assert found["error"] == pytest.approx(math.sqrt(0.02 / 3) / 2)
    assert found["model"] == model.at({"x": 0.3}).true[ROUNDS - 1]
    row = {"trials": 9, "shift": 0.011, "error": 0.052, "expected": 0.05, "rank": 0.66, "winner": found}
    text = live.section({"smooth": row | {"machine": {"date": "2020-01-01", "revision": "abc"}}})
    assert "| `smooth` | 9 | +1.1 | 5.2 | 5.0 | 0.66 | 80.0 ± 4.1 (4 seeds) |" in text
    assert "2020-01-01, revision abc" in text


def test_a_real_search_in_the_space_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec("toy", "Toy", (("fedavg", "default"),), 8, 3, 2, values={"dataset": "blobs", "model": "mlp"})
    points = tuple(spec.points())
    rng = np.random.default_rng(0)
    curves = rng.uniform(0.2, 0.8, (len(points), 3, 2))
    card = {"name": "toy", "method": "fedavg", "space": spec.space.to_json(), "settings": {}, "dataset": "blobs"}
    card |= {"metric": {"validation": spec.metric, "test": "global_accuracy"}, "direction": "maximize", "made": []}
    seconds = np.ones((len(points), 3), dtype=np.float32)
    world = Surrogate(CurveTable(card | {"how": ""}, points, (0, 1, 2), curves, curves.copy(), seconds))
    asked: list[set[str]] = []
    real = world.at

    def noted(values: Any) -> Any:
        asked.append({*values})
        return real(values)

    monkeypatch.setattr(world, "at", noted)
    found = live.live(spec, world, tmp_path, trials=3, fresh=2)
    assert asked and all(keys == {*spec.space.search} for keys in asked)
    assert found["trials"] == 3 and found["winner"]["seeds"] == 2
    assert 0 < found["winner"]["mean"] <= 1 and math.isfinite(found["expected"])
    assert {path.name for path in tmp_path.iterdir()} == {"live-toy", "live-toy-final"}
