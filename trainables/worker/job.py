"""What a trial is told and what it tells in the end. Nothing here needs PyTorch or Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from search_spaces.parameter import Value
from trainables.worker.environment import Environment

if TYPE_CHECKING:
    from trainables.own_code import Code


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
    code: tuple[Code, ...] = ()
    #: The trial had ended and its rows are damaged, so it is computed again.
    ended: bool = False
    #: Once it has run all its rounds it may go on with more (`fedtune extend --rounds`), so that its checkpoint stays.
    extendable: bool = False
    #: What simulates; tests put a cheap stand-in here.
    simulate: Callable[..., Any] | None = None
    #: Further trials that the same process simulates, as one bundle with this one. All have the same shares.
    beside: tuple[Job, ...] = ()


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
