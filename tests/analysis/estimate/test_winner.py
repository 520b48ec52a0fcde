"""Who wins a search, and what is said of it."""

import dataclasses
import math

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from analysis.estimate import Estimate, ahead, ahead_sentence, estimate, sentences, standing, verdict, winner
from analysis.estimate.coordinates import coordinates, widths
from analysis.estimate.ends import ends_of, tails_of
from analysis.estimate.posterior import Federations, Part, Posterior, posterior
from analysis.estimate.prior import FLAT
from analysis.estimate.winner import missed_target
from search_spaces.metrics import UNREACHED
from tests.trials import frozen_trial

LR = {"lr": FloatDistribution(0.001, 0.1, log=True)}


def trials(*given):
    """Finished trials as a study has them: (lr, value or curve, further attributes)."""
    found = []
    for number, (lr, value, *more) in enumerate(given):
        state = (more or [TrialState.COMPLETE])[0]
        attributes = more[1] if len(more) > 1 else {}
        curve = value if isinstance(value, list) else []
        last = None if state != TrialState.COMPLETE else curve[-1] if curve else value
        found.append(frozen_trial(number, {"lr": lr}, last, state, curve=curve, kinds=LR, **attributes))
    return found


def noisy(rng, count=24):
    """Values that rise towards lr = 0.03 and fall after it, with one that was lucky at the far end."""
    rates = np.geomspace(0.001, 0.1, count)
    values = 0.8 - 0.3 * (np.log10(rates) - math.log10(0.03)) ** 2 + rng.normal(0, 0.02, count)
    values[0] = 0.83
    return [(float(lr), float(v)) for lr, v in zip(rates, values, strict=True)]


def test_the_winner_is_not_the_luckiest():
    given = noisy(np.random.default_rng(0))
    assert max(given, key=lambda g: g[1])[0] == 0.001
    found = estimate(standing(trials(*given), 1.0))
    assert 0.015 < given[found.trial][0] < 0.06
    assert found.low < found.mean < found.high
    assert found.tied[0] == found.trial and found.trial in found.tied
    assert found.configurations == 24


def test_less_is_better_turns_everything():
    given = noisy(np.random.default_rng(0))
    more = estimate(standing(trials(*given), 1.0))
    less = estimate(standing(trials(*[(lr, -v) for lr, v in given]), -1.0))
    assert (less.trial, less.tied, less.settled_by) == (more.trial, more.tied, more.settled_by)
    assert (less.mean, less.low, less.high) == pytest.approx((-more.mean, -more.high, -more.low))


def test_no_estimate_lies_where_no_value_can():
    near = [(0.01, 0.99), (0.02, 0.6), (0.03, 0.995), (0.05, 0.7)]
    free = estimate(standing(trials(*near), 1.0))
    assert free.high > 1, "else this shows nothing"
    held = estimate(standing(trials(*near), 1.0), ends=(0.0, 1.0))
    assert (held.high, held.mean, held.low) == (1.0, min(free.mean, 1.0), free.low)
    # Of a metric that is minimised the ends are the same ones.
    turned = estimate(standing(trials(*[(lr, 1 - v) for lr, v in near]), -1.0), ends=(0.0, 1.0))
    assert turned.low == 0.0 <= turned.mean <= turned.high < 1


def test_two_federations_are_needed():
    assert standing(trials(), 1.0) is None
    assert standing(trials((0.01, 0.5)), 1.0) is None
    assert standing(trials((0.01, 0.5), (0.02, [0.3, 0.4], TrialState.PRUNED)), 1.0) is None
    assert standing(trials((0.01, 0.5), (0.02, 0.6)), 1.0).seeds == (1, 1)


@pytest.mark.parametrize("value", [0.0, 0.5, 29_850_400.0, 1e15])
def test_equal_values_are_their_own_interval(value):
    """As those of bytes are, which no seed moves."""
    found = estimate(standing(trials((0.01, value), (0.02, value), (0.03, value)), -1.0))
    assert (found.mean, found.low, found.high) == pytest.approx((value,) * 3, rel=1e-14, abs=1e-11)
    assert found.tied == (0, 1, 2)


def test_a_stopped_trial_informs_and_never_wins():
    ends = [(0.01, [0.4, 0.5]), (0.02, [0.5, 0.6]), (0.03, [0.5, 0.62])]
    found = standing(trials(*ends, (0.05, [0.9], TrialState.PRUNED)), 1.0)
    assert found.numbers == (0, 1, 2, 3) and found.seeds == (1, 1, 1, 0)
    assert found.belief.mean[3] == found.belief.mean.max()
    assert found.ranking == [2, 1, 0] and found.ranked == [2, 1, 0]
    assert estimate(found).configurations == 3


def test_one_configuration_proposed_twice_is_one_federation_on_the_same_seed():
    once = standing(trials((0.01, 0.5), (0.02, 0.6), (0.03, 0.55)), 1.0)
    twice = standing(trials((0.01, 0.5), (0.02, 0.6), (0.02, 0.6), (0.03, 0.55)), 1.0)
    assert twice.numbers == (0, 1, 3)
    np.testing.assert_array_equal(twice.belief.mean, once.belief.mean)


def test_repetitions_on_other_seeds_belong_to_their_configuration():
    seed = lambda k: [TrialState.COMPLETE, {"seed": k}]  # noqa: E731
    given = [(0.01, 0.5, *seed(0)), (0.02, 0.9, *seed(0)), (0.03, 0.62, *seed(0))]
    given += [(0.02, value, *seed(k)) for k, value in enumerate((0.52, 0.55, 0.5), start=1)]
    given += [(0.03, value, *seed(k)) for k, value in enumerate((0.6, 0.63, 0.61), start=1)]
    found = standing(trials(*given), 1.0)
    assert found.seeds == (1, 4, 4) and found.numbers == (0, 1, 2)


def test_the_model_is_told_which_seed_a_federation_had():
    """One lucky seed: believed as the model says of these very federations, and not as of ones that share a seed."""
    rows = [(0.01, 0.5, 0), (0.02, 0.52, 0), (0.02, 0.91, 1), (0.03, 0.3, 0), (0.03, 0.7, 1)]
    found = standing(trials(*[(lr, v, TrialState.COMPLETE, {"seed": s}) for lr, v, s in rows]), 1.0)
    points = coordinates([({"lr": lr}, LR) for lr in (0.01, 0.02, 0.03)])
    which, value, extra = np.array([0, 1, 1, 2, 2]), np.array([v for _, v, _ in rows]), np.zeros((5, 5))
    seeds = np.array([s for *_, s in rows])
    told, wrong = (
        posterior(Federations(points, which, (s[:, None] == [0, 1]).astype(float), value, extra)).mean
        for s in (seeds, 0 * seeds)
    )
    np.testing.assert_allclose(found.belief.mean, told)
    assert abs(told - wrong).max() > 0.01


def test_of_the_others_those_are_tied_that_may_well_be_better():
    """A configuration with a probability above 5 % of being better than the winner; the best estimate first."""
    rng = np.random.default_rng(5)
    means = {0.001: 0.5, 0.01: 0.9, 0.05: 0.1, 0.1: 0.9}
    given = [
        (lr, mean + 0.02 * rng.standard_normal(), TrialState.COMPLETE, {"seed": seed})
        for seed in range(4)
        for lr, mean in means.items()
    ]
    found = standing(trials(*given), 1.0)
    said, best = estimate(found), found.ranking[0]
    better = {found.numbers[i]: found.belief.better(i, best) for i in found.ranking[1:]}
    assert {0, 2} == {number for number, chance in better.items() if chance <= winner.RISK}
    assert {said.trial, *said.tied} == {1, 3} and said.tied[0] == said.trial and said.configurations == 4


def test_a_configuration_is_named_by_its_first_trial_that_ran_to_its_end():
    stopped = (0.01, [0.4], TrialState.PRUNED, {"seed": 1})
    given = [stopped, (0.02, 0.6), (0.01, 0.5, TrialState.COMPLETE, {"seed": 0}), (0.03, 0.55)]
    assert standing(trials(*given), 1.0).numbers == (2, 1, 3)


def test_configurations_that_are_asked_about_have_a_place_and_no_value():
    found = standing(trials((0.01, 0.5), (0.02, 0.6)), 1.0, candidates=[({"lr": 0.05}, LR)])
    assert found.candidates == (2,) and found.belief.mean.shape == (3,)
    assert found.able == [0, 1] and {part.covariance.shape for part in found.belief.parts} == {(3, 2)}


@pytest.fixture
def told(monkeypatch):
    """What the model is told: federations and a prior for each of its beliefs."""
    seen = []
    monkeypatch.setattr(winner, "posterior", lambda *given: (seen.append(given), posterior(*given))[1])
    return seen


#: Curves of eight rounds that sway from round to round.
SWAYING = [(0.01 * (i + 1), [0.3 + 0.02 * i + 0.03 * (-1) ** (r * (i + 1) // 2) for r in range(8)]) for i in range(4)]


def test_the_model_is_told_what_runs_and_what_is_asked(told):
    """Of trials under way two have one new configuration, and one that of a trial that ended."""
    running = [
        trials(*[(0.1, 0.0)] * n, (lr, [], TrialState.RUNNING))[-1] for n, lr in ((4, 0.06), (5, 0.02), (6, 0.06))
    ]
    found = standing(trials(*SWAYING), 1.0, candidates=[({"lr": 0.09}, LR)], running=running)
    seen = winner._measured(trials(*SWAYING), 1.0, {})
    (federations, _), sway = told[0], ends_of(seen, 1.0, tails_of(seen)).last_round
    assert federations.running == found.running == (4, 1, 4) and found.candidates == (5,)
    np.testing.assert_array_equal(
        federations.points, coordinates([({"lr": lr}, LR) for lr in (0.01, 0.02, 0.03, 0.04, 0.06, 0.09)])
    )
    assert federations.widths == (1,) and federations.asked == 1 and federations.last_round == sway > 0
    standing(trials(*SWAYING), 1.0, candidates=[({"lr": 0.09}, LR)], jointly=True)
    assert told[1][0].asked == 0 and told[1][0].widths == (1,)
    standing(trials(*SWAYING), 1.0)
    assert told[2][0].widths == () and told[2][0].asked == 0 and told[2][0].running == ()


def test_a_last_value_is_that_of_the_last_round_of_a_seed_and_of_the_first_objective(told):
    by_seed = {0: {3: {1: 0.9, 2: 0.4}, 5: {1: 0.8, 2: 0.6}}}
    other = create_trial(values=[0.7, 12.0], params={"lr": 0.02}, distributions=LR, user_attrs={"seed": 3})
    other.number = 1
    standing([*trials((0.01, 0.5)), other], 1.0, by_seed)
    assert sorted(told[0][0].value) == [0.4, 0.6, 0.7]


def test_the_model_reads_160_federations(monkeypatch):
    seen = []
    monkeypatch.setattr(winner, "posterior", lambda found, prior: seen.append(found))
    standing(trials(*[(0.001 + 0.0001 * n, 0.5 + 0.001 * n) for n in range(170)]), 1.0)
    assert len(seen[0].value) == 160 and min(seen[0].value) == pytest.approx(0.51)


def test_what_is_known_from_elsewhere_is_known_of_confirmed_ones_too(told):
    known = dataclasses.replace(FLAT, noises={0.1: 1.0})
    standing(confirmed_trials(), 1.0, prior=known)
    assert [prior for _, prior in told] == [known, known]


def test_the_noise_of_last_rounds_is_a_part_of_what_a_seed_does():
    from scipy.stats import norm

    found = standing(trials(*SWAYING), 1.0)
    belief, said = found.belief, estimate(found)
    assert belief.last_round > 0
    assert said.noise**2 == pytest.approx(belief.own + belief.shared + belief.last_round)
    apart = belief.mean[found.ranking[0]] - belief.mean[found.ranking[1]]
    needed = 2 * (belief.own + belief.last_round) * ((norm.ppf(0.95) + norm.ppf(0.8)) / apart) ** 2
    assert said.settled_by == math.ceil(needed) > 2
    # Far apart two seeds do: a spread needs two.
    far = Posterior([Part(1.0, np.array([0.9, 0.1, 0.1, 0.1]), np.zeros(4), np.zeros((4, 4)), 1e-6, 0.0)], 3)
    assert estimate(dataclasses.replace(found, belief=far)).settled_by == 2


def test_a_quarter_is_of_the_most_rounds_that_a_trial_ran():
    """As where half of the trials of a search were given more rounds."""
    short = [(lr, curve[:4]) for lr, curve in WHOLE[:2]]
    for rounds, unfinished in ((1, []), (2, [4])):
        found = standing(trials(*short, *WHOLE[2:], (0.06, [0.5, 0.55][:rounds], TrialState.RUNNING)), 1.0)
        assert found.unfinished == unfinished


def test_a_gain_is_told_at_the_risk_of_four_looks():
    found = standing(trials(*[(0.01 * (i + 1), 0.5 + 0.001 * (i % 2)) for i in range(8)]), 1.0)
    said = estimate(found, paper=0)
    assert len(said.tied) > 4 and said.gain_level == pytest.approx(1 - 0.1 / 4)


def test_a_configuration_that_failed_on_one_seed_cannot_win():
    given = [(0.01, 0.5), (0.02, 0.9), (0.03, 0.6), (0.02, 0.0, TrialState.FAIL, {"seed": 1})]
    found = standing(trials(*given), 1.0)
    assert found.numbers == (0, 2)


def test_a_stopped_trial_of_several_seeds_is_the_mean_over_these(monkeypatch):
    """Not a federation on one more seed, beside which a seed's shared part would look small."""
    seen = []
    monkeypatch.setattr(winner, "posterior", lambda found, prior: (seen.append(found), posterior(found, prior))[1])
    by_seed = {0: {3: {2: 0.4}, 5: {2: 0.6}}, 1: {3: {2: 0.5}, 5: {2: 0.7}}, 2: {3: {1: 0.1}, 5: {1: 0.3}}}
    given = trials((0.01, [0.2, 0.5]), (0.02, [0.3, 0.6]), (0.03, [0.2], TrialState.PRUNED))
    found = standing(given, 1.0, by_seed)
    assert found.all_seeds == 2 and found.seeds == (2, 2, 0)
    rows = sorted(zip(seen[0].configuration, seen[0].value, *seen[0].shares.T, strict=True))
    assert rows == [
        (0, 0.4, 1, 0),
        (0, 0.6, 0, 1),
        (1, 0.5, 1, 0),
        (1, 0.7, 0, 1),
        (2, pytest.approx(0.2 + 0.3), 0.5, 0.5),  # others gained 0.3 from there
    ]
    alone = standing(given, 1.0)
    assert alone.all_seeds == 1 and seen[1].shares.tolist() == [[1], [1], [1]]


def test_of_more_than_the_model_reads_those_that_ended_are_read_and_the_best_of_the_others(monkeypatch):
    monkeypatch.setattr(winner, "MOST", 5)
    ended = [(0.01, 0.3), (0.02, 0.2), (0.03, 0.4)]
    stopped = [(0.001 * k, [value], TrialState.PRUNED) for k, value in enumerate((0.5, 0.9, 0.1, 0.8), start=4)]
    assert standing(trials(*stopped, *ended), 1.0).numbers == (1, 3, 4, 5, 6)
    assert standing(trials(*stopped, *ended), -1.0).numbers == (0, 2, 4, 5, 6)
    monkeypatch.setattr(winner, "MOST", 2)
    assert standing(trials(*ended), 1.0).numbers == (0, 2)
    assert standing(trials(*ended), -1.0).numbers == (0, 1)


def test_a_stopped_trial_counts_with_its_last_value(monkeypatch):
    seen = []
    monkeypatch.setattr(winner, "ends_of", lambda found, *more: (seen.extend(found), ends_of(found, *more))[1])
    standing(trials((0.01, 0.5), (0.02, 0.6), (0.03, [0.1, 0.4, 0.3], TrialState.PRUNED)), 1.0)
    assert [(m.trial.number, m.value, m.complete) for m in seen] == [(0, 0.5, True), (1, 0.6, True), (2, 0.3, False)]


def test_trials_without_a_seed_have_one_that_no_other_has():
    given = [(0.01, 0.5), (0.02, 0.6), (0.03, 0.4, TrialState.COMPLETE, {"seed": 0})]
    assert standing(trials(*given), 1.0).all_seeds == 2


def test_one_objective_without_its_target_is_enough():
    reached, missed = (
        create_trial(values=[0.5, last], params={"lr": 0.01}, distributions=LR) for last in (0.2, UNREACHED)
    )
    assert missed_target(missed) and not missed_target(reached)


def test_curves_by_seed_are_told_one_by_one():
    last = {0: {0: 0.4, 1: 0.6}, 1: {0: 0.5, 1: 0.7}, 2: {0: 0.3, 1: math.nan}}
    by_seed = {number: {seed: {2: value} for seed, value in mine.items()} for number, mine in last.items()}
    found = standing(trials((0.01, 0.5), (0.02, 0.6), (0.03, 0.3)), 1.0, by_seed)
    assert found.seeds == (2, 2, 1)


def test_seeds_that_settle_are_those_of_a_paired_test():
    """Against the power of that test for a known variance: with so many seeds at least 0.8, with one fewer below."""
    from scipy.stats import norm

    found = standing(trials(*noisy(np.random.default_rng(4))), 1.0)
    said = estimate(found)
    order = sorted(found.able, key=lambda i: -found.belief.mean[i])
    apart = found.belief.mean[order[0]] - found.belief.mean[order[1]]
    power = lambda n: norm.cdf(apart / math.sqrt(2 * found.belief.own / n) - norm.ppf(0.95))  # noqa: E731
    assert power(said.settled_by) >= 0.8 > power(said.settled_by - 1)
    assert said.noise == pytest.approx(math.sqrt(found.belief.own + found.belief.shared))


@pytest.mark.parametrize(("means", "own"), [((0.5, 0.5), 0.01), ((0.6, 0.5), 0.0)], ids=["equal", "no noise"])
def test_no_seeds_settle_what_is_equal_or_certain(means, own):
    found = standing(trials((0.01, 0.6), (0.02, 0.5)), 1.0)
    nothing = np.zeros((2, 2))
    belief = Posterior([Part(1.0, np.array(means), nothing[:, 0], nothing, own, 0.0)], 3)
    assert estimate(dataclasses.replace(found, belief=belief)).settled_by is None


def test_without_parameters_there_are_no_coordinates():
    assert coordinates([({}, {}), ({}, {})]).shape == (2, 0)


def test_a_number_that_cannot_vary_lies_in_the_middle():
    one = FloatDistribution(0.3, 0.3), FloatDistribution(0.3, 0.3, log=True)
    assert [coordinates([({"x": 0.3}, {"x": kind})]).tolist() for kind in one] == [[[0.5]], [[0.5]]]


def test_coordinates():
    distributions = {
        "lr": FloatDistribution(0.001, 0.1, log=True),
        "steps": IntDistribution(0, 10),
        "rule": CategoricalDistribution(["a", "b"]),
    }
    given = [({"lr": 0.01, "steps": 5, "rule": "a"}, distributions), ({"lr": 0.1, "rule": "b"}, distributions)]
    half = math.sqrt(0.5)
    np.testing.assert_allclose(coordinates(given), [[0.5, half, 0, 0.5], [1.0, 0, half, 0.5]])
    assert np.linalg.norm(coordinates(given)[0, 1:3] - coordinates(given)[1, 1:3]) == pytest.approx(1.0)
    assert widths(given) == (1, 2, 1)
    assert widths([({"x": 3}, {"x": CategoricalDistribution([1, 3, 9])})]) == (1,), "listed numbers have one"


SAID = Estimate(
    trial=4, mean=0.76, low=0.7, high=0.81, level=0.9, seeds=3, all_seeds=3, noise=0.05, paired_noise=0.04, spread=0.02,
    tied=(4, 7, 1), configurations=30, settled_by=12,
)  # fmt: skip


ONE = (
    "All trials ran the same seed. How far it favours all of them alike cannot be known from it, and the interval "
    "allows for that by a guess; on another seed they may rank otherwise. More --seeds, or --race, measure both."
)


def test_words():
    first, tied, noise = sentences(SAID, lambda v: f"{v:.2f}")
    assert first == "Estimate of its mean over all seeds: 0.76, 90 % interval 0.70 to 0.81, from 3 seeds."
    assert tied == "3 of 30 configurations, itself included, cannot be told from it."
    assert noise == (
        "The noise of one seed (standard deviation 0.04) is larger than the differences found between configurations "
        "(0.02); about 12 seeds of each would tell the first two apart."
    )


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"tied": (4,)}, "It is told from all 29 others that ran to their end."),
        ({"tied": (4,), "configurations": 3}, "It is told from all 2 others that ran to their end."),
        ({"tied": (4,), "configurations": 2}, "It is told from the only other one that ran to its end."),
        ({"tied": (4,), "all_seeds": 1}, "On that seed it is told from all 29 others that ran to their end."),
        ({"all_seeds": 1, "configurations": 1}, ONE),
        ({"spread": 0.06}, "3 of 30 configurations, itself included, cannot be told from it."),
        ({"spread": 0.04}, "3 of 30 configurations, itself included, cannot be told from it."),
        (
            {"tied": (4, 7), "configurations": 2, "spread": 0.06},
            "2 of 2 configurations, itself included, cannot be told from it.",
        ),
        (
            {"tied": (4, 7), "configurations": 2},
            "The noise of one seed (standard deviation 0.04) is larger than the differences found between "
            "configurations (0.02); about 12 seeds of each would tell the first two apart.",
        ),
        (
            {"tied": (4,), "configurations": 1},
            "Estimate of its mean over all seeds: 0.76, 90 % interval 0.70 to 0.81, from 3 seeds.",
        ),
    ],
)
def test_words_are_only_those_that_hold(changes, last):
    assert sentences(dataclasses.replace(SAID, **changes), lambda v: f"{v:.2f}")[-1] == last


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_winner_is_compared_with_the_papers_values(sign):
    """By how much it is better, whichever direction that is; of a trial that is not known nothing is said."""
    found = standing(trials((0.01, sign * 0.5), (0.02, sign * 0.6), (0.03, sign * 0.55)), sign)
    said, best = estimate(found, paper=2), found.numbers.index(1)
    assert said.trial == 1 and (said.paper, said.gain) == (2, pytest.approx(found.belief.apart(best, 2, 0.9)[0]))
    assert len(said.tied) == 3 and said.gain_level == pytest.approx(1 - 0.1 / 3)
    assert (said.gain_low, said.gain_high) == pytest.approx(found.belief.apart(best, 2, 1 - 0.1 / 3)[1:])
    assert said.gain > 0
    assert estimate(found, paper=1).gain == 0
    for nothing in (estimate(found), estimate(found, paper=7)):
        assert (nothing.paper, nothing.gain, nothing.gain_low, nothing.gain_high) == (None,) * 4


def test_a_gain_is_seldom_claimed_where_there_is_none():
    """Sixteen configurations that are all equal, whose values move by chance: the best of them is above the paper's,
    the first, and that it was chosen for that is paid for. More than 4 are not: neighbours are no choices apart."""
    rng, claims, plain = np.random.default_rng(4), 0, 0
    for _ in range(60):
        rates, values = np.exp(rng.uniform(np.log(0.001), np.log(0.1), 16)), rng.normal(0.7, 0.02, 16)
        found = standing(trials(*zip(rates.tolist(), values.tolist(), strict=True)), 1.0)
        said = estimate(found, paper=0)
        claims += said.better
        plain += said.trial != 0 and found.belief.apart(found.ranking[0], 0, 0.9)[1] > 0
        assert said.gain_level == pytest.approx(1 - 0.1 / min(len(said.tied), 4))
    assert claims <= 6, "one in ten"
    assert plain > claims, "else it shows nothing"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"gain": 0.03, "gain_low": 0.01, "gain_high": 0.05},
            "The winner is better than the paper's values (trial 0) by an estimated 0.03, 90 % interval 0.01 to 0.05.",
        ),
        (
            {"gain": 0.03, "gain_low": -0.01, "gain_high": 0.07},
            "That the winner is better than the paper's values (trial 0) cannot be told: by an estimated 0.03, 90 % "
            "interval -0.01 to 0.07.",
        ),
        (
            {"gain": 0.03, "gain_low": 0.0, "gain_high": 0.06},
            "That the winner is better than the paper's values (trial 0) cannot be told: by an estimated 0.03, 90 % "
            "interval 0.00 to 0.06.",
        ),
        (
            {"trial": 0, "gain": 0.0, "gain_low": 0.0, "gain_high": 0.0},
            "The winner has the paper's values: no other configuration is estimated to be better.",
        ),
    ],
)
def test_whether_a_search_gained_anything_is_said(changes, expected):
    said = sentences(dataclasses.replace(SAID, paper=0, **changes), lambda v: f"{v:.2f}")
    assert said[1] == expected and len(said) == 4
    two = dataclasses.replace(SAID, paper=0, **changes, configurations=2, tied=(4, 7))
    assert sentences(two, lambda v: f"{v:.2f}")[1] == expected
    alone = dataclasses.replace(SAID, paper=0, **changes, configurations=1, tied=(4,))
    assert len(sentences(alone, lambda v: f"{v:.2f}")) == 1, "the paper's values alone are compared with nothing"


def test_what_one_seed_alone_shows_is_said_of_that_seed():
    """The first line of a report and the sentence of the terminal both name the seed's part in a gain."""
    gained = dataclasses.replace(SAID, paper=0, gain=0.03, gain_low=0.01, gain_high=0.05)
    alone = dataclasses.replace(gained, all_seeds=1)
    assert verdict(gained, str) == "Better than the paper's values by 0.03, 90 % interval 0.01 to 0.05"
    assert verdict(alone, str) == "Better than the paper's values by 0.03 on one seed, 90 % interval 0.01 to 0.05"
    paid = dataclasses.replace(gained, gain_level=0.975)
    assert verdict(paid, str) == "Better than the paper's values by 0.03, 97.5 % interval 0.01 to 0.05"
    assert "On that seed the winner is better than the paper's values (trial 0) by an estimated 0.03" in str(
        sentences(alone, str)
    )


def test_many_seeds_are_not_counted():
    said = sentences(dataclasses.replace(SAID, settled_by=54321), lambda v: f"{v:.2f}")[-1]
    assert said.endswith("; more than 1000 seeds of each would tell the first two apart.")
    said = sentences(dataclasses.replace(SAID, settled_by=1000), lambda v: f"{v:.2f}")[-1]
    assert said.endswith("; about 1000 seeds of each would tell the first two apart.")
    said = sentences(dataclasses.replace(SAID, settled_by=None), lambda v: f"{v:.2f}")[-1]
    assert said.endswith("between configurations (0.02).")


def confirmed_trials():
    """Nine configurations on seed 0, and two of them on two further seeds that confirm."""
    rng = np.random.default_rng(8)
    before = [(0.002 * 1.5**i, 0.6 - 0.05 * abs(i - 6) + 0.01 * float(rng.normal())) for i in range(9)]
    further = [(0.002 * 1.5**i, 0.64 + 0.03 * float(rng.normal()), k) for k in (1, 2) for i in (6, 5)]
    first = [(lr, value, TrialState.COMPLETE, {"seed": 0}) for lr, value in before]
    last = [(lr, value, TrialState.COMPLETE, {"seed": k, "confirms": True}) for lr, value, k in further]
    return trials(*first, *last)


@pytest.mark.parametrize("fresh", [None, 3])
def test_a_confirmed_winner_is_believed_by_all_and_by_the_confirmed_alone(fresh):
    """Both alike: the mean is halfway, and below the interval's bounds lie 5 and 95 % of the two mixtures together."""
    from scipy import stats

    given = confirmed_trials()
    found = standing(given, 1.0)
    said = estimate(found, fresh=fresh)
    key = given[said.trial].params
    own = [t for t in given if t.params in ({"lr": 0.002 * 1.5**5}, {"lr": 0.002 * 1.5**6})]
    assert key in [t.params for t in own] and len(own) == 6
    unmarked = [unmarked_trial(t) for t in given]
    two = [standing(unmarked, 1.0), standing([t for t in unmarked if t.params in [o.params for o in own]], 1.0)]
    places = [one.numbers.index(said.trial) for one in two]
    assert said.mean == pytest.approx(np.mean([one.belief.mean[at] for one, at in zip(two, places, strict=True)]))
    for bound, level in ((said.low, 0.05), (said.high, 0.95)):
        below = []
        for one, at in zip(two, places, strict=True):
            for part in one.belief.parts:
                moved = 0.0 if fresh is None else (part.own + part.shared + one.belief.last_round) / fresh
                scale = math.sqrt(part.covariance[at, at] + moved)
                below.append(part.weight * stats.t(one.belief.freedom, part.mean[at], scale).cdf(bound))
        assert sum(below) / 2 == pytest.approx(level, abs=1e-6)
    assert found.ranked == two[0].ranked, "who wins is said by all"
    assert estimate(two[0]).mean != pytest.approx(said.mean, abs=1e-4)


def unmarked_trial(trial):
    """The trial without the mark of a confirmation."""
    seed = trial.user_attrs["seed"]
    return frozen_trial(trial.number, trial.params, trial.value, kinds=trial.distributions, seed=seed)


def test_a_winner_that_was_not_confirmed_is_believed_by_all_alone():
    """As where a search was extended and found a better one."""
    better = trials(
        *[(t.params["lr"], t.value, TrialState.COMPLETE, dict(t.user_attrs)) for t in confirmed_trials()],
        (0.05, 0.95, TrialState.COMPLETE, {"seed": 0}),
    )
    found = standing(better, 1.0)
    said = estimate(found)
    assert better[said.trial].params == {"lr": 0.05} and found.confirmed is not None
    assert said.mean == pytest.approx(found.belief.mean[found.ranking[0]])


#: Four trials of eight rounds that ended between 0.5 and 0.56, all gaining alike.
WHOLE = [(0.01 * (i + 1), [0.1 * r / 2 + 0.02 * i + 0.1 for r in range(1, 9)]) for i in range(4)]


def test_a_trial_that_has_not_ended_is_ahead_from_a_quarter_of_the_rounds_on():
    """It has 0.3 more than the others had there."""
    curve = [0.5, 0.55, 0.6]
    for rounds, leads in ((1, False), (2, True), (3, True)):
        given = trials(*WHOLE, (0.06, curve[:rounds], TrialState.RUNNING))
        found = standing(given, 1.0)
        assert ahead(given, found, 1.0, 8) == (4 if leads else None), rounds
        said = estimate(found)
        assert (said.trial, said.configurations, said.seeds) == ((4, 5, 0) if leads else (3, 4, 1)), rounds
        assert estimate(found.ended).trial == 3 and estimate(found.ended).configurations == 4
    # 0.6 after round 3, and each gained 0.25 from there on; it is as if it had been stopped there.
    stopped = standing(trials(*WHOLE, (0.06, curve, TrialState.PRUNED)), 1.0)
    assert said.mean == pytest.approx(stopped.belief.mean[4]) and 0.7 < said.mean < 0.9
    assert ahead(trials(*WHOLE), standing(trials(*WHOLE), 1.0), 1.0, 8) is None


def test_a_poor_one_is_not_ahead_and_where_less_is_better_the_lower_one_is():
    given = trials(*WHOLE, (0.06, [0.05, 0.1], TrialState.RUNNING))
    assert ahead(given, standing(given, 1.0), 1.0, 8) is None
    assert ahead(given, standing(given, -1.0), -1.0, 8) == 4


def test_a_further_federation_of_a_configuration_that_ended_is_not_ahead_of_it():
    given = trials(*WHOLE, (0.04, [0.6, 0.7], TrialState.RUNNING, {"seed": 7}))
    found = standing(given, 1.0)
    assert found.ranked[0] == 3 and ahead(given, found, 1.0, 8) is None and not found.unfinished


def test_of_one_federation_that_began_twice_the_longer_curve_counts():
    """A trial of the initial design that goes on begins anew; what it had is a part of what it has."""
    began, goes_on = (0.06, [0.5], TrialState.PRUNED), (0.06, [0.5, 0.55, 0.6], TrialState.RUNNING)
    for given in (trials(*WHOLE, began, goes_on), trials(*WHOLE, goes_on, began)):
        found = standing(given, 1.0)
        number = next(t.number for t in given if t.state == TrialState.RUNNING)
        assert ahead(given, found, 1.0, 8) == number == estimate(found).trial
        assert estimate(found).mean == estimate(standing(trials(*WHOLE, goes_on), 1.0)).mean


def test_of_a_configuration_that_was_stopped_on_another_seed_the_federation_that_goes_on_is_ahead():
    stopped, goes_on = (0.06, [0.5], TrialState.PRUNED, {"seed": 1}), (0.06, [0.5, 0.6], TrialState.RUNNING)
    given = trials(*WHOLE, stopped, goes_on)
    assert ahead(given, standing(given, 1.0), 1.0, 8) == 5


def test_before_there_is_a_standing_the_best_last_value_leads():
    one, running = WHOLE[3], TrialState.RUNNING
    assert ahead(trials(), None, 1.0, 8) is None
    assert ahead(trials(one, (0.06, [0.5, 0.6], running)), None, 1.0, 8) == 1
    assert ahead(trials(one, (0.06, [0.5, 0.6], running)), None, 1.0, 9) is None, "less than a quarter of nine"
    assert ahead(trials((0.06, [0.5, 0.6], running)), None, 1.0, 8) is None, "there is no other"
    assert ahead(trials(one, (0.06, [0.5, 0.4], running)), None, 1.0, 8) is None, "the other has 0.56"
    assert ahead(trials(one, (0.06, [0.5, 0.4], running)), None, -1.0, 8) == 1
    assert ahead(trials((0.06, [0.5, 0.4], running), (0.07, [0.5, 0.4], running)), None, 1.0, 8) == 0
    assert ahead(trials(one, (0.06, [0.5, 0.6], TrialState.PRUNED)), None, 1.0, 8) is None, "it was stopped"
    for nothing in ([], [0.5, UNREACHED], [0.5, math.nan]):
        assert ahead(trials(one, (0.06, nothing, running)), None, -1.0, 8) is None


def test_what_is_said_of_it():
    given = trials(*WHOLE, (0.06, [0.5, 0.6], TrialState.RUNNING))
    said = estimate(standing(given, 1.0))
    shown = "{:.3f}".format
    assert ahead_sentence(4, (2, 8), 0.6, None, shown) == (
        "Trial 4, which has not ended, is ahead: 0.600 in round 2 of 8."
    )
    assert ahead_sentence(4, (2, 8), 0.6, said, shown) == (
        "Trial 4, which has not ended, is ahead: 0.600 in round 2 of 8; estimated mean over all seeds at its end "
        f"{said.mean:.3f}, 90 % interval {said.low:.3f} to {said.high:.3f}."
    )
