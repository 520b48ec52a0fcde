"""What a search may spend, and what proposes and stops its trials: as asked, or as the profile says, or by default."""

from __future__ import annotations

from dataclasses import dataclass

from fedtune.decisions.early_stopping import REDUCTION, SCHEDULERS, default_grace
from fedtune.decisions.optuna_samplers import SAMPLERS, usual
from fedtune.decisions.race import MOST
from fedtune.options import MAX_SEEDS, SearchRequest, own_samplers
from fedtune.planning import checks
from fedtune.planning.conditions import whole_blocks
from fedtune.planning.settings import Settings
from fedtune.record.experiment import search_seeds
from search_spaces.errors import sentence
from search_spaces.space import Space


@dataclass(frozen=True)
class Budget:
    """How many trials, rounds and seeds a search has, and which sampler proposes and which scheduler stops trials."""

    sampler: str
    scheduler: str
    trials: int
    rounds: int
    grace: int
    seeds: tuple[int, ...]
    #: Seed-rounds of a race, 0 where the search is none.
    seed_rounds: int


def budgeted(request: SearchRequest, settings: Settings, metrics: int, problems: list[str]) -> Budget:
    """The budget that the request gives; what it leaves out comes from the space's profile, or else is the default.

    metrics: how many the search selects by."""
    space, profile, where = settings.space, settings.options, f"the space {settings.space.name}"
    sampler = request.sampler or str(profile.get("sampler", usual(metrics) if space.search else "grid"))
    scheduler = request.scheduler or str(profile.get("scheduler", "none" if sampler == "grid" else "asha"))
    if request.sampler is None:
        checks.known("sampler", sampler, (*SAMPLERS, *own_samplers()), problems, where)
    if request.scheduler is None:
        checks.known("scheduler", scheduler, SCHEDULERS, problems, where)
    seeds = int(request.seeds or profile.get("seeds", 1))
    if request.seeds is None and seeds > MAX_SEEDS:
        problems.append(sentence("seeds", f"a whole number in [1, {MAX_SEEDS}]", seeds, where))
    rounds = int(settings.value("rounds"))
    if "rounds" in space.search or "rounds" in space.vary:
        problems.append(
            "rounds cannot be searched or varied, as trials are compared after the same number of rounds. Fix it with "
            "--rounds."
        )
    trials = request.trials or (space.cells() if sampler == "grid" else whole_blocks(space, profile.get("trials")))
    if sampler == "grid" and trials > space.cells():
        problems.append(sentence("trials", f"at most {space.cells()}, the cells of the grid", trials, "--trials"))
    races = request.race if request.race is not None else seeds > 1 and _can_race(request, space, sampler)
    most = min(MOST if races and seeds == 1 else seeds, MAX_SEEDS)
    return Budget(
        sampler,
        scheduler,
        trials,
        rounds,
        default_grace(rounds, REDUCTION),
        search_seeds(request.seed, most),
        trials * rounds * seeds if races else 0,
    )


def _can_race(request: SearchRequest, space: Space, sampler: str) -> bool:
    """Whether a search of several seeds is a race where nothing is said: one metric, under one condition, of which a
    grid wants every seed of every cell."""
    return sampler != "grid" and len(request.metric or space.metric) == 1 and len(space.conditions()) < 2
