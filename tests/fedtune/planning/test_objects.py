"""What a program hands over in place of names and paths, and its own loops of Ray Tune and Optuna."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import torch
from ray.air.constants import TRAINING_ITERATION

import fedtune
from fedtune.options import SearchRequest
from fedtune.planning.plan import plan
from search_spaces.errors import UserError
from search_spaces.parameter import Parameter
from trainables import data, own_code
from trainables.data import objects
from trainables.simulation.replicates import Replicates
from trainables.tune import federation

NET = """\
import torch


class Net(torch.nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.head = torch.nn.Linear(features, classes)

    def forward(self, x):
        return self.head(x)
"""
FIXED: dict[str, Any] = {"validation_fraction": 0.1, "clients": 3, "omega": 1.0, "rounds": 3, "local_steps": 2}

pytestmark = pytest.mark.usefixtures("workplace")


def samples(count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, count)
    return (rng.normal(size=(count, 4)) + y[:, None]).astype(np.float32), y


def test_data_at_hand_are_a_file_named_by_its_content() -> None:
    x, y = samples()
    pair = objects.reference((x, y))
    assert objects.reference((torch.from_numpy(x), torch.from_numpy(y))) == pair != objects.reference((x + 1, y))
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    assert data.load(objects.reference(dataset)).hash == data.load(pair).hash
    frame = pd.DataFrame(x, columns=list("abcd")).assign(y=y)
    table = data.load(objects.reference(frame) + "?label=y")
    np.testing.assert_array_equal(np.sort(table.train_x.ravel()), np.sort(data.load(pair).train_x.ravel()))
    parts = data.load(objects.reference((x[:90], y[:90], x[90:], y[90:])))
    assert (len(parts.train_y), len(parts.test_y)) == (90, 30)
    for wrong in ((x, y, x), 3, [(x, y)], (np.array([None]), y)):
        with pytest.raises(UserError, match=r"ataset|of pairs"):
            objects.reference(wrong)
    for alone in (x, torch.from_numpy(x)):
        with pytest.raises(UserError, match=r"got one array of shape \(120, 4\)\. Give its labels .* dataset=\(x, y\)"):
            objects.reference(alone)


def test_a_search_of_objects_is_one_of_names(workplace: Path) -> None:
    (workplace / "mynet.py").write_text(NET)
    own_code.named(workplace / "mynet.py", "model")
    net = own_code.module(workplace / "mynet.py").Net
    frame = pd.DataFrame(samples()[0]).assign(y=samples()[1], site=np.arange(120) % 3)
    made = plan(
        SearchRequest(
            "fedavg",
            dataset=frame,
            label="y",
            client="site",
            model=net,
            space={"lr": (0.01, 0.1), "batch_size": [8, 16]},
            rounds=1,
        )
    )
    values = made.experiment.values
    assert values["model"] == f"{workplace}/mynet.py:Net" and values["clients"] == 3
    assert str(values["dataset"]).endswith("table.parquet?label=y&client=site")
    assert made.facts["model_file"]["file"] == "mynet.py" and made.folder.name == "fedavg-own"
    lr, batch = made.space.search["lr"], made.space.search["batch_size"]
    assert (lr.low, lr.high, batch.grid, batch.only) == (0.01, 0.1, (8, 16), True)


def test_what_has_no_file_is_said() -> None:
    class Local(torch.nn.Module):
        pass

    with pytest.raises(UserError, match=r"model must be a name, FILE.py:CLASS, or a class that stands at the top of"):
        plan(SearchRequest("fedavg", dataset=samples(), model=Local))
    with pytest.raises(UserError, match=r"lr must be a pair \(low, high\)"):
        plan(SearchRequest("fedavg", dataset=samples(), space={"lr": (1, 2, 3)}))


def test_a_file_that_searches_when_it_is_read_is_refused(workplace: Path) -> None:
    path = workplace / "script.py"
    path.write_text(NET + "\nimport fedtune\n\nfedtune.search('fedavg', model=Net)\n")
    with pytest.raises(UserError, match=r"script.py cannot be run .* Put that call below"):
        plan(SearchRequest("fedavg", dataset=samples(), model=f"{path}:Net", set=FIXED))


def by_hand(lr: float) -> list[list[dict[str, Any]]]:
    from trainables import registry

    values = registry.resolve("fedavg", {**FIXED, "dataset": objects.reference(samples()), "lr": lr})
    simulated = Replicates("fedavg", values, (0, 1))
    return [simulated.step() for _ in range(3)]


def test_a_trainable_of_ray_reports_every_round_and_goes_on(tmp_path: Path) -> None:
    kind = federation("fedavg", dataset=samples(), seeds=(0, 1), **FIXED)
    trial = kind({"lr": 0.05})
    results = [trial.train() for _ in range(2)]
    saved = trial.save(str(tmp_path / "saved"))
    results.append(trial.train())
    for result, rows in zip(results, by_hand(0.05), strict=True):
        for name in ("global_accuracy", "local_accuracy", "val_global_loss"):
            assert result[name] == statistics.fmean(row[name] for row in rows)
    assert [result["done"] for result in results] == [False, False, True]
    assert [result[TRAINING_ITERATION] for result in results] == [1, 2, 3]
    again = kind({"lr": 0.05})
    again.restore(saved)
    assert again.train()["global_loss"] == results[2]["global_loss"]
    with pytest.raises(UserError, match="Unknown parameter 'learning'"):
        federation("fedavg", learning=3)
    with pytest.raises(UserError, match="Unknown method 'fedavgg'"):
        federation("fedavgg")


def test_a_trainable_converts_every_value_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are fixed as it is made, those of the Tuner as a trial begins."""
    found: list[str] = []
    convert = Parameter.convert
    monkeypatch.setattr(Parameter, "convert", lambda p, raw, where="": (found.append(p.key), convert(p, raw, where))[1])
    kind = federation("fedavg", dataset=samples(), **FIXED)
    assert sorted(found) == sorted(("dataset", *FIXED))
    found.clear()
    kind({"lr": 0.05})
    assert found == ["lr"]


def test_an_objective_of_optuna_reports_every_round() -> None:
    objective = fedtune.objective(
        "fedavg", dataset=samples(), space={"lr": (0.01, 0.1)}, seeds=2, metric="val_global_loss", set=FIXED
    )
    assert objective.direction == "minimize" and list(objective.space.search) == ["lr"]
    study = optuna.create_study(direction=objective.direction)
    study.enqueue_trial({"lr": 0.05})
    study.optimize(objective, n_trials=1)
    curve = [statistics.fmean(row["val_global_loss"] for row in rows) for rows in by_hand(0.05)]
    assert study.trials[0].intermediate_values == dict(enumerate(curve, 1)) and study.best_value == curve[-1]
    stopped = optuna.create_study(direction="minimize", pruner=optuna.pruners.ThresholdPruner(upper=1e-9))
    stopped.optimize(objective, n_trials=1)
    assert stopped.trials[0].state.name == "PRUNED" and list(stopped.trials[0].intermediate_values) == [1]
    with pytest.raises(UserError, match="needs images"):
        fedtune.objective("dfrd", dataset=samples(), set=FIXED)
