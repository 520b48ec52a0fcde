"""The model behind a search's estimate, against integrals done by brute force and against its own assumptions."""

import dataclasses

import numpy as np
import pytest
from scipy import integrate, stats
from threadpoolctl import ThreadpoolController

from analysis.estimate import estimate, standing
from analysis.estimate import posterior as module
from analysis.estimate.posterior import UNSTABLE, Federations, Part, Posterior, distances, matern, posterior
from analysis.estimate.prior import FLAT, FLAT_OF_SHARES, LENGTHS, NOISES, SHARED, Prior

POINTS = np.array([[0.0, 0.0], [0.1, 0.2], [0.9, 0.4], [1.0, 1.0]])


def federations(values, configuration, seed, extra=None, points=POINTS):
    guessed = np.zeros((len(values), len(values))) if extra is None else np.array(extra)
    return Federations(points, np.array(configuration), shares(seed), np.array(values, float), guessed)


def shares(seed):
    """Of federations on these seeds."""
    return (np.array(seed)[:, None] == np.unique(seed)).astype(float)


#: The first and the fourth are guesses that err together.
GUESSED = np.zeros((6, 6))
GUESSED[np.ix_([0, 3], [0, 3])] = [[0.03, 0.02], [0.02, 0.03]]
FOUND = federations([0.2, 0.5, 0.4, 0.9, 0.7, 0.6], [0, 1, 1, 2, 3, 3], [0, 0, 1, 0, 0, 1], extra=GUESSED)


def only(length, noise, share):
    """A grid of one point."""
    return Prior({length: 1.0}, {noise: 1.0}, {share: 1.0})


def matern_(distance, length):
    z = np.sqrt(5) * distance / length
    return (1 + z + z**2 / 3) * np.exp(-z)


def covariance(found, length, noise, share, sums=False):
    """Of the federations, in multiples of v, element by element; of `sums` over the two parameters."""
    n, spread = len(found.value), np.std(found.value)
    k = np.empty((n, n))
    for a in range(n):
        for b in range(n):
            i, j = found.configuration[a], found.configuration[b]
            apart = found.points[i] - found.points[j]
            if sums:
                k[a, b] = sum(matern_(abs(one), length) for one in apart) / 2
            else:
                k[a, b] = matern_(np.linalg.norm(apart), length * np.sqrt(2)) if length else float(i == j)
            common = sum(one * other for one, other in zip(found.shares[a], found.shares[b], strict=True))
            k[a, b] += share * max(noise, found.last_round / spread**2) * common
            if i in found.unstable:  # of its mean, and of every federation
                k[a, b] += (i == j) * UNSTABLE + (a == b) * common * UNSTABLE
            k[a, b] += noise * common * (a == b) + found.extra[a, b] / spread**2
    return k


#: The last value is a mean over both seeds.
MEAN = dataclasses.replace(FOUND, shares=np.array([[1, 0], [1, 0], [0, 1], [1, 0], [1, 0], [0.5, 0.5]]))
#: The second configuration has two federations; a last value has more noise than a seed's.
FALLEN = dataclasses.replace(FOUND, unstable=(1, 3), last_round=0.02)
#: Every value is a mean over the same two seeds.
ALIKE = dataclasses.replace(FALLEN, shares=np.full((6, 2), 0.5))


@pytest.mark.parametrize("found", [FOUND, MEAN, FALLEN, ALIKE])
@pytest.mark.parametrize(("length", "noise", "share"), [(0.4, 0.3, 0.3), (0.0, 1.0, 0.0), (0.8, 0.03, 0.6)])
def test_means_are_those_of_a_regression_with_a_vague_mean(length, noise, share, found):
    """μ ~ N(0, 10⁶ v) in place of a flat prior; the t's scale is the generalised least squares' residual."""
    belief = posterior(found, only(length, noise, share))
    k = covariance(found, length, noise, share)
    vague = 1e6
    y, n = found.value, len(found.value)
    prior = matern(distances(POINTS, POINTS), length, POINTS.shape[1]) + np.diag(
        [UNSTABLE * (i in found.unstable) for i in range(len(POINTS))]
    )
    across = prior[:, found.configuration] + vague
    weights = np.linalg.solve(k + vague, np.column_stack([y, across.T]))
    (part,) = belief.parts
    np.testing.assert_allclose(part.mean, across @ weights[:, 0], rtol=1e-4)
    # Generalised least squares by the roots of the inverse: ordinary least squares of whitened rows.
    root = np.linalg.inv(np.linalg.cholesky(k))
    residuals = np.linalg.lstsq(root @ np.ones((n, 1)), root @ y, rcond=None)[1]
    v = float(residuals[0]) / (n - 1)
    expected = v * (prior + vague - across @ weights[:, 1:])
    np.testing.assert_allclose(part.covariance, expected, rtol=2e-3, atol=1e-6)
    assert part.own == pytest.approx(v * noise)
    np.testing.assert_allclose(part.square, np.diag(expected), rtol=2e-3, atol=1e-6)
    assert part.shared == pytest.approx(v * max(noise, found.last_round / np.var(y)) * share)
    assert belief.freedom == n - 1


@pytest.mark.parametrize("found", [FOUND, MEAN, FALLEN])
def test_where_means_may_be_sums_over_parameters_both_kinds_weigh_what_they_explain(found):
    """The weights are the integrals of the likelihood over a flat μ and a flat log v, up to a common factor."""
    length, noise, share = 0.4, 0.3, 0.3
    n, y = len(found.value), (found.value - np.mean(found.value)) / np.std(found.value)
    belief = posterior(dataclasses.replace(found, widths=(1, 1)), only(length, noise, share))
    logs = []
    for part, sums in zip(belief.parts, (False, True), strict=True):
        k = covariance(found, length, noise, share, sums)
        inverse, ones = np.linalg.inv(k), np.ones(n)
        mu = (ones @ inverse @ y) / (ones @ inverse @ ones)
        squares = (y - mu) @ inverse @ (y - mu)
        logs.append(-0.5 * (np.linalg.slogdet(k)[1] + np.log(ones @ inverse @ ones) + (n - 1) * np.log(squares)))
        cross = np.array([[_common(POINTS[m], POINTS[c], length, sums) for c in found.configuration] for m in range(4)])
        cross += UNSTABLE * np.array([[m == c and m in found.unstable for c in found.configuration] for m in range(4)])
        expected = np.mean(found.value) + np.std(found.value) * (mu + cross @ inverse @ (y - mu))
        np.testing.assert_allclose(part.mean, expected, rtol=1e-8)
    weights = np.exp(np.array(logs) - max(logs))
    np.testing.assert_allclose([part.weight for part in belief.parts], weights / weights.sum(), rtol=1e-8)
    assert sum(belief.grid.lengths.values()) == pytest.approx(1.0) and list(belief.grid.lengths) == [length]


def _common(one, other, length, sums):
    if sums:
        return sum(matern_(abs(a - b), length) for a, b in zip(one, other, strict=True)) / 2
    return matern_(np.linalg.norm(one - other), length * np.sqrt(2))


def test_an_option_is_one_parameter_of_a_sum():
    """Of two configurations one differs from the first in a number, the other in an option. Were their values changed
    for each other, so would their means be; not if each option were a parameter."""
    points = np.array([[0.0, 0.5**0.5, 0.0], [1.0, 0.5**0.5, 0.0], [0.0, 0.0, 0.5**0.5]])

    def means(values, widths):
        found = federations(values, [0, 1, 2], [0, 0, 0], points=points)
        return posterior(dataclasses.replace(found, widths=widths), only(0.4, 0.3, 0.0)).mean

    np.testing.assert_allclose(means([0.2, 0.5, 0.9], (1, 2)), means([0.2, 0.9, 0.5], (1, 2))[[0, 2, 1]])
    assert abs(means([0.2, 0.5, 0.9], (1, 1, 1)) - means([0.2, 0.9, 0.5], (1, 1, 1))[[0, 2, 1]]).max() > 1e-3


#: Each federation has a seed of its own.
APART = dataclasses.replace(FOUND, shares=np.eye(6))


@pytest.mark.parametrize("found", [FOUND, MEAN, FALLEN, APART])
@pytest.mark.parametrize(("length", "noise"), [(0.4, 0.3), (0.0, 1.0)])
def test_of_a_share_what_a_seed_does_to_all_alike_has_a_scale_of_its_own(length, noise, found):
    """It is the u that a² is by the v of a regression in which every seed has an effect that may be anything; where a
    seed for each leaves nothing to tell v by, by that of one without such effects."""
    deviation, n = 0.15, len(found.value)
    seeds = found.shares if found is not APART else np.ones((n, 1))
    root = np.linalg.inv(np.linalg.cholesky(covariance(found, length, noise, 0.0)))
    residuals = np.linalg.lstsq(root @ seeds, root @ found.value, rcond=None)[1]
    v = float(residuals[0]) / (n - seeds.shape[1])
    u = deviation**2 / v / max(noise, found.last_round / np.var(found.value))
    (expected,) = posterior(found, only(length, noise, u)).parts
    (part,) = posterior(found, dataclasses.replace(only(length, noise, deviation), absolute=True)).parts
    np.testing.assert_allclose(part.mean, expected.mean, rtol=1e-5)
    np.testing.assert_allclose(part.covariance, expected.covariance, rtol=1e-4, atol=1e-8)
    assert part.shared == pytest.approx(expected.shared, rel=1e-4) and part.own == pytest.approx(expected.own, rel=1e-4)


def test_one_seed_widens_all_means_by_its_deviation_alone():
    """μ and what the only seed does to all cannot be told apart, so no mean moves and every covariance grows by a²."""
    found = dataclasses.replace(FOUND, shares=np.ones((6, 1)))
    (plain,) = posterior(found, only(0.4, 0.3, 0.0)).parts
    (part,) = posterior(found, dataclasses.replace(only(0.4, 0.3, 0.05), absolute=True)).parts
    np.testing.assert_allclose(part.mean, plain.mean, rtol=1e-6)
    np.testing.assert_allclose(part.covariance, plain.covariance + 0.05**2, rtol=1e-5)
    assert part.shared == pytest.approx(0.05**2, rel=1e-5)


def test_values_that_hardly_differ_leave_what_a_seed_does_to_all():
    """It is a million times what else there is, and more; every number is one."""
    found = dataclasses.replace(FOUND, value=0.5 + 1e-9 * FOUND.value, extra=0 * GUESSED, shares=np.ones((6, 1)))
    low, high = posterior(found, FLAT_OF_SHARES).interval(0, 0.9)
    assert low < 0.5 < high and high - low < 1e-3


def test_the_mean_of_two_federations_tells_what_both_tell(monkeypatch):
    """What no configuration explains in the mean is the mean of what it does not in both: the same covariance."""
    grid = only(0.4, 0.3, 4.0)
    rests, construct = [], module._Solved.__init__

    def remembered(self, *given):
        rests.append(given[-1])  # the covariance of what no configuration explains
        construct(self, *given)

    monkeypatch.setattr(module._Solved, "__init__", remembered)
    average = np.array([[0.5, 0.5, 0], [0, 0, 1]])
    posterior(federations([0.2, 0.4, 0.7], [0, 0, 1], [0, 1, 2]), grid)
    posterior(Federations(POINTS, np.array([0, 1]), average, np.array([0.3, 0.7]), np.zeros((2, 2))), grid)
    both, mean = rests
    np.testing.assert_allclose(mean, average @ both @ average.T)


@pytest.mark.parametrize(("long", "noisy"), [(0.5, 0.5), (0.75, 0.2)])
def test_the_weights_are_integrals_of_the_likelihood(long, noisy):
    """Two lengths, two noises: weights against ∫ N(contrasts; 0, vK) dv/v, where contrasts do not know μ, times those
    that they had before; of each value by itself the sum over the other's."""
    prior = Prior({0.0: 1 - long, 0.8: long}, {0.1: 1 - noisy, 1.0: noisy}, {0.3: 1.0})
    belief = posterior(FOUND, prior)
    n = len(FOUND.value)
    contrasts = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1].T
    likelihoods = []
    for length in (0.0, 0.8):
        for noise in (0.1, 1.0):
            k = contrasts @ covariance(FOUND, length, noise, 0.3) @ contrasts.T
            density = lambda u, k=k: stats.multivariate_normal(cov=np.exp(u) * k).pdf(contrasts @ FOUND.value)  # noqa: E731
            before = prior.lengths[length] * prior.noises[noise]
            likelihoods.append(before * integrate.quad(density, -15, 10, limit=400)[0])
    expected = np.array(likelihoods) / sum(likelihoods)
    np.testing.assert_allclose([part.weight for part in belief.parts], expected, rtol=1e-5)
    assert belief.grid.lengths == pytest.approx({0.0: expected[0] + expected[1], 0.8: expected[2] + expected[3]})
    assert belief.grid.noises == pytest.approx({0.1: expected[0] + expected[2], 1.0: expected[1] + expected[3]})
    assert belief.grid.shared == pytest.approx({0.3: 1.0})


def test_parts_that_weigh_next_to_nothing_are_left_out():
    known = np.random.default_rng(0).random((12, 1))
    found = posterior(federations(np.sin(9 * known[:, 0]), range(12), [0] * 12, points=known))
    weights = [part.weight for part in found.parts]
    every = len(LENGTHS) * len(NOISES) * len(SHARED)
    assert len(weights) < every and sum(weights) == pytest.approx(1)
    assert min(weights) >= 1e-3, "after the others have gone every one weighs more than before"


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_an_interval_has_the_unit_of_its_values(unit):
    """As bytes and seconds are far from shares."""
    scaled = dataclasses.replace(FOUND, value=unit * FOUND.value, extra=unit**2 * GUESSED)
    for fresh in (None, 3):
        expected = unit * np.array(posterior(FOUND).interval(2, 0.9, fresh))
        np.testing.assert_allclose(posterior(scaled).interval(2, 0.9, fresh), expected, rtol=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_the_interval_of_one_part_is_that_of_its_t_distribution(level):
    square = np.array([4.0])
    belief = Posterior([Part(1.0, np.array([3.0]), square, square[:, None], 0.5, 0.25)], 4)
    low, high = stats.t.interval(level, 4, loc=3.0, scale=2.0)
    assert belief.interval(0, level) == pytest.approx((low, high), rel=1e-9)
    low, high = stats.t.interval(level, 4, loc=3.0, scale=np.sqrt(4.0 + 0.75 / 3))
    assert belief.interval(0, level, fresh=3) == pytest.approx((low, high), rel=1e-9)


def test_a_difference_of_one_part_is_a_t_distribution_without_what_both_share():
    shared = np.full((2, 2), 50.0) + np.array([[3.0, 1.0], [1.0, 4.0]])
    belief = Posterior([Part(1.0, np.array([3.0, 1.0]), np.diag(shared), shared, 0.5, 0.25)], 4)
    low, high = stats.t.interval(0.9, 4, loc=2.0, scale=np.sqrt(3 + 4 - 2))
    assert belief.apart(0, 1, 0.9) == pytest.approx((2.0, low, high), rel=1e-9)


def test_a_mixture_of_parts_says_what_sampling_it_says():
    belief = posterior(FOUND)
    rng = np.random.default_rng(0)
    drawn = []
    for part in belief.parts:
        count = int(200_000 * part.weight)
        shape = part.covariance + 1e-12 * np.eye(len(POINTS))
        drawn.append(
            stats.multivariate_t(part.mean, shape, df=belief.freedom).rvs(count, random_state=rng).reshape(count, -1)
        )
    samples = np.concatenate(drawn)
    np.testing.assert_allclose(samples.mean(axis=0), belief.mean, atol=0.005)
    np.testing.assert_allclose(samples.var(axis=0), belief.variance, rtol=0.1)
    assert belief.better(2, 3) == pytest.approx((samples[:, 2] > samples[:, 3]).mean(), abs=0.01)
    apart = samples[:, 2] - samples[:, 3]
    said = belief.apart(2, 3, 0.9)
    np.testing.assert_allclose(said, [apart.mean(), *np.quantile(apart, [0.05, 0.95])], atol=0.01)
    np.testing.assert_allclose(belief.apart(3, 2, 0.9), [-said[0], -said[2], -said[1]], atol=1e-9)
    np.testing.assert_allclose(belief.interval(2, 0.9), np.quantile(samples[:, 2], [0.05, 0.95]), atol=0.01)


def test_the_interval_of_fresh_seeds_holds_what_their_noise_moves():
    """A part's variances are multiples of one v, so the mean over three fresh seeds is drawn with the v of the rest."""
    belief, rng, fresh, drawn = posterior(FOUND), np.random.default_rng(0), 3, []
    for part in belief.parts:
        count = int(400_000 * part.weight)
        v = belief.freedom / rng.chisquare(belief.freedom, count)
        true = part.mean[2] + np.sqrt(v * part.covariance[2, 2]) * rng.standard_normal(count)
        noise = rng.standard_normal((fresh, count)) * np.sqrt(part.own)
        noise += rng.standard_normal((fresh, count)) * np.sqrt(part.shared)
        noise += rng.standard_normal((fresh, count)) * np.sqrt(belief.last_round)
        drawn.append(true + np.sqrt(v) * noise.mean(axis=0))
    found = belief.interval(2, 0.9, fresh)
    np.testing.assert_allclose(found, np.quantile(np.concatenate(drawn), [0.05, 0.95]), atol=0.01)
    low, high = belief.interval(2, 0.9)
    assert found[0] < low - 0.02 and high + 0.02 < found[1]


def test_without_a_parameter_all_federations_are_of_one_point() -> None:
    """Its mean is that of the values."""
    found = posterior(
        Federations(np.zeros((1, 0)), np.array([0, 0]), np.eye(2), np.array([0.2, 0.4]), np.zeros((2, 2)))
    )
    assert found.mean == pytest.approx([0.3], abs=1e-9) and found.variance[0] > 0


def test_equal_values_of_a_share_on_one_seed_leave_what_it_does_to_all():
    found = dataclasses.replace(FOUND, value=np.full(6, 0.5), shares=np.ones((6, 1)))
    belief = posterior(found, FLAT_OF_SHARES)
    low, high = belief.interval(0, 0.9)
    t = stats.t(5)
    masses = [t.cdf((high - 0.5) / a) - t.cdf((low - 0.5) / a) for a in FLAT_OF_SHARES.shared]
    assert np.mean(masses) == pytest.approx(0.9) and low + high == pytest.approx(1.0)
    assert belief.apart(0, 2, 0.9) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12), "nothing tells them apart"
    # A fresh seed moves all by as much, on its own.
    assert np.ptp(belief.interval(0, 0.9, 1)) == pytest.approx(2**0.5 * (high - low))
    mean = posterior(dataclasses.replace(found, shares=np.full((6, 4), 0.25)), FLAT_OF_SHARES)
    assert np.ptp(mean.interval(0, 0.9)) == pytest.approx((high - low) / 2), "the mean over four seeds has half of it"
    assert np.ptp(posterior(dataclasses.replace(found, shares=FOUND.shares), FLAT_OF_SHARES).interval(0, 0.9)) < 1e-9


def test_equal_values_are_believed():
    belief = posterior(federations([0.5, 0.5, 0.5], [0, 1, 2], [0, 0, 0]))
    np.testing.assert_array_equal(belief.mean, [0.5] * 4)
    np.testing.assert_array_equal(belief.variance, [0.0] * 4)
    assert belief.interval(0, 0.9) == pytest.approx((0.5, 0.5), abs=1e-6)


def drawn(rng, m=16, seeds=3, noise=0.5, share=0.4):
    """A search as the model assumes it: m configurations on a line, all over the same seeds."""
    points = rng.random((m, 1))
    true = np.linalg.cholesky(
        matern(distances(points, points), 0.4, points.shape[1]) + 1e-9 * np.eye(m)
    ) @ rng.standard_normal(m)
    shift = np.sqrt(noise * share) * rng.standard_normal(seeds)
    configuration, seed = np.repeat(np.arange(m), seeds), np.tile(np.arange(seeds), m)
    own = np.sqrt(noise * (1 - share)) * rng.standard_normal(m * seeds)
    return true, federations(true[configuration] + shift[seed] + own, configuration, seed, points=points)


@pytest.mark.parametrize("seeds", [1, 3])
def test_its_winner_has_no_curse_and_its_intervals_hold(seeds):
    """The highest mean of values is too high; the estimate is not. From one seed, whose part that all configurations
    share cannot be known, the interval may hold more often than it says."""
    rng = np.random.default_rng(1)
    curse, naive, held, n = [], [], 0, 120
    for _ in range(n):
        true, found = drawn(rng, seeds=seeds)
        belief = posterior(found)
        best = int(belief.mean.argmax())
        low, high = belief.interval(best, 0.9)
        held += low <= true[best] <= high
        curse.append(belief.mean[best] - true[best])
        plain = found.value.reshape(-1, seeds).mean(axis=1)
        naive.append(plain.max() - true[int(plain.argmax())])
    assert np.mean(naive) > 0.15
    assert abs(np.mean(curse)) < 3 * np.std(curse) / np.sqrt(n)
    assert stats.binomtest(held, n, 0.9, "less" if seeds == 1 else "two-sided").pvalue > 0.01


@pytest.mark.parametrize("alike", [0.025, 0.075])
def test_intervals_of_accuracies_on_one_seed_are_narrower_and_hold(alike):
    """Configurations differ by 0.1, single ones by 0.05 from seed to seed, and all alike by `alike`."""
    rng = np.random.default_rng(7)
    held, narrow, wide = 0, [], []
    for _ in range(40):
        true, found = drawn(rng, seeds=1, noise=0.25, share=0.0)
        true, value = 0.6 + 0.1 * true, 0.6 + 0.1 * found.value + alike * rng.standard_normal()
        found = dataclasses.replace(found, value=value)
        belief = posterior(found, FLAT_OF_SHARES)
        best = int(belief.mean.argmax())
        low, high = belief.interval(best, 0.9)
        held += low <= true[best] <= high
        narrow.append(high - low)
        wide.append(np.ptp(posterior(found, FLAT).interval(best, 0.9)))
    assert held >= 32, "of forty intervals of 90 %; less is chance once in fifty times"
    assert np.median(narrow) < 0.8 * np.median(wide)


def test_the_noise_of_several_seeds_is_measured():
    rng = np.random.default_rng(2)
    beliefs = [posterior(drawn(rng, m=30, seeds=5)[1]) for _ in range(8)]
    assert np.median([b.own for b in beliefs]) == pytest.approx(0.3, rel=0.2)
    assert np.median([b.shared for b in beliefs]) > 0.05


def test_what_a_seed_does_to_all_alike_does_not_tell_configurations_apart():
    """Configuration 1 has the lucky seed as well as the unlucky one, configuration 0 the unlucky one alone."""
    lucky = np.array([0.0, 0.4])
    true = np.array([0.5, 0.5, 0.3, 0.7])
    configuration, seed = [0, 1, 1, 2, 2, 3, 3], [0, 0, 1, 0, 1, 0, 1]
    noise = np.random.default_rng(3).normal(0, 0.01, 7)
    belief = posterior(federations(true[configuration] + lucky[seed] + noise, configuration, seed))
    assert belief.shared > belief.own
    assert abs(belief.mean[0] - belief.mean[1]) < 0.05
    assert 0.1 < belief.better(0, 1) < 0.9


def test_beside_others_what_is_unknown_of_all_cancels():
    """Against draws from the mixture; and as if μ and the seed's shared part were known."""
    found = posterior(FOUND)
    rng, draws = np.random.default_rng(0), []
    wider = found.freedom / (found.freedom - 2)
    for part in found.parts:
        count = round(400_000 * part.weight)
        draws.append(rng.multivariate_normal(part.mean, wider * part.covariance, count, method="eigh"))
    drawn = np.concatenate(draws)
    np.testing.assert_allclose(
        found.beside([1, 3]), (drawn - drawn[:, [1, 3]].mean(axis=1)[:, None]).var(axis=0), rtol=0.02
    )
    assert found.beside([2])[2] == pytest.approx(0, abs=1e-12)
    one_seed = dataclasses.replace(FOUND, shares=np.ones((6, 1)))
    believed = posterior(one_seed)
    assert (believed.beside(range(4)) < 0.5 * believed.variance).all()


def test_what_runs_moves_no_mean_and_leaves_less_unknown():
    """Against the information form: a value more adds 1/σ² to the precision where it is."""
    grid = only(0.4, 0.3, 0.6)
    plain, beside = posterior(FOUND, grid), posterior(dataclasses.replace(FOUND, running=(1, 3, 3)), grid)
    (before,), (after,) = plain.parts, beside.parts
    extra = after.own + after.shared + module.LEAST * before.square.max()
    values = np.diag([0.0, 1.0, 0.0, 2.0]) / extra
    expected = np.linalg.inv(np.linalg.inv(before.covariance) + values)
    np.testing.assert_allclose(after.covariance, expected, rtol=1e-8)
    np.testing.assert_allclose(after.square, np.diag(expected), rtol=1e-8)
    np.testing.assert_array_equal(after.mean, before.mean)


def test_what_runs_and_has_no_value_yet_tells_of_its_neighbours():
    grid = only(0.4, 0.3, 0.6)
    points = np.vstack([POINTS, [[0.5, 0.5], [0.51, 0.5], [0.0, 1.0]]])
    given = dataclasses.replace(FOUND, points=points, asked=2)
    plain, beside = posterior(given, grid), posterior(dataclasses.replace(given, running=(4,)), grid)
    # Of the asked ones by the information form, where all configurations are among the known ones.
    running = (4, 4, 1)
    (part,) = posterior(dataclasses.replace(given, running=running), grid).parts
    (before,) = posterior(dataclasses.replace(given, asked=0), grid).parts
    extra = before.own + before.shared + module.LEAST * before.square.max()
    values = np.diag([running.count(place) / extra for place in range(7)])
    expected = np.linalg.inv(np.linalg.inv(before.covariance) + values)
    np.testing.assert_allclose(part.covariance, expected[:, :5], rtol=1e-7)
    np.testing.assert_allclose(part.square, np.diag(expected), rtol=1e-7)
    ratio = beside.variance / plain.variance
    assert ratio[4] < 0.6 and ratio[5] < 0.6 < 0.9 < ratio[0] and (ratio <= 1 + 1e-12).all()


def test_what_is_no_covariance_is_refused() -> None:
    """Guards the factor, which LAPACK leaves half done where a variance is negative."""
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        posterior(dataclasses.replace(FOUND, extra=-100.0 * np.eye(6)))


def test_the_model_computes_on_one_thread_and_leaves_the_others_as_they_were() -> None:
    """Guards the bits of a proposal on another number of cores, and the trials' cores."""

    def threads() -> list[int]:
        found = ThreadpoolController().select(user_api="blas").info()
        return [library["num_threads"] for library in found]

    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before = threads()
        within = module.on_one_thread(threads)()
        assert set(within) == {1} and threads() == before and set(before) == {2}
    assert standing.__wrapped__ and estimate.__wrapped__
