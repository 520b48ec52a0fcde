"""Which final runs belong to a search: those that stand beside it and trained one of its configurations.

A final run's experiment holds, under `source`, the exported configuration it began with, and that names the search and
the trial. A folder that is called like the search and holds another one's trials is told by the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.runs.run import Run
from analysis.runs.run_directory import load_run
from analysis.stats import Paired, paired
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.files import read_text


@dataclass(frozen=True)
class FinalRun:
    """A final run, and the trial that stands for the configuration of the search that it trained (`Run.first`)."""

    run: Run
    trial: int

    def over_seeds(self, metric: str) -> dict[int, float]:
        """The metric's last value by fresh seed."""
        return self.run.over_seeds(metric)


def final_runs(search: Run) -> list[FinalRun]:
    """The final runs of a search, by name, as far as a seed of theirs ran to its end. A neighbour that cannot be read
    says nothing about this search and is passed over."""
    found: list[FinalRun] = []
    if search.kind == "run":
        return found
    for folder in sorted(search.path.parent.iterdir()):
        path = folder / run_folder.EXPERIMENT
        try:
            # Reading YAML takes long; a search's own request is told from a final run's without it.
            if not path.is_file() or "kind: run" not in read_text(path):
                continue
            run = load_run(folder)
        except (UserError, OSError, ValueError):
            continue
        trial = _trial(search, run.experiment)
        if run.kind == "run" and run.chosen and trial is not None:
            found.append(FinalRun(run, trial))
    return found


def fresh_gain(search: Run, finals: Sequence[FinalRun]) -> tuple[Paired, str] | None:
    """By how much the winner is better than the paper's values on the fresh seeds that both were trained on, and the
    metric of that, on test data; positive is better. None where one of the two has not been trained, and where they
    are one."""
    by_trial = {final.trial: final for final in reversed(finals)}
    if search.best is None or search.paper is None or search.paper == search.best or len(search.metrics) != 1:
        return None
    if not {search.best, search.paper} <= by_trial.keys():
        return None
    metric = search.metrics[0].removeprefix("val_")
    paper, winner = (by_trial[number].over_seeds(metric) for number in (search.paper, search.best))
    sign = 1.0 if search.maximise else -1.0
    found = paired({s: sign * v for s, v in paper.items()}, {s: sign * v for s, v in winner.items()})
    return (found, metric) if found.n > 1 else None


def _trial(search: Run, experiment: Mapping[str, Any]) -> int | None:
    """The trial of `search` whose exported configuration a final run's `experiment` trained, unchanged; None where it
    trained something else."""
    source = experiment.get("source")
    origin = source.get("provenance") if isinstance(source, Mapping) else None
    if not isinstance(source, Mapping) or not isinstance(origin, Mapping):
        return None
    parameters, trained = source.get("parameters"), experiment.get("values") or {}
    known = {trial.number: trial.params for trial in search.frozen}
    number = origin.get("trial")
    if origin.get("run") != search.name or source.get("method") != search.method or number not in known:
        return None
    if not isinstance(parameters, Mapping) or any(
        trained.get(key, value) != value for key, value in parameters.items()
    ):
        return None
    planned = search.experiment.get("rounds")  # more of them where the search was extended since
    if parameters.get("rounds", planned) != planned:
        return None
    same = all(parameters.get(name.rsplit(".", 1)[-1]) == value for name, value in known[number].items())
    return search.first(int(number)) if same else None
