"""One trial under Ray Tune: a configuration simulated over its seeds, a round per step.

The trial's folder is the truth, not Ray: rounds are appended to `rounds.jsonl` before the checkpoint that contains them
is swapped in, so after a kill at any moment the checkpoint's round and the rows up to it are whole. A trial that starts
in a folder with a checkpoint goes on from there.

A trial never raises. A configuration that is impossible, raises or diverges ends with `done` and a `stop_reason`; the
process stays alive for the next trial, and Ray's retries are left for processes that really died. Every stop rule is
asked here, after the round it concerns; a full disk ends the trial as `interrupted`, to be resumed, and so does memory
that does not suffice, to be gone on with at a larger share of the machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import itertools
import json
import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import ray
from ray import tune

from search_spaces import files
from search_spaces.errors import UserError
from search_spaces.parameter import Value
from trainables.simulation.replicates import Replicates
from trainables.worker import process
from trainables.worker.files import disk, is_broken, line, locked, means, read_rows

#: Share of the running time that writing checkpoints may take; rounds much faster than a checkpoint are not all saved.
CHECKPOINT_SHARE = 0.05

ROUNDS, CHECKPOINT, PARTITION, LOG = "rounds.jsonl", "checkpoint", "partition.json", "log.txt"

process.without_compiler()


class StopRule(Protocol):
    """Early stopping: asked after each round with the trial's own values so far (larger is better) by round."""

    def stops(self, round_: int, curve: Mapping[int, tuple[float, ...]]) -> bool:
        """Whether the trial ends here."""


@dataclass(frozen=True)
class Job:
    """All a trial needs to know."""

    number: int
    folder: str
    method: str
    values: Mapping[str, Value]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    #: +1 where the metric is maximised, -1 where it is minimised.
    signs: tuple[int, ...]
    rule: StopRule
    threads: int = 1
    #: Cores that are set aside for this trial.
    cpus: float = 1.0
    data_dir: str | None = None
    #: Keep each seed's global model of its best round by the first metric.
    keep_models: bool = False
    #: Share of a GPU, or several GPUs, set aside for this trial; of a part its memory is enforced by torch.
    gpu_share: float = 0.0
    #: What simulates; tests put a cheap stand-in here.
    simulate: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Ending:
    """How a trial ended. (An object of our own, as Ray flattens dictionaries in results.)"""

    #: One of `search_spaces.run_folder.STOP_REASONS`.
    stop_reason: str
    #: Rounds run.
    round: int
    #: One sentence, where something went wrong.
    error: str | None = None
    #: Means over seeds of the job's metrics by round, where measured.
    curve: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    #: Last measured mean over seeds of every metric.
    means: Mapping[str, float] = field(default_factory=dict)
    #: Spent in rounds, those of earlier sessions included.
    seconds: float = 0.0
    #: Interrupted because its share of memory did not suffice.
    out_of_memory: bool = False


def resources(config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
    """What Ray is to set aside for the job in `config`."""
    job: Job = config["job"]
    return tune.PlacementGroupFactory([{"CPU": job.cpus} | ({"GPU": job.gpu_share} if job.gpu_share > 0 else {})])


class Trial(tune.Trainable):
    """`config["job"]` is a `Job`. A result holds `number`, `round`, `values` (of the job's metrics, or None in a round
    without evaluation) and, with `done`, also `ending`."""

    _simulation: Any = None
    _log: io.TextIOBase | None = None

    def setup(self, config: dict[str, Any]) -> None:
        process.keep_memory()
        process.spare_imports()
        self._begin(config["job"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self._begin(new_config["job"])
        return True

    def cleanup(self) -> None:
        if self._simulation is None and self._log is None:
            return  # after its last round already
        self._simulation = None
        process.release()
        if self._log is not None:
            self._log.close()
            self._log = None

    def step(self) -> dict[str, Any]:
        if self._reason is None:
            with self._guarded():
                self._round()
        result = self._result()
        if result["done"]:
            # An idle process is kept for the next trial, but not its memory, which a neighbour may need, nor its hold on the folder.
            self.cleanup()
        return result

    # -- the trial's life ------------------------------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        self._job, self._folder = job, Path(job.folder)
        self._reason: str | None = None
        self._error: str | None = None
        self._out_of_memory = False
        self._completed = 0
        self._rows: list[dict[str, Any]] = []
        # Means over seeds of the job's metrics by round, where all were measured and finite; and so that larger is better.
        self._curve: dict[int, tuple[float, ...]] = {}
        self._signed: dict[int, tuple[float, ...]] = {}
        self._seconds, self._saved_at, self._save_cost = 0.0, time.monotonic(), 0.0
        self._best: dict[int, float] = {}
        with self._guarded():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._log = locked(self._folder / LOG)
            for left in self._folder.glob(".*"):  # what a killed process was writing
                left.unlink()
            process.set_threads(job.threads)
            simulate = Replicates if job.simulate is None else job.simulate
            self._simulation = simulate(job.method, job.values, job.seeds, device=self._device(), data_dir=job.data_dir)
            self._load()

    def _device(self) -> str:
        # Ray leaves every GPU visible to a trial that was granted none, so what torch sees must not decide.
        if self._job.gpu_share <= 0 or not ray.get_gpu_ids():
            return "cpu"
        process.use_gpu(self._job.gpu_share)
        return "cuda"

    def _load(self) -> None:
        """Goes on from the folder's checkpoint, or starts it."""
        checkpoint = self._folder / CHECKPOINT
        rows: list[dict[str, Any]] = []
        if checkpoint.exists():
            self._simulation.load(checkpoint)
            rows = [row for row in read_rows(self._folder / ROUNDS) if row["round"] <= self._simulation.round]
        # Rounds after the checkpoint are run again, to the same numbers; written here they would stand there twice.
        files.replace(self._folder / ROUNDS, "".join(map(line, rows)))
        files.replace(self._folder / PARTITION, json.dumps(self._simulation.partition()))
        last: list[dict[str, Any]] = []
        for _, of_round in itertools.groupby(rows, key=lambda row: row["round"]):
            last = list(of_round)
            self._take(last)
            self._seconds += sum(row.get("seconds") or 0.0 for row in last)
        self._completed = self._simulation.round
        if self._completed:
            self._decide(last)

    def _round(self) -> None:
        started = time.monotonic()
        rows = self._simulation.step()
        with (self._folder / ROUNDS).open("a", encoding="utf-8") as file:
            file.write("".join(map(line, rows)))
        self._completed = self._simulation.round
        improved = self._take(rows)
        self._decide(rows)
        if improved and self._job.keep_models:
            self._keep(improved)
        self._save(time.monotonic() - started)
        self._seconds += time.monotonic() - started

    def _take(self, rows: Sequence[dict[str, Any]]) -> list[int]:
        """Remembers a round's rows, one per seed; the seeds for which it is the best so far (of two equal rounds the first)."""
        self._rows += rows
        job = self._job
        if all(isinstance(row.get(name), (int, float)) and math.isfinite(row[name]) for row in rows for name in job.metrics):
            curve = tuple(math.fsum(row[name] for row in rows) / len(rows) for name in job.metrics)
            self._curve[rows[0]["round"]] = curve
            self._signed[rows[0]["round"]] = tuple(sign * mean for sign, mean in zip(job.signs, curve, strict=True))
        improved = []
        for row in rows:
            value = row.get(job.metrics[0])
            if value is not None and (score := job.signs[0] * value) > self._best.get(row["seed"], -math.inf):
                self._best[row["seed"]] = score
                improved.append(row["seed"])
        return improved

    def _decide(self, last: Sequence[dict[str, Any]]) -> None:
        """Whether the trial ends here, from the last round's rows."""
        broken = sorted({name for row in last for name, value in row.items() if is_broken(name, value, self._job.metrics)})
        if broken:
            self._reason = "diverged"
            self._error = f"{broken[0]} stopped being a finite number in round {self._completed}."
        elif self._completed >= self._simulation.rounds:
            self._reason = "completed"
        elif self._job.rule.stops(self._completed, self._signed):
            self._reason = "scheduler"

    def _save(self, round_seconds: float) -> None:
        due = time.monotonic() - self._saved_at >= self._save_cost / CHECKPOINT_SHARE
        if not due and self._reason is None:
            return
        started = time.monotonic()
        path = self._folder / CHECKPOINT
        with disk(path), files.replacing(path, durable=True) as temporary:
            self._simulation.save(temporary)
            # The rows first: a power cut must not leave a checkpoint without the rounds before it.
            files.sync(self._folder / ROUNDS)
        self._saved_at, self._save_cost = time.monotonic(), time.monotonic() - started

    def _keep(self, seeds: Sequence[int]) -> None:
        from trainables.zoo import save_model

        found = self._simulation.models()
        for seed in seeds:
            if seed in found:
                params, card = found[seed]
                row = next(row for row in reversed(self._rows) if row["seed"] == seed)
                measured = {k: v for k, v in row.items() if isinstance(v, (int, float)) and k not in ("round", "seed")}
                chosen = {"selected_by": self._job.metrics[0], "metrics": measured}
                path = self._folder / f"model-{seed}.safetensors"
                with disk(path):
                    save_model(path, params, dataclasses.replace(card, details={**card.details, **chosen}))

    # -- what is reported ------------------------------------------------------------------------------------------

    def _result(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "number": self._job.number, "round": self._completed, "values": self._curve.get(self._completed), "done": self._reason is not None,
        }
        if self._reason is not None:
            result["ending"] = Ending(self._reason, self._completed, self._error, self._curve, means(self._rows), self._seconds, self._out_of_memory)
        return result

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns whatever happens inside into a stop reason; what is printed goes to the trial's log."""
        log = self._log if self._log is not None else io.StringIO()
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            try:
                yield
            except UserError as error:
                self._reason, self._error = "error", " ".join(error.problems)
            except OSError as error:
                self._reason, self._error = "interrupted", f"{self._folder}: {error.strerror or error}"
                self._out_of_memory = error.errno == errno.ENOMEM
            except Exception as error:
                self._reason, self._error = "error", f"{type(error).__name__}: {error}".splitlines()[0]
                if process.is_out_of_memory(error):
                    self._reason, self._out_of_memory = "interrupted", True
                if self._log is not None:
                    with contextlib.suppress(OSError):
                        traceback.print_exc(file=self._log)
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.flush()
