"""What TensorBoard, MLflow and Weights & Biases are told of a search, read back with their own readers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedtune.api.search import Result, carry_out, run_command
from fedtune.options import SearchRequest
from fedtune.planning.plan import Plan, plan
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import experiment, space
from tests.fedtune.fake import Fake
from tests.toy import write_toy
from trainables.worker.rounds_jsonl import read_rows

Conduct = Callable[..., Result]
#: By round the mean over seeds of a metric.
Curve = list[tuple[int, float]]


def recorded(folder: Path, number: int, metric: str) -> Curve:
    """What `rounds.jsonl` says."""
    rows = read_rows(folder / run_folder.trial_folder(number) / run_folder.ROUNDS)
    rounds = sorted({row["round"] for row in rows})
    return [(t, statistics.fmean(row[metric] for row in rows if row["round"] == t)) for t in rounds]


def same(found: Curve, wanted: Curve) -> bool:
    """TensorBoard keeps float32."""
    return [t for t, _ in found] == [t for t, _ in wanted] and all(
        abs(a - b) < 1e-6 for (_, a), (_, b) in zip(found, wanted, strict=True)
    )


def scalars(folder: Path, number: int, metric: str) -> Curve:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", exc_type=ImportError)
    events = reading.EventAccumulator(str(folder / "tensorboard" / f"{number:04d}"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(f"ray/tune/{metric}")]


def test_tensorboard_is_told_every_round_once_whatever_dies(conduct: Conduct, tmp_path: Path) -> None:
    values = {"trouble": "die", "flag": str(tmp_path / "flag")}
    result = conduct("tb", log=("tensorboard",), trials=3, concurrency=1, sampler="random", values=values)
    assert result.finished and (tmp_path / "flag").exists()
    assert sorted(path.name for path in (tmp_path / "tb" / "tensorboard").iterdir()) == ["0000", "0001", "0002"]
    for number in range(3):
        curve = recorded(tmp_path / "tb", number, "val_global_accuracy")
        assert curve and same(scalars(tmp_path / "tb", number, "val_global_accuracy"), curve)
    assert "tensorboard" in (tmp_path / "tb" / run_folder.EXPERIMENT).read_text(), "a resumed run goes on to tell it"


def test_mlflow_has_values_and_curves(conduct: Conduct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install mlflow", exc_type=ImportError)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    conduct("ml", log=("mlflow",), trials=2, concurrency=1, sampler="random")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'ml' / run_folder.MLFLOW}")
    (made,) = [one for one in client.search_experiments() if one.name == "ml"]
    runs = {run.data.tags["trial_name"]: run for run in client.search_runs([made.experiment_id])}
    assert sorted(runs) == ["ml-0", "ml-1"] and {"alpha", "lambda"} <= runs["ml-0"].data.params.keys()
    for number in range(2):
        told = client.get_metric_history(runs[f"ml-{number}"].info.run_id, "val_global_accuracy")
        curve = [(one.step, one.value) for one in told]
        assert same(curve, recorded(tmp_path / "ml", number, "val_global_accuracy"))


def records(content: bytes) -> Iterator[bytes]:
    """Of a file of Weights & Biases: a head of 7 bytes, then LevelDB's log format, blocks of 32 KiB whose chunks have a
    head of checksum, length and kind (1 is whole; 2, 3 and 4 are the first, a middle and the last part)."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def test_weights_and_biases_are_written_offline(
    conduct: Conduct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: pip install wandb", exc_type=ImportError)
    from wandb.proto import wandb_internal_pb2

    monkeypatch.delenv("WANDB_MODE", raising=False)
    conduct("wb", log=("wandb",), trials=1, concurrency=1, sampler="random")
    (file,) = (tmp_path / "wb" / "wandb" / "0000").rglob("*.wandb")
    curve = []
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        said = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "val_global_accuracy" in said:
            curve.append((int(said["training_iteration"]), float(said["val_global_accuracy"])))
    assert same(curve, recorded(tmp_path / "wb", 0, "val_global_accuracy"))


def test_a_tracker_that_fails_ends_no_search(
    conduct: Conduct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("fedtune.execution.trackers.Tracker._made", lambda self: 1 / 0)
    made = experiment(tmp_path / "run", log=("tensorboard",), trials=1, concurrency=1)
    request = SearchRequest("dfrd", plain=True, simulate=Fake, when_done='echo "$FEDTUNE_STATE" > "$FEDTUNE_RUN/said"')
    assert carry_out(Plan(tmp_path / "run", made, space(), {}, (), {}), request).finished
    said = capfd.readouterr().err
    assert said.count("--log tensorboard ends here, the search goes on: ZeroDivisionError") == 1
    assert (tmp_path / "run" / "said").read_text() == "finished\n"
    run_command("exit 3", tmp_path, "failed")
    assert "--when-done: the command ended with exit code 3" in capfd.readouterr().err


def test_what_cannot_be_told_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(**options: Any) -> Plan:
        settings = ["clients=3", "omega=1", "rounds=1", *options.pop("set", ())]
        return plan(SearchRequest("fedavg", dataset=str(write_toy(tmp_path)), set=settings, **options))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "cache"))
    assert asked(set=["log=tensorboard", "when-done=true"]).experiment.log == ("tensorboard",)
    with pytest.raises(UserError, match=r"Unknown tracker 'tensorbord' .*Did you mean 'tensorboard'"):
        asked(log="tensorbord")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--log mlflow needs the package mlflow, which is missing\. Install it: pip"):
        asked(log="tensorboard,mlflow")
