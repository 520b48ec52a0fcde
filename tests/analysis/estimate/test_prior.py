"""What earlier searches say of the model's grid."""

import numpy as np
import pytest

from analysis.estimate.posterior import Federations, posterior
from analysis.estimate.prior import ALIKE, FLAT, FLAT_OF_SHARES, LENGTHS, NOISES, SHARED, Prior, flat, learnt


def sure(length, noise, share):
    """A search that knows everything."""
    return Prior({length: 1.0}, {noise: 1.0}, {share: 1.0})


def test_without_a_search_nothing_is_known():
    for found, values in ((FLAT.lengths, LENGTHS), (FLAT.noises, NOISES), (FLAT.shared, SHARED)):
        assert found == pytest.approx(dict.fromkeys(values, 1 / len(values)))
    assert learnt([]).shared == pytest.approx(FLAT.shared, abs=1e-4)


def test_of_a_share_standard_deviations_are_weighed():
    """After one search, by hand (4/3) / 5 and (4/3 + 1) / 5."""
    assert flat("val_global_accuracy") is flat("amp") is FLAT_OF_SHARES and flat("val_global_loss") is FLAT
    assert FLAT_OF_SHARES.shared == pytest.approx(dict.fromkeys(ALIKE, 1 / 3))
    assert (FLAT_OF_SHARES.lengths, FLAT_OF_SHARES.noises) == (FLAT.lengths, FLAT.noises)
    found = learnt([sure(0.2, 0.1, 0.05)], FLAT_OF_SHARES)
    assert found.absolute and not learnt([sure(0.2, 0.1, 1.0)]).absolute
    assert found.shared == pytest.approx({0.025: 4 / 15, 0.05: 7 / 15, 0.1: 4 / 15}, abs=1e-4)


def test_nothing_known_weighs_as_much_as_four_searches():
    """Three searches, two of one mind: by hand (4/3 + 2) / 7, (4/3 + 1) / 7 and (4/3) / 7."""
    found = learnt([sure(0.2, 0.1, 1.0), sure(0.2, 0.1, 1.0), sure(0.4, 3.0, 16.0)])
    assert found.shared == pytest.approx({0.0: 4 / 21, 1.0: 10 / 21, 16.0: 7 / 21}, abs=1e-4)
    assert found.lengths[0.2] == pytest.approx((4 / 5 + 2) / 7, abs=1e-4)
    assert found.noises[0.01] == pytest.approx(4 / 6 / 7, abs=1e-4)
    assert sum(found.noises.values()) == pytest.approx(1, abs=1e-3)


def test_a_value_of_another_grid_keeps_its_weight():
    """A search that an earlier version recorded may know of a value that is no longer tried."""
    found = learnt([sure(0.3, 0.1, 1.0)])
    assert list(found.lengths) == [*LENGTHS, 0.3]
    assert found.lengths[0.3] == pytest.approx(1 / 5) and found.lengths[0.2] == pytest.approx(4 / 5 / 5)


def search(seed, seeds=1, count=12):
    """Federations of smooth means (sd 1), where a seed moves single ones by 0.1 and all alike by 0.1."""
    draw = np.random.default_rng(seed)
    points = draw.random((count, 1))
    value = np.sin(5 * points[:, :1]) * 1.4 + 0.1 * draw.normal(size=(count, seeds)) + 0.1 * draw.normal(size=seeds)
    place, n = np.repeat(np.arange(count), seeds), count * seeds
    return Federations(points, place, np.tile(np.eye(seeds), (count, 1)), value.ravel(), np.zeros((n, n)))


def test_intervals_are_narrower_after_earlier_searches_and_hold():
    """Of searches with one seed, which never says what it does to all alike, after four with two seeds, which do. The
    mean over all seeds is sin(5x) at every point."""
    prior = learnt([posterior(search(seed, 2)).grid for seed in range(4)])
    assert prior.shared[1.0] > prior.shared[16.0]
    flat, after, held = [], [], []
    for number in range(4, 34):
        found = search(number)
        truth = np.sin(5 * found.points[:, 0]) * 1.4
        flat.append(np.ptp(posterior(found).interval(0, 0.9)))
        low, high = posterior(found, prior).interval(0, 0.9)
        after.append(high - low)
        held.append(low <= truth[0] <= high)
    assert np.median(after) < np.median(flat)
    assert np.mean(held) >= 0.8, "of thirty intervals of 90 %; less is chance once in fifty times"
