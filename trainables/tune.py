"""One trial under Ray Tune: a configuration simulated over its seeds, a round per step.

The trial's folder is the truth, not Ray (`trainables.worker.trial_folder`): a trial that starts in a folder with a
checkpoint goes on from there. Its rows are written by `trainables.worker.rounds_jsonl`.

A trial never raises. A configuration that is impossible, raises or diverges ends with `done` and a `stop_reason`; the
process stays alive for the next trial, and Ray's retries are left for processes that really died. Every stop rule is
asked here, after the round it concerns. What is no configuration's fault ends the trial as `interrupted`, to be
resumed: a full disk, data that are gone or changed, other libraries, a machine without the run directory; and so does
memory that does not suffice, to be continued with a larger share of the machine.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import math
import socket
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import ray
from ray import tune

from search_spaces.errors import EnvironmentFault, UserError, sentence
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value, convert_all
from trainables import models, own_code, own_metrics, registry
from trainables.data import objects
from trainables.simulation.replicates import Replicates
from trainables.worker import environment, home, process
from trainables.worker.environment import Environment
from trainables.worker.rounds_jsonl import Damaged, Row
from trainables.worker.trial_folder import TrialFolder
from trainables.worker.trial_values import TrialValues


class StopRule(Protocol):
    """Early stopping: asked after each round with the trial's own values so far (larger is better) by round."""

    def stops(self, round_: int, curve: Mapping[int, tuple[float, ...]]) -> bool:
        """Whether the trial ends here."""

    def may_stop(self, round_: int) -> bool:
        """Whether a trial may end in this round, whatever it measures."""


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
    #: Keep each seed's global model of its best round by the first metric, and the models that are the clients' own.
    keep_models: bool = False
    #: Keep images of every evaluated round (`search_spaces.kept_images`).
    keep_images: bool = False
    #: Share of a GPU, or several GPUs, set aside for this trial; of a part its memory is enforced by torch.
    gpu_share: float = 0.0
    #: The resource of Ray that stands for the kind of GPU that it must be.
    gpu_kind: str | None = None
    #: What the trial is to find where it runs.
    environment: Environment = Environment()
    #: The user's own files that hold its method, model or metrics.
    code: tuple[own_code.Code, ...] = ()
    #: The trial had ended and its rows are damaged, so it is computed again.
    ended: bool = False
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
    #: Spent in rounds, those of earlier sessions included.
    seconds: float = 0.0
    #: Interrupted because its share of memory did not suffice.
    out_of_memory: bool = False
    #: Ray's name for the machine where that happened.
    node: str = ""


def resources(config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
    """What Ray is to set aside for the job in `config`."""
    job: Job = config["job"]
    gpu = {"GPU": job.gpu_share} if job.gpu_share > 0 else {}
    kind = {} if job.gpu_kind is None else {job.gpu_kind: 0.001}  # what Ray itself asks for where a kind is named
    return tune.PlacementGroupFactory([{"CPU": job.cpus} | gpu | kind])


def federation(
    method: object, *, seeds: Sequence[int] = (0,), data_dir: str | None = None, **fixed: Any
) -> type[tune.Trainable]:
    """A federation of a method as a plain Trainable, for a `tune.Tuner` of one's own with any searcher and scheduler.

        tuner = tune.Tuner(federation("dfrd", dataset="digits"), param_space={"alpha": tune.uniform(0.25, 1.5)}, …)

    `fixed` are values by name (dataset, rounds, clients …), as `--set` takes them; the Tuner's configuration holds the
    others. A step is a round, and its result has every metric of the round, mean over `seeds`; it is done after the
    last round. A dataset may also be arrays (x, y), a DataFrame or a data set of PyTorch, and a model a class. Raises
    `UserError` where a value cannot be used."""
    name = registry.named(method)
    if "dataset" in fixed:
        fixed["dataset"] = objects.reference(fixed["dataset"])
    if isinstance(fixed.get("model"), str):
        fixed["model"] = models.named(fixed["model"])
    elif "model" in fixed:
        fixed["model"] = own_code.object_reference(fixed["model"], "model", "class")
    if "own_metrics" in fixed:
        fixed["own_metrics"] = own_metrics.named(str(fixed["own_metrics"]))
    values = convert_all(registry.declared(name), fixed)
    code = registry.own_codes(name, values)
    if not seeds:
        raise UserError(sentence("seeds", "at least one whole number", seeds))

    class Federation(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            own_code.given(code)
            granted = self.trial_resources
            process.set_threads(1 if granted is None else max(1, int(granted.required_resources.get("CPU", 1))))
            given = convert_all(registry.declared(name), {**values, **config})
            # Where no Ray runs nobody has granted a GPU, and to ask for one would start a Ray, or look for one.
            device = "cuda" if ray.is_initialized() and ray.get_gpu_ids() else "cpu"
            if device == "cuda":
                process.use_gpu()
            self.simulated = Replicates(name, given, tuple(seeds), device=device, data_dir=data_dir)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.setup(new_config)
            return True

        def step(self) -> dict[str, Any]:
            rows = self.simulated.step()
            found: dict[str, Any] = {}
            for key, first in rows[0].items():
                if key in METRICS and not isinstance(first, list):
                    of_seeds = [value for row in rows if (value := row.get(key)) is not None]
                    found[key] = statistics.fmean(of_seeds) if len(of_seeds) == len(rows) else math.nan
            done = self.simulated.round >= self.simulated.rounds
            return {**found, "round": self.simulated.round, tune.result.DONE: done}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self.simulated.save(Path(checkpoint_dir) / "federation")

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.simulated.load(Path(checkpoint) / "federation")

    Federation.__name__ = Federation.__qualname__ = name
    return Federation


@functools.lru_cache(1)
def _actor(name: str) -> Any:
    """The actor of this name. Looking for it takes as long as asking it."""
    return ray.get_actor(name)


def _ask(actor: str, what: str, *given: Any) -> Any:
    """What a method of the actor of this name returns. Raises what it raises, and `OSError` where it cannot be
    reached."""
    try:
        return ray.get(getattr(_actor(actor), what).remote(*given))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, (OSError, UserError)):
            raise error.cause from None
        raise OSError(errno.EIO, f"the machine of the run directory failed ({error.cause})") from error
    except (ValueError, ray.exceptions.RayError) as error:
        raise OSError(errno.EHOSTUNREACH, "the machine of the run directory cannot be reached through Ray") from error


class Trial(tune.Trainable):
    """`config["job"]` is a `Job`. A result holds `number`, `round`, `values` (of the job's metrics, or None in a round
    without evaluation), a `note` where there is something to tell and, with `done`, also `ending`."""

    _simulation: Any = None
    _folder: TrialFolder | None = None

    def setup(self, config: dict[str, Any]) -> None:
        process.keep_memory()
        process.spare_imports()
        self._begin(config["job"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self._begin(new_config["job"])
        return True

    def cleanup(self) -> None:
        if self._simulation is None and self._folder is None:
            return  # after its last round already
        self._simulation = None
        process.release()
        if self._folder is not None:
            process.tell_crashes(None)
            self._folder.close()
            self._folder = None

    def step(self) -> dict[str, Any]:
        if self._reason is None:
            with self._guarded():
                self._round()
        result = self._result()
        if result["done"]:
            # An idle process is kept for the next trial, but not its memory, which a neighbour may need, nor its hold
            # on the folder.
            self.cleanup()
        return result

    # -- the trial's life ------------------------------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        self._job = job
        self._reason: str | None = None
        self._error: str | None = None
        self._out_of_memory = False
        self._note: str | None = None
        self._completed = 0
        self._values = TrialValues(job.metrics, job.signs)
        self._seconds = 0.0
        with self._guarded():
            job.environment.check_folder()
            job.environment.check_versions()
            self._folder = self._opened(job)
            process.tell_crashes(self._folder.log)
            process.set_threads(job.threads)
            own_code.given(job.code)
            self._simulation = self._made(job)
            job.environment.check_data(job.values.get("dataset"), self._simulation.partition())
            try:
                rows = self._folder.resume(self._simulation, job.seeds, ended=job.ended)
            except Damaged as why:
                self._note = f"Trial {job.number} starts again from round 0, as {why}."
                self._folder.start_over(why)
                self._simulation = self._made(job)
                rows = self._folder.resume(self._simulation, job.seeds)
            if self._note is None and self._folder.note is not None:
                self._note = f"Trial {job.number} goes on; {self._folder.note}."
            if job.keep_images:
                self._folder.save_images(None, self._simulation.keep_images())
            if self._tests_at_end:
                rows = self._simulation.planned(rows)
                self._folder.rewrite(rows)
            self._take_up(rows)

    def _opened(self, job: Job) -> TrialFolder:
        """The trial's folder, or where this machine does not see it one here that is sent home."""
        there = job.environment
        if there.sees_folder or there.home is None:
            return TrialFolder(Path(job.folder))
        self._note = (
            f"The machine {socket.gethostname()} does not see the run directory; rounds and checkpoints of its trials "
            "are sent home."
        )
        ask = functools.partial(_ask, there.home)
        if "dataset" in job.values and job.simulate is None:
            home.bring(ask, str(job.values["dataset"]), job.data_dir)
        return home.SentFolder(ask, job.folder)

    @property
    def _tests_at_end(self) -> bool:
        """Whether the test set is measured only where the trial may end."""
        return self._job.values.get("eval_test") == "end"

    def _made(self, job: Job) -> Any:
        simulate = Replicates if job.simulate is None else job.simulate
        made = simulate(job.method, job.values, job.seeds, device=self._device(), data_dir=job.data_dir)
        if job.keep_models:
            made.keep_models()
        if self._tests_at_end:
            made.may_end(job.rule.may_stop)
        return made

    def _device(self) -> str:
        # Ray leaves every GPU visible to a trial that was granted none, so what torch sees must not decide.
        if self._job.gpu_share <= 0 or not ray.get_gpu_ids():
            return "cpu"
        process.use_gpu(self._job.gpu_share)
        return "cuda"

    def _take_up(self, rows: Sequence[Row]) -> None:
        """Goes on from the rows of earlier sessions."""
        last: list[Row] = []
        for _, of_round in itertools.groupby(rows, key=lambda row: row["round"]):
            last = list(of_round)
            self._values.add(last)
            self._seconds += sum(row.get("seconds") or 0.0 for row in last)
        self._completed = self._simulation.round
        if self._completed:
            self._decide(last)

    def _round(self) -> None:
        assert self._folder is not None
        started = time.monotonic()
        rows = self._simulation.step()
        self._folder.append(rows)
        self._completed = self._simulation.round
        improved = self._values.add(rows)
        self._decide(rows)
        if improved and self._job.keep_models:
            self._keep_models(self._folder, improved)
        if self._job.keep_images:
            self._folder.save_images(self._completed, self._simulation.images())
        if self._reason == "completed" and self._job.keep_models:
            self._folder.save_confusion(self._simulation.confusion())
        self._folder.save_checkpoint(self._simulation, last=self._reason is not None)
        self._seconds += time.monotonic() - started

    def _decide(self, last: Sequence[Row]) -> None:
        """Whether the trial ends here, from the last round's rows."""
        broken = self._values.broken(last)
        if broken is not None:
            self._reason = "diverged"
            self._error = f"{broken} stopped being a finite number in round {self._completed}."
        elif self._completed >= self._simulation.rounds:
            self._reason = "completed"
        elif self._job.rule.stops(self._completed, self._values.signed):
            self._reason = "scheduler"

    def _keep_models(self, folder: TrialFolder, seeds: Sequence[int]) -> None:
        """Saves the global models of these seeds, where the method has one, and those that are the clients' own."""
        found, personal = self._simulation.models(), self._simulation.personal_models()
        for seed in seeds:
            row = self._values.of_last_round(seed)
            measured = {k: v for k, v in row.items() if isinstance(v, (int, float)) and k not in ("round", "seed")}
            chosen = {"selected_by": self._job.metrics[0], "metrics": measured}
            if seed in found:
                params, card = found[seed]
                folder.save_model(seed, params, card.noting(chosen))
            if of_clients := personal.get(seed):
                noted = {"selected_by": chosen["selected_by"], "kept_in_round": row["round"]}
                folder.save_clients(seed, {c: (params, card.noting(noted)) for c, (params, card) in of_clients.items()})

    # -- what is reported ------------------------------------------------------------------------------------------

    def _result(self) -> dict[str, Any]:
        curve = self._values.curve
        result: dict[str, Any] = {
            "number": self._job.number,
            "round": self._completed,
            "values": curve.get(self._completed),
            "done": self._reason is not None,
        }
        if self._note is not None:
            result["note"], self._note = self._note, None
        if self._reason is not None:
            # (Where no Ray runs, to ask for a machine's name would start one, or wait for one that is gone.)
            asked = self._out_of_memory and ray.is_initialized()
            node = ray.get_runtime_context().get_node_id() if asked else ""
            result["ending"] = Ending(
                self._reason, self._completed, self._error, curve, self._seconds, self._out_of_memory, node
            )
        return result

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns whatever happens inside into a stop reason; what is printed goes to the trial's log."""
        log = self._folder.log if self._folder is not None else io.StringIO()
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            try:
                yield
            except EnvironmentFault as error:
                self._reason, self._error = "interrupted", " ".join(error.problems)
            except UserError as error:
                self._reason, self._error = "error", " ".join(error.problems)
            except OSError as error:
                self._reason, self._error = "interrupted", environment.disk(self._job.folder, error)
                self._out_of_memory = error.errno == errno.ENOMEM
            except Exception as error:
                self._reason, self._error = "error", own_code.told(error)
                if process.is_out_of_memory(error):
                    self._reason, self._out_of_memory = "interrupted", True
                if self._folder is not None:
                    with contextlib.suppress(OSError):
                        traceback.print_exc(file=self._folder.log)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.log.flush()
