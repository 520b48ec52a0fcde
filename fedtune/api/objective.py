"""`fedtune.objective`: a federation as an objective of Optuna, for a study of one's own."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedtune.options import SearchRequest
from fedtune.planning.objects import spelled
from fedtune.planning.plan import middle_values
from fedtune.planning.preflight import preflight
from fedtune.planning.settings import settled
from search_spaces.errors import UserError, unknown
from search_spaces.metrics import METRICS
from search_spaces.parameter import canonical

if TYPE_CHECKING:
    from optuna import Trial


class Objective:
    """One configuration of a method, trained over its rounds: `study.optimize(objective, n_trials=20)`.

    `space` is what is searched, `values` what is not, `direction` that of the metric, for `optuna.create_study`. After
    every evaluated round the mean over the seeds is reported (`trial.report`), and a trial that the study's pruner
    stops ends there. A configuration that diverges is pruned."""

    def __init__(self, request: SearchRequest, seeds: tuple[int, ...], device: str) -> None:
        from trainables import registry

        asked = dataclasses.replace(request, **spelled(request))
        metric = canonical(asked.metric[0])
        problems: list[str] = []
        if metric not in METRICS:
            problems.append(unknown("metric", metric, METRICS))
        settings = settled(asked, problems)
        self.space, self.method, self.metric, self.seeds = settings.space, asked.method, metric, seeds
        if self.space.vary:
            problems.append(
                f"The space {self.space.name!r} varies {' and '.join(self.space.vary)}; fix one value of each with set."
            )
        if not self.space.search:
            problems.append(f"The space {self.space.name!r} leaves nothing to search.")
        self.device, self.data_dir = device, asked.data_dir
        self.direction = METRICS[metric].direction if metric in METRICS else "maximize"
        if not problems:
            middle = middle_values(self.space.search.values())
            preflight(asked.method, {**settings.values, **middle}, seeds, self.data_dir, problems, (metric,))
        if problems:
            raise UserError(*dict.fromkeys(problems))
        self.values = settings.values
        self._possible = registry.possible

    def __call__(self, trial: Trial) -> float:
        """The metric of the last round, mean over the seeds."""
        import optuna

        from trainables.simulation.replicates import Replicates

        made = self._possible(self.method, {**self.values, **self.space.suggest(trial)})
        simulated = Replicates(self.method, made, self.seeds, device=self.device, data_dir=self.data_dir)
        last: float | None = None
        while simulated.round < simulated.rounds:
            rows = simulated.step()
            if all(self.metric not in row for row in rows):
                continue  # a round that is not evaluated
            found = [value for row in rows if isinstance(value := row.get(self.metric), (int, float))]
            if len(found) < len(self.seeds):
                raise optuna.TrialPruned(f"{self.metric} stopped being a finite number in round {simulated.round}.")
            last = statistics.fmean(found)
            trial.report(last, simulated.round)
            if trial.should_prune():
                raise optuna.TrialPruned
        if last is None:
            raise optuna.TrialPruned(f"{self.metric} was not measured.")
        return last


def objective(
    method: Any,
    *,
    space: Any = "default",
    dataset: Any = None,
    label: str | None = None,
    client: str | None = None,
    model: Any = None,
    rounds: int | None = None,
    seeds: int = 1,
    metric: Any = "val_global_accuracy",
    set: Mapping[str, object] | tuple[str, ...] = (),
    data_dir: str | None = None,
    device: str = "cpu",
) -> Objective:
    """An objective of Optuna: the method's federation over the parameters of `space`, the values of `metric` in
    `seeds` seeds. `dataset`, `model`, `rounds`, `metric` and `set` are those of `fedtune.search`.

    Raises `UserError` with every problem, before anything is trained."""
    request = SearchRequest(
        method,
        space=space,
        dataset=dataset,
        label=label,
        client=client,
        model=model,
        rounds=rounds,
        metric=metric,
        set=set,
        data_dir=data_dir,
    )
    return Objective(request, tuple(range(seeds)), device)
