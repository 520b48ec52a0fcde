"""The partition's part of a spread over seeds: hand-made values, the likelihood integrated by numbers, simulations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from analysis.runs import load_run
from analysis.tables import partitions
from analysis.tables.compare import compare
from analysis.tables.partitions import partition_share
from fedtune.api import run as final
from fedtune.api.search import Result
from tests.analysis import synthetic

CROSSED = {(0, 1): 1.0, (0, 2): 3.0, (1, 1): 11.0, (1, 2): 13.0}


def test_standard_deviations_by_hand() -> None:
    found = partition_share(CROSSED)
    assert found is not None and (found.partitions, found.seeds) == (2, 2)
    assert found.within == pytest.approx(2**0.5)  # both differences are 2
    assert found.whole == pytest.approx(((12**2 + 8**2) / 4) ** 0.5)
    assert 0 < found.low < found.share < found.high < 1 and found.share > 0.8


def integrated(values: Mapping[tuple[int, int], float], steps: int) -> np.ndarray:
    """The weight of each share: the normal density of the values, summed over a fine net of means and scales."""
    places, y = list(values), np.array(list(values.values()))
    middles = (np.arange(steps) + 0.5) / steps
    means, logs = np.linspace(y.mean() - 60, y.mean() + 60, 481), np.linspace(-3, 7, 201)
    weights = np.zeros(steps)
    for i, of_partition in enumerate(middles):
        for of_seed in middles:
            covariance = np.array(
                [
                    [
                        of_partition * (a[0] == b[0])
                        + (1 - of_partition) * ((a == b) * (1 - of_seed) + (a[1] == b[1]) * of_seed)
                        for b in places
                    ]
                    for a in places
                ]
            )
            residuals = y[:, None] - means
            distances = np.einsum("im,im->m", residuals, np.linalg.inv(covariance) @ residuals)
            density = np.exp(-0.5 * distances[:, None] * np.exp(-2 * logs) - len(y) * logs)
            weights[i] += density.sum() / np.sqrt(np.linalg.det(covariance))
    return weights / weights.sum()


@pytest.mark.parametrize(
    "values", [CROSSED, {(0, 1): 1.0, (0, 2): 3.0, (3, 3): 7.0, (4, 4): 2.0, (4, 5): 2.5}], ids=len
)
def test_the_share_is_weighed_by_the_likelihood(
    values: dict[tuple[int, int], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "STEPS", 5)
    _, weights = partitions._weighed(list(values), np.array(list(values.values())))
    np.testing.assert_allclose(weights, integrated(values, 5), rtol=1e-3)


def test_nine_of_ten_intervals_hold_the_share() -> None:
    """Shares are drawn as the model takes them to be before it sees a value: then the interval is exact."""
    rng, held, times = np.random.default_rng(0), 0, 300
    for _ in range(times):
        of_partition, of_seed = rng.uniform(size=2)
        p, s = (np.sqrt(part) * rng.normal(size=3) for part in (of_partition, (1 - of_partition) * of_seed))
        rest = np.sqrt((1 - of_partition) * (1 - of_seed)) * rng.normal(size=(3, 3))
        found = partition_share({(i, j): p[i] + s[j] + rest[i, j] for i in range(3) for j in range(3)})
        assert found is not None
        held += found.low <= of_partition <= found.high
    assert 0.9 - 0.05 < held / times < 0.9 + 0.05


def test_values_that_cannot_tell_are_said_nothing_of() -> None:
    assert partition_share({(0, 1): 1.0, (0, 2): 2.0}) is None  # one partition
    assert partition_share({(1, 1): 1.0, (2, 2): 2.0, (3, 3): 4.0}) is None  # each seed its own
    assert partition_share({(0, 1): 1.0, (1, 1): 2.0}) is None  # one seed
    assert partition_share(dict.fromkeys(CROSSED, 0.5)) is None
    assert partition_share({**CROSSED, (1, 1): float("nan"), (1, 2): float("nan")}) is None


def test_runs_on_several_partitions_are_told_together(tmp_path: Path) -> None:
    """Two runs on a partition each, one whose seeds have their own, and one of another configuration."""

    def run(name: str, shift: float, seed: int = 3, **fixed: float) -> Path:
        return synthetic.write(
            tmp_path / name, keys=(), kind="run", seeds=(5, 6), failures=False, fixed=fixed, shift=shift, seed=seed
        )

    runs = [run("one", 0.0, partition_seed=0), run("two", 0.1, 4, partition_seed=1), run("free", 0.05, 5)]
    other = run("other", 0.0, 6, lr=0.5)
    found = compare([*runs, other], metrics=["global_accuracy"])
    by_run = {entry.run: entry.values for entry in found.entries}
    values = {(place, seed): by_run[name][seed] for name, place in (("one", 0), ("two", 1)) for seed in (5, 6)}
    expected = partition_share(values | {(seed, seed): by_run["free"][seed] for seed in (5, 6)})
    assert expected is not None
    [told] = [note for note in found.notes() if "within a partition" in note]
    assert told.startswith("Global accuracy of dfrd, 4 partitions and 2 seeds: the standard deviation is ")
    assert f"{100 * expected.within:.2f} within a partition and {100 * expected.whole:.2f} over partitions" in told
    assert f"{100 * expected.share:.0f} % of the variance is the partition's" in told
    assert not [note for note in compare([runs[0], other]).notes() if "within a partition" in note]


def test_a_final_run_on_one_partition_says_so(tmp_path: Path) -> None:
    folder = synthetic.write(
        tmp_path / "fixed", keys=(), kind="run", seeds=(5, 6), failures=False, fixed={"partition_seed": 0}
    )
    said = final.report(Result(folder, {}, None, True)).partition
    assert said is not None and said.startswith("All seeds share the partition of partition_seed 0")
    free = synthetic.write(tmp_path / "free", keys=(), kind="run", seeds=(5, 6), failures=False)
    assert final.report(Result(free, {}, None, True)).partition is None
    from analysis.labels import Labels
    from analysis.report.summary import facts

    assert "2 fresh seeds, all on one partition" in facts(load_run(folder), Labels())
    assert "on one partition" not in facts(load_run(free), Labels())
