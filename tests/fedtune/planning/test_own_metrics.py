"""A metric of a user's own: what it measures, under which names it is recorded and selected by, and that a report
needs no file of the user's."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import fedtune
from analysis import labels
from analysis.runs import load_run
from fedtune.options import RunRequest, SearchRequest
from fedtune.planning.plan import plan
from fedtune.planning.resumption import check_unchanged, complete
from fedtune.record.experiment import Experiment
from search_spaces import metrics, run_folder
from search_spaces.errors import UserError
from tests.toy import write_toy
from trainables import own_code, registry
from trainables.simulation.replicates import Replicates
from trainables.worker.rounds_jsonl import Row

METRIC = """\
def hits(logits, labels):
    return (logits.argmax(1) == labels).double().mean()


def misses(logits, labels):
    return 1 - hits(logits, labels)


def only_good(logits, labels):
    found = float(hits(logits, labels))
    return found if found > LEAST else float("nan")


def broken(logits, labels):
    return logits[labels[-1] + 1]


def endless(logits, labels):
    return float("inf")


misses.direction, misses.title, misses.unit = "minimize", "Wrong ones", "share"
LEAST = 0.0
"""


@pytest.fixture(autouse=True)
def file(workplace: Path) -> Iterator[Path]:
    known, shares = dict(metrics.METRICS), set(metrics.SHARES)
    (workplace / "mine.py").write_text(METRIC)
    yield workplace / "mine.py"
    forget(known, shares)


def forget(known: dict[str, metrics.Metric], shares: set[str]) -> None:
    metrics.METRICS.clear()
    metrics.METRICS.update(known)
    metrics.SHARES.intersection_update(shares)


def asked(
    folder: Path, *metric: object, method: str = "fedavg", dataset: str = "", **settings: object
) -> SearchRequest:
    values = {"clients": 3, "omega": 1, "local_steps": 2, "rounds": 1, **settings}
    return SearchRequest(method, dataset=dataset or str(write_toy(folder)), set=values, metric=metric)


def trained(request: SearchRequest) -> tuple[Row, tuple[int, ...]]:
    made = Replicates("fedavg", plan(request).middle, (0,))
    return made.step()[0], made.simulations[0].fed.sizes


def test_it_is_measured_where_accuracies_are(tmp_path: Path) -> None:
    row, sizes = trained(asked(tmp_path, "mine.py:hits", dataset="digits", own_metrics="./mine.py:misses"))
    for start in ("", "val_"):
        assert row[f"{start}hits"] == pytest.approx(row[f"{start}global_accuracy"], abs=1e-12)
        assert row[f"{start}misses"] == pytest.approx(1 - row[f"{start}global_accuracy"], abs=1e-12)
        assert row[f"{start}local_hits"] == pytest.approx(row[f"{start}local_accuracy"], abs=1e-12)
    each = row["local_accuracies"]
    least = sorted(each)[0]
    assert least < max(each)
    (tmp_path / "mine.py").write_text(METRIC.replace("LEAST = 0.0", f"LEAST = {least}"))
    own_code.forget()
    row, _ = trained(asked(tmp_path, "local_accuracy", dataset="digits", own_metrics="./mine.py:only_good"))
    kept = [(a, n) for a, n in zip(each, sizes, strict=True) if a > least]
    assert row["local_only_good"] == pytest.approx(sum(a * n for a, n in kept) / sum(n for _, n in kept))


def test_it_is_selected_by_recorded_and_read_again_without_its_file(tmp_path: Path, file: Path) -> None:
    known, shares = dict(metrics.METRICS), set(metrics.SHARES)
    made = plan(asked(tmp_path, "./mine.py:misses"))
    assert made.experiment.metric == ("val_misses",) and made.experiment.directions == ("minimize",)
    assert registry.own_codes("fedavg", made.middle) == (own_code.Code(str(file), METRIC),), "what trials are sent"
    made.create()
    said = json.loads((made.folder / run_folder.PROVENANCE).read_text())["metric_file"]
    assert said == {"metric": f"{file}:misses", "file": "mine.py", "hash": own_code.Code("", METRIC).hash}
    own_code.forget()
    forget(known, shares)
    exported = {"method": "fedavg", "parameters": dict(made.middle), "metric": {"val_misses": 0.5}}
    (tmp_path / "best.yaml").write_text(yaml.safe_dump({"fedtune": 1, "provenance": {}, **exported}))
    assert plan(RunRequest("best.yaml", seeds=1)).experiment.metric == ("val_misses",)
    own_code.forget()
    forget(known, shares)
    file.rename(tmp_path / "elsewhere.py")
    run = load_run(made.folder)
    assert run.metrics == ("val_misses",) and not run.maximise
    assert labels.told("val_misses", 0.25) == "25.00 %"
    assert metrics.METRICS["misses"].title == "Wrong ones"
    with pytest.raises(UserError, match=r"mine\.py"):
        check_unchanged(run, *complete(made.folder, Experiment.of(run)))
    file.write_text(METRIC + "# otherwise\n")
    with pytest.raises(UserError, match=r"^mine.py must be as it was when .* began .*--other-versions"):
        check_unchanged(run, *complete(made.folder, Experiment.of(run)))
    file.write_text(METRIC)
    assert check_unchanged(run, *complete(made.folder, Experiment.of(run))) == []
    record = made.folder / run_folder.EXPERIMENT
    data = yaml.safe_load(record.read_text())
    record.write_text(yaml.safe_dump({**data, "own_metrics": {"misses": {"direction": "up"}}}))
    with pytest.raises(UserError, match="own_metrics must be a mapping of metrics to direction"):
        load_run(made.folder)


def test_a_function_of_a_program_is_one(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("mine", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mine", module)
    spec.loader.exec_module(module)
    made = plan(asked(tmp_path, module.hits, "local_accuracy"))
    assert made.experiment.metric == ("val_hits", "val_local_accuracy")
    assert made.experiment.values["own_metrics"] == f"{file}:hits"
    objective = fedtune.objective("fedavg", dataset=str(write_toy(tmp_path)), metric=module.misses, rounds=1)
    assert (objective.metric, objective.direction) == ("misses", "minimize")
    with pytest.raises(UserError, match=r"metric must be a name, FILE\.py:FUNCTION, or a function"):
        plan(asked(tmp_path, lambda logits, labels: 0.0))


def test_what_is_no_metric_is_one_sentence(tmp_path: Path, file: Path) -> None:
    for metric, said in (
        ("./mine.py", r"metric must be one of the functions of .*mine.py, got hits, misses"),
        ("./mine.py:hit", r"metric must be one of the functions of .*mine.py, got hit "),
        ("./none.py:hits", "metric must be the path of an existing Python file"),
        ("./mine.py:broken", r"The metric broken cannot be computed: IndexError: "),
        (
            "./mine.py:endless",
            r"What the metric endless returns must be a finite .* NaN or inf .* \(.*mine.py:endless\)",
        ),
        ("./mine.py:local_endless", "What the metric endless returns must be a finite number"),
    ):
        with pytest.raises(UserError, match=said):
            plan(asked(tmp_path, metric))
    with pytest.raises(UserError, match=r"hits is measured of a global model, .* Select by --metric local_hits or"):
        plan(asked(tmp_path, "./mine.py:test_hits", method="fedper"))
    assert plan(asked(tmp_path, "./mine.py:local_hits", method="fedper")).experiment.metric == ("val_local_hits",)
    file.write_text("def wlp(logits, labels):\n    return 0.0\n")
    with pytest.raises(UserError, match="A metric of your own must be a name that no metric has"):
        plan(asked(tmp_path, "./mine.py"))
