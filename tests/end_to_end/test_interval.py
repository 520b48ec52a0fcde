"""What a search says of its winner, held against what the winner does on fresh seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedtune

#: Searches, and fresh seeds for the winner of each.
SEARCHES, SEEDS = 6, 10


@pytest.mark.nightly
def test_the_intervals_of_searches_hold_the_mean_over_fresh_seeds(tmp_path: Path) -> None:
    """Replays say how often an interval holds; this is the same by the commands of a user, one after the other. Each of
    these intervals misses with a probability of a tenth, so three of six do with one of a sixtieth."""
    held, apart = 0, []
    for seed in range(SEARCHES):
        found = fedtune.search(
            "fedavg",
            set={"clients": 5, "local_steps": 5},
            trials=20,
            rounds=4,
            seed=seed,
            metric=("test_global_accuracy",),
            name=tmp_path / f"search-{seed}",
            quiet=True,
        )
        assert found.best is not None and found.best.estimate is not None
        said = found.best.estimate
        final = fedtune.run(found.folder, seeds=SEEDS, name=tmp_path / f"final-{seed}", quiet=True)
        fresh = final.metrics["global_accuracy"].mean
        held += said.low <= fresh <= said.high
        apart.append(said.mean - fresh)
    assert held >= SEARCHES - 2, apart
    assert abs(sum(apart)) / SEARCHES < 0.05, apart  # a winner's curse of the values as they were measured is larger
