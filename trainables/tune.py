"""The trials of a process as Ray Tune sees them: a round per step. What simulates one is `trainables.simulated_trial`,
without Ray; this file alone knows both. It imports PyTorch only where it simulates."""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import tune

from search_spaces.errors import UserError, sentence
from search_spaces.metrics import METRICS
from search_spaces.parameter import convert_all
from trainables.worker.environment import FORK

if TYPE_CHECKING:
    from trainables.simulated_trial import SimulatedTrial
    from trainables.worker.job import Job


def resources(config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
    """What Ray is to set aside for the job in `config`."""
    job: Job = config["job"]
    return _set_aside(job.cpus * (1 + len(job.beside)), job.gpu_share, job.gpu_kind)


@functools.cache  # Tune keeps that of every trial
def _set_aside(cpus: float, gpus: float, kind: str | None) -> tune.PlacementGroupFactory:
    gpu = {"GPU": gpus} if gpus > 0 else {}
    of_kind = {} if kind is None else {kind: 0.001}  # what Ray itself asks for where a kind is named
    return tune.PlacementGroupFactory([{"CPU": cpus} | gpu | of_kind])


def federation(
    method: object, *, seeds: Sequence[int] = (0,), data_dir: str | None = None, **fixed: Any
) -> type[tune.Trainable]:
    """A federation of a method as a plain Trainable, for a `tune.Tuner` of one's own with any searcher and scheduler.

        tuner = tune.Tuner(federation("dfrd", dataset="digits"), param_space={"alpha": tune.uniform(0.25, 1.5)}, …)

    `fixed` are values by name (dataset, rounds, clients …), as `--set` takes them; the Tuner's configuration holds the
    others. A step is a round, and its result has every metric of the round, mean over `seeds`; it is done after the
    last round. A dataset may also be arrays (x, y), a DataFrame or a data set of PyTorch, and a model a class. Raises
    `UserError` where a value cannot be used."""
    from trainables import models, own_code, own_metrics, registry
    from trainables.data import objects
    from trainables.simulation.replicates import Replicates
    from trainables.worker import process

    name = registry.named(method)
    if "dataset" in fixed:
        fixed["dataset"] = objects.reference(fixed["dataset"])
    if isinstance(fixed.get("model"), str):
        fixed["model"] = models.named(fixed["model"])
    elif "model" in fixed:
        fixed["model"] = own_code.object_reference(fixed["model"], "model", "class")
    if "own_metrics" in fixed:
        fixed["own_metrics"] = own_metrics.named(str(fixed["own_metrics"]))
    declared = registry.declared(name)
    values = convert_all(declared, fixed)
    code = registry.own_codes(name, values)
    if not seeds:
        raise UserError(sentence("seeds", "at least one whole number", seeds))

    class Federation(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            own_code.given(code)
            granted = self.trial_resources
            process.set_threads(1 if granted is None else max(1, int(granted.required_resources.get("CPU", 1))))
            given = registry.possible(name, values | convert_all(declared, config))
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


def ask(actor: str, what: str, *given: Any) -> Any:
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
    """Simulates `config["job"]`, a `Job`, and the jobs `beside` it as one bundle: they go round by round together, and
    one that has ended leaves the others.

    A result is the first trial's (`SimulatedTrial`), but `done` says whether all have ended; `beside` are the others'
    places (1, 2, …) and results. Of a trial that has ended before there is no more result."""

    #: The trials that have not ended, by their places.
    _going: Mapping[int, SimulatedTrial] = {}
    #: Ray's name for this machine, once the process has begun a job.
    _node: str | None = None
    #: What is told with the next result.
    _note: str | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._drop_folder()  # now, as Tune may end the process before it has loaded what simulates
        from trainables.simulated_trial import SimulatedTrial

        job: Job = new_config["job"]
        if self._node is None:
            self._settle(job.environment.forks)
            # (Where no Ray runs, to ask for a machine's name would start one.)
            self._node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        self.cleanup()
        # Ray leaves every GPU visible to a trial that was granted none, so what torch sees must not decide.
        on_gpu = job.gpu_share > 0 and bool(ray.get_gpu_ids())
        jobs = enumerate((job, *job.beside))
        self._going = {place: SimulatedTrial(own, on_gpu, ask, self._node) for place, own in jobs}
        return True

    #: The first trial of a process begins as the later ones do.
    setup = reset_config  # type: ignore[assignment]  # (Tune's two have other names for what they are given.)

    def _drop_folder(self) -> None:
        """Removes the folder that Tune makes for each trial: nothing is written there, unless Ray works in it."""
        with contextlib.suppress(OSError):
            if not os.path.samefile(os.getcwd(), self.logdir):
                os.rmdir(self.logdir)

    def _settle(self, forks: bool) -> None:
        """Makes a process ready for all its jobs, once what simulates is loaded. forks: whether Ray's processes were to
        be forks."""
        from trainables.worker import memory, process

        memory.keep_memory()
        process.spare_imports()
        if forks and FORK not in os.environ:
            self._note = (
                "The process from which Ray's processes fork has ended. Ray starts new ones instead, which take "
                "longer to begin."
            )

    def cleanup(self) -> None:
        for trial in self._going.values():
            trial.release()

    def get_auto_filled_metrics(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Nothing: Tune would send the trial's whole request back with every result, and keep it."""
        return {}

    def step(self) -> dict[str, Any]:
        from trainables.simulated_trial import bundled_round

        together = bundled_round(self._going)
        found = {place: together.get(place) or trial.step() for place, trial in self._going.items()}
        self._going = {place: trial for place, trial in self._going.items() if not found[place]["done"]}
        if self._going and len(self._going) < len(found):  # a trial that ended has let go of the process's log
            next(iter(self._going.values())).tell_crashes()
        result = found.pop(0, {}) | {"done": not self._going}
        if found:
            result["beside"] = list(found.items())
        if self._note is not None:
            result["note"], self._note = " ".join(filter(None, (self._note, result.get("note")))), None
        return result
