"""One trial as Ray Tune sees it: a round per step. What simulates it is `trainables.simulated_trial`, without Ray;
this file alone knows both. It imports PyTorch only where it simulates."""

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
    from trainables.simulated_trial import HostedTrials
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
    """`config["job"]` is a `Job`. Its results are those of the `HostedTrials` of this process."""

    _hosted: HostedTrials | None = None
    #: What is told with the next result.
    _note: str | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._drop_folder()  # now, as Tune may end the process before it has loaded what simulates
        job: Job = new_config["job"]
        if self._hosted is None:
            from trainables.simulated_trial import HostedTrials

            if job.environment.forks and FORK not in os.environ:
                self._note = (
                    "The process from which Ray's processes fork has ended. Ray starts new ones instead, which take "
                    "longer to begin."
                )
            # (Where no Ray runs, to ask for a machine's name would start one.)
            self._hosted = HostedTrials(ask, ray.get_runtime_context().get_node_id() if ray.is_initialized() else "")
        # Ray leaves every GPU visible to a trial that was granted none, so what torch sees must not decide.
        self._hosted.begin(job, job.gpu_share > 0 and bool(ray.get_gpu_ids()))
        return True

    #: The first trial of a process begins as the later ones do.
    setup = reset_config  # type: ignore[assignment]  # (Tune's two have other names for what they are given.)

    def _drop_folder(self) -> None:
        """Removes the folder that Tune makes for each trial: nothing is written there, unless Ray works in it."""
        with contextlib.suppress(OSError):
            if not os.path.samefile(os.getcwd(), self.logdir):
                os.rmdir(self.logdir)

    def cleanup(self) -> None:
        if self._hosted is not None:
            self._hosted.release()

    def get_auto_filled_metrics(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Nothing: Tune would send the trial's whole request back with every result, and keep it."""
        return {}

    def step(self) -> dict[str, Any]:
        assert self._hosted is not None
        result = self._hosted.step()
        if self._note is not None:
            result["note"], self._note = " ".join(filter(None, (self._note, result.get("note")))), None
        return result
