"""What is known of configurations' true means from noisy federations: the model behind a search's estimate.

For configuration i and seed s, the last round's value is

    y_is = μ + f_i + p_s + e_is + x_is
    f ~ N(0, v K_l),  p_s ~ N(0, v max(ρ, r) u),  e_is ~ N(0, v ρ),  x ~ N(0, v X / d)

and of a configuration that is unstable (`stability`) μ + f_i + c_i + p_s + e_is + h_is + x_is, with c_i and h_is ~
N(0, v c): its mean and its noise have large parts of their own, of which neighbours say nothing.

K_l    Matérn 5/2 over the searched parameters in the unit cube, of length l; the identity for l = 0, where neighbours
       tell nothing of one another. Where proposals are compared (`Federations.widths`), as likely: the mean of one for
       each parameter alone, of length l, so that f is a sum of functions of one parameter each (Duvenaud,
       Nickisch and Rasmussen, Additive Gaussian Processes, 2011). From few values more is learnt of such a sum
ρ      variance of what one seed does to one configuration alone, as a multiple of that between configurations
r      variance of a last value beyond that (`ends`), as a multiple of d
u      variance of what a seed does to all configurations alike (`p_s`), as a multiple of ρ, or of r where that is
       larger: a seed favours all alike in all of their rounds. It cancels where configurations are compared on the same
       seeds; from a single seed it cannot be known, so the grid is the prior. Of a metric that is a share the grid has
       standard deviations a of p_s in its place: p_s ~ N(0, a²), as multiples of the v that l and ρ have where what
       seeds do to all alike may be anything
X      what is added as the values stand for last ones: most where federations were stopped early and these are guesses
       (`ends`); d is the variance of all values, as v is integrated out and everything is in multiples of it

Where only the mean over several seeds is known, that is the mean of their y_is.

l, ρ and u take the values of a small grid, each with the weight that the data give it (their evidence) and that it had
before (`analysis.estimate.prior`); μ and v have
flat priors and are integrated out, which makes every belief a mixture of Student's t distributions with n - 1 degrees
of freedom (Gelman et al., Bayesian Data Analysis, ch. 14; Rasmussen and Williams 2006, ch. 2 and 5). Nothing is
optimised, so nothing depends on where an optimiser starts, and a noise that few values cannot tell widens the interval.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from analysis.estimate.prior import FLAT, Prior

Floats = NDArray[np.float64]
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

#: c: an unstable configuration differs from what its neighbours say as configurations do that are far from each other.
UNSTABLE = 1.0
#: Parts of the mixture with less weight than this are left out.
LEAST = 1e-3
#: What a seed does to all alike, as a multiple of v, may be anything where it is this; it is never taken to be more.
FREE = 1e6


def on_one_thread(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """The same function, which computes with matrices on one thread. These are small, and the cores are the trials':
    with more threads a proposal took four times the processor's time on a busy machine, and it was rounded otherwise on
    another number of cores."""

    @functools.wraps(function)
    def called(*args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        with _algebra().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return called


@functools.cache
def _algebra() -> Any:
    """The libraries that compute with matrices; SciPy has one of its own beside NumPy's."""
    importlib.import_module("scipy.linalg")
    return importlib.import_module("threadpoolctl").ThreadpoolController()


@dataclass(frozen=True)
class Federations:
    """What was measured, a row per value: `configuration` (n,) places in `points`, `shares` (n, s) what each of s seeds
    has in it: 1 for a federation on that seed, 1/k in a mean over k; `value` (n,), `extra` (n, n) the covariance of
    what is wrong of the values beyond a seed's noise (`analysis.estimate.ends`). `points` (m, d): configurations in the
    unit cube, the last `asked` of them without a value; covariances between these are not computed. `unstable`: places
    in `points`, of some with a value. `last_round`: the variance of a last value beyond a seed's noise in these values.
    `running`: places of configurations of which a federation is under way. Its value counts as known already, without
    moving any mean: what is unknown of the others falls. `widths`: how many columns of `points` each parameter has,
    where means may be sums over parameters; empty where they may not."""

    points: Floats
    configuration: NDArray[np.int64]
    shares: Floats
    value: Floats
    extra: Floats
    asked: int = 0
    unstable: tuple[int, ...] = ()
    last_round: float = 0.0
    running: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Part:
    """One l, ρ and u: its weight, the scaled t distribution of all means, and a seed's own and shared variance. `mean`
    and `square` (m,): centres and squared scales.

    Covariances are those with the k configurations that have values, run, or are asked for jointly: `before` (m, k)
    minus the products of what has `fallen`, pairs of matrices (m, r) and (r, k). Of most that are asked for only some
    are needed, so they are computed where they are."""

    weight: float
    mean: Floats
    square: Floats
    before: Floats
    own: float
    shared: float
    fallen: tuple[tuple[Floats, Floats], ...] = ()

    @cached_property
    def covariance(self) -> Floats:
        """(m, k)"""
        return self._less(self.before, [left @ right for left, right in self.fallen])

    def between(self, ones: Sequence[int] | slice, others: Sequence[int]) -> Floats:
        """(n, o): the covariances of these `ones` with these `others`, which are of the k."""
        fallen = [left[ones] @ right[:, others] for left, right in self.fallen]
        return self._less(self.before[ones][:, others], fallen)

    def toward(self, others: Sequence[int]) -> Floats:
        """(m,): the covariances of all with the mean of these `others`."""
        each = np.bincount(others, minlength=self.before.shape[1]) / len(others)
        return self._less(self.before @ each, [left @ (right @ each) for left, right in self.fallen])

    @staticmethod
    def _less(before: Floats, fallen: Sequence[Floats]) -> Floats:
        return before - sum(fallen) if fallen else before


class Posterior:
    """Beliefs about the means over all seeds of m configurations, from n federations. `grid`: what is believed of l, ρ
    and u."""

    def __init__(self, parts: Sequence[Part], freedom: int, last_round: float = 0.0, grid: Prior = FLAT) -> None:
        self.parts, self.freedom, self.last_round, self.grid = parts, freedom, last_round, grid
        self.weights = np.array([part.weight for part in parts])

    @cached_property
    def mean(self) -> Floats:
        """(m,)"""
        found: Floats = self.weights @ np.stack([part.mean for part in self.parts])
        return found

    @cached_property
    def variance(self) -> Floats:
        """(m,) Below three federations that of a t distribution with three degrees of freedom stands for none."""
        return self._mixed([part.mean for part in self.parts], [part.square for part in self.parts])

    def beside(self, others: Sequence[int]) -> Floats:
        """(m,): the variance of each mean minus the mean of these `others`, which have values, in which cancels what is
        unknown of all alike, such as what the only seed does to them."""
        means, scales = [], []
        for part in self.parts:
            with_them = part.toward(others)
            means.append(part.mean - part.mean[others].mean())
            scales.append(part.square - 2 * with_them + with_them[others].mean())
        return self._mixed(means, scales)

    def squared(self, ones: Sequence[int], others: Sequence[int]) -> Floats:
        """(n, o): the expected square of the difference between the mean of each of these `ones` and that of each of
        these `others`, which have values or run."""
        rows, places = list(ones), list(others)
        found: Floats = np.zeros((len(rows), len(places)))
        for part in self.parts:
            apart = part.square[rows, None] + part.square[places] - 2 * part.between(rows, places)
            found += part.weight * (apart + (part.mean[rows, None] - part.mean[places]) ** 2)
        return found

    def of(self, ones: Sequence[int], others: Sequence[int]) -> Posterior:
        """The beliefs about these `ones` alone, and at the last place about the mean of all `others`, each with the
        covariances with all of them. All have values, run, or are asked for `jointly`."""
        rows, places = list(ones), list(others)
        return Posterior(
            [_reduced(part, rows, places) for part in self.parts], self.freedom, self.last_round, self.grid
        )

    def foreseen(self, running: Sequence[int]) -> Posterior:
        """The beliefs after one more value of each of the configurations `running`, which moves no mean."""
        return Posterior([_foreseen(part, running) for part in self.parts], self.freedom, self.last_round, self.grid)

    def _mixed(self, means: Sequence[Floats], scales: Sequence[Floats]) -> Floats:
        """(m,): the variance of a mixture of t distributions, by part their centres and squared scales (m,)."""
        wider = self.freedom / (self.freedom - 2) if self.freedom > 2 else 3.0
        within = np.stack([wider * scale + mean**2 for mean, scale in zip(means, scales, strict=True)])
        found: Floats = np.maximum(self.weights @ within - (self.weights @ np.stack(means)) ** 2, 0.0)
        return found

    @cached_property
    def own(self) -> float:
        """Variance of what a seed does to one configuration alone: the noise of paired comparisons."""
        return float(self.weights @ np.array([part.own for part in self.parts]))

    @cached_property
    def shared(self) -> float:
        """Variance of what a seed does to all configurations alike."""
        return float(self.weights @ np.array([part.shared for part in self.parts]))

    def better(self, one: int, other: int) -> float:
        """The probability that the mean of `one` is above that of `other`."""
        from scipy.special import stdtr  # what `scipy.stats.t.cdf` calls, which takes a hundred times as long

        centre, squares = self._difference(one, other)
        return float(self.weights @ stdtr(self.freedom, centre / np.sqrt(np.maximum(squares, 1e-300))))

    def above(self, one: int, bound: float) -> float:
        """The probability that the mean of `one` is above `bound`."""
        from scipy.special import stdtr

        centre = np.array([part.mean[one] for part in self.parts])
        scale = np.sqrt(np.maximum([part.covariance[one, one] for part in self.parts], 1e-300))
        return float(self.weights @ stdtr(self.freedom, (centre - bound) / scale))

    def interval(self, one: int, level: float, fresh: int | None = None) -> tuple[float, float]:
        """The central interval that holds the mean of `one` over all seeds with probability `level`, or its mean over
        so many `fresh` ones, which those seeds' own noise moves, that of their last rounds included."""
        return averaged([(self, one)], level, fresh)[1]

    def means(self, one: int, fresh: int | None) -> tuple[Floats, Floats]:
        """By part, centre and squared scale of the mean of `one`, over all seeds or as `interval` has it."""
        centre = np.array([part.mean[one] for part in self.parts])
        moved = [0.0 if fresh is None else (part.own + part.shared + self.last_round) / fresh for part in self.parts]
        squares = [part.covariance[one, one] + more for part, more in zip(self.parts, moved, strict=True)]
        return centre, np.array(squares)

    def apart(self, one: int, other: int, level: float) -> tuple[float, float, float]:
        """By how much the mean of `one` is above that of `other`, which have values: what is expected, and the central
        interval that holds it with probability `level`. What a seed does to both alike cancels."""
        centre, squares = self._difference(one, other)
        freedom = np.full(len(self.parts), self.freedom)
        return (float(self.weights @ centre), *_central(self.weights, freedom, centre, squares, level))

    def _difference(self, one: int, other: int) -> tuple[Floats, Floats]:
        """By part, centre and squared scale of the mean of `one` minus that of `other`."""
        centre = np.array([part.mean[one] - part.mean[other] for part in self.parts])
        covariances = (part.covariance for part in self.parts)
        return centre, np.array([c[one, one] + c[other, other] - 2 * c[one, other] for c in covariances])


def averaged(
    beliefs: Sequence[tuple[Posterior, int]], level: float, fresh: int | None = None
) -> tuple[float, tuple[float, float]]:
    """The mean of one configuration, its place in each of several beliefs, where each of them is as credible as the
    others: what is expected, and the central interval as of `Posterior.interval`."""
    found = [belief.means(one, fresh) for belief, one in beliefs]
    weights = np.concatenate([belief.weights for belief, _ in beliefs]) / len(beliefs)
    freedom = np.concatenate([np.full(len(belief.parts), belief.freedom) for belief, _ in beliefs])
    centre, squares = (np.concatenate(several) for several in zip(*found, strict=True))
    return float(weights @ centre), _central(weights, freedom, centre, squares, level)


def _central(weights: Floats, freedom: Floats, centre: Floats, squares: Floats, level: float) -> tuple[float, float]:
    """The central interval of a mixture of t distributions, by part their weights, degrees of freedom, centres and
    squared scales."""
    from scipy.special import stdtr

    scale = np.sqrt(np.maximum(squares, 1e-300))
    least = max(1e-12, 8 * float(np.spacing(np.abs(centre).max())))  # values that are all equal have no scale
    reach = 1 / max(1 - level, 1e-9) * 10 * float(scale.max()) + float(np.ptp(centre)) + least

    def bound(probability: float) -> float:
        # Halved until no float lies between: it rises, and scipy.optimize takes longer to import than this.
        low, high = float(centre.min()) - reach, float(centre.max()) + reach
        while low < (middle := (low + high) / 2) < high:
            over = float(weights @ stdtr(freedom, (middle - centre) / scale)) > probability
            low, high = (low, middle) if over else (middle, high)
        return low

    return bound((1 - level) / 2), bound((1 + level) / 2)


def posterior(found: Federations, prior: Prior = FLAT) -> Posterior:
    """The beliefs after `found`: at least two federations."""
    n, m = len(found.value), len(found.points)
    known = found.points[: m - found.asked]
    centre, spread = float(found.value.mean()), float(found.value.std())
    together = found.shares @ found.shares.T
    same_seeds = np.ptp(together) == 0
    if np.ptp(found.value) == 0:  # (the mean of equal values may differ from them by a rounding)
        # On the same seeds they tell nothing of what these do to all alike.
        unknown = prior.shared if prior.absolute and same_seeds else {0.0: 1.0}
        tied = []
        for deviation, weight in unknown.items():
            between = np.full((m, len(known)), deviation**2 * float(together[0, 0]))
            tied.append(Part(weight, np.full(m, centre), between[:, 0], between, 0.0, deviation**2))
        return Posterior(tied, n - 1, grid=prior)
    y = (found.value - centre) / spread
    alone = np.diag(np.diag(together))
    cliffs = np.zeros(m)
    cliffs[list(found.unstable)] = UNSTABLE
    added = found.extra / spread**2 + alone * cliffs[found.configuration]
    last_round = found.last_round / spread**2
    free = n - int(np.linalg.matrix_rank(found.shares)) if prior.absolute else 0

    single = {noise: noise * alone + added for noise in prior.noises}

    def solver(kernel: _Kernel, noise: float) -> Callable[[float], _Solved]:
        if not same_seeds:
            return lambda shared: _Solved(y, kernel, noise, shared, shared * together + noise * alone + added)
        return partial(_Solved(y, kernel, noise, 0.0, single[noise]).widened, float(together[0, 0]))

    solved, kernels = [], _kernels(found, known, cliffs, prior)
    for kernel in kernels:
        for noise in prior.noises:
            solve, alike = solver(kernel, noise), [max(noise, last_round) * u for u in prior.shared]
            if prior.absolute:
                v = solve(FREE).squares / free if free else solve(0.0).v
                alike = [min((a / spread) ** 2 / v, FREE) for a in prior.shared]
            solved += [solve(shared) for shared in alike]
    kinds = [np.array([kernel.weight for kernel in kernels])]
    kinds += [np.array(list(one.values())) for one in (prior.noises, prior.shared)]
    evidence = np.array([one.evidence for one in solved])
    before = kinds[0][:, None, None] * kinds[1][:, None] * kinds[2]
    weights = (before / before.max()).ravel() * np.exp(evidence - evidence.max())
    grid = _marginal((weights / weights.sum()).reshape(before.shape), [kernel.length for kernel in kernels], prior)
    weights[weights < LEAST * weights.sum()] = 0
    weights /= weights.sum()
    parts = [s.part(float(w), centre, spread, 1 + cliffs) for w, s in zip(weights, solved, strict=True) if w > 0]
    if found.running:
        parts = [_foreseen(part, found.running) for part in parts]
    return Posterior(parts, n - 1, found.last_round, grid)


def _kernels(found: Federations, known: Floats, cliffs: Floats, prior: Prior) -> list[_Kernel]:
    """Those of the grid. `cliffs` (m,): a variance of its own of each mean."""
    together, ends = [distances(found.points, known)], np.cumsum(found.widths)
    each = [slice(end - width, end) for end, width in zip(ends, found.widths, strict=True)]
    alone = [distances(found.points[:, one], known[:, one]) for one in each] if len(each) > 1 else []
    pairs = _Pairs(found.configuration)
    kinds = [(together, pairs.among(together), found.points.shape[1])]
    kinds += [(alone, pairs.among(alone), 1)] if alone else []
    kernels = []
    for length, weight in prior.lengths.items():
        these = kinds if length else kinds[:1]
        for apart, near, parameters in these:
            kernel = partial(matern, length=length, parameters=parameters)
            kernels.append(_Kernel(length, weight / len(these), apart, near, kernel, cliffs, pairs))
    return kernels


class _Pairs:
    """The p pairs of configurations that have values, each once: a kernel is the same either way."""

    def __init__(self, configuration: NDArray[np.int64]) -> None:
        self.configuration, self._places = configuration, np.tril_indices(int(configuration.max()) + 1)
        higher = np.maximum.outer(configuration, configuration)
        #: (n, n): of every two values the pair of their configurations.
        self.of = higher * (higher + 1) // 2 + np.minimum.outer(configuration, configuration)
        self.same = np.flatnonzero(self._places[0] == self._places[1])

    def among(self, apart: Sequence[Floats]) -> list[Floats]:
        """(p,), of matrices (m, k)."""
        return [one[self._places] for one in apart]


@dataclass(frozen=True)
class _Kernel:
    """What the means of m configurations have in common, in multiples of v: a length's, its weight before anything was
    seen, and the distances (m, k) from the first k of them, of which kernels are a mean; `near` (p,): those of `pairs`.
    Most turn out to weigh next to nothing, so what is not between values is computed where it is asked for."""

    length: float
    weight: float
    apart: Sequence[Floats]
    near: Sequence[Floats]
    of: Callable[[Floats], Floats]
    cliffs: Floats
    pairs: _Pairs

    @cached_property
    def here(self) -> Floats:
        """(n, n), between the configurations of the values."""
        same = self.pairs.same
        kernel = self._mean(self.near) if self.length else np.zeros(self.near[0].shape)
        kernel[same] = (kernel[same] if self.length else 1.0) + self.cliffs[: len(same)]
        found: Floats = kernel[self.pairs.of]
        return found

    @cached_property
    def known(self) -> Floats:
        """(k, k)"""
        count = self.apart[0].shape[1]
        return self._mean([one[:count] for one in self.apart]) + np.diag(self.cliffs[:count])

    @cached_property
    def signal(self) -> Floats:
        """(m, k)"""
        others = [one[len(self.known) :] for one in self.apart]
        return np.vstack([self.known, self._mean(others) if self.length else np.zeros_like(others[0])])

    @cached_property
    def cross(self) -> Floats:
        """(m, n), with the configuration of each value."""
        return self.signal[:, self.pairs.configuration]

    def _mean(self, apart: Sequence[Floats]) -> Floats:
        found = self.of(apart[0])
        for one in apart[1:]:
            found += self.of(one)
        return found / len(apart)


def _marginal(weights: Floats, lengths: Sequence[float], prior: Prior) -> Prior:
    """The weights (kernels, ρ, u) of the grid's points, of each value by itself; `lengths` are those of the kernels."""
    of_kernels, of_noises, of_shared = (weights.sum(axis=tuple({0, 1, 2} - {axis})) for axis in range(3))
    known = dict.fromkeys(prior.lengths, 0.0)
    for length, weight in zip(lengths, of_kernels, strict=True):
        known[length] += float(weight)
    noises = dict(zip(prior.noises, map(float, of_noises), strict=True))
    shared = dict(zip(prior.shared, map(float, of_shared), strict=True))
    return Prior(known, noises, shared, prior.absolute)


def _reduced(part: Part, ones: list[int], others: list[int]) -> Part:
    """The part as `Posterior.of` has it."""
    toward = part.toward(others)
    with_them, of_them = toward[ones][:, None], toward[others].mean()
    covariance = np.block([[part.between(ones, ones), with_them], [with_them.T, of_them]])
    mean = np.append(part.mean[ones], part.mean[others].mean())
    square = np.append(part.square[ones], of_them)
    return Part(part.weight, mean, square, covariance, part.own, part.shared)


def _foreseen(part: Part, running: Sequence[int]) -> Part:
    """The part after one more value of each configuration at `running`, a federation of its own seed, that is exactly
    what was expected.

    With B the covariances (m, r) with those that run, B_r its rows of these, d a value's own variance and K = B_r + dI,
    the covariances fall by B K⁻¹ Bᵀ. Of a thousand that run this takes most of a proposal's time, so B K⁻¹ is computed
    only for those that do not run: B_r K⁻¹ = I - d K⁻¹."""
    places = np.array(running)
    beside, noise = part.between(slice(None), running), part.own + part.shared + LEAST * part.square.max()
    others = np.flatnonzero(np.bincount(places, minlength=len(beside)) == 0)
    inverse = _inverse(beside[places] + noise * np.eye(len(places)))
    explained, square = np.empty_like(beside), np.empty_like(part.square)
    explained[others] = beside[others] @ inverse
    explained[places] = np.eye(len(places)) - noise * inverse
    square[others] = np.maximum(part.square[others] - (beside[others] * explained[others]).sum(axis=1), 0.0)
    square[places] = noise * explained[places, range(len(places))]
    fallen = explained, beside[: part.before.shape[1]].T
    return dataclasses.replace(part, square=square, fallen=(*part.fallen, fallen))


def _inverse(matrix: Floats) -> Floats:
    """Of a matrix that is symmetric and positive definite."""
    from scipy.linalg.lapack import dpotrf, dpotri

    lower, _ = dpotri(dpotrf(matrix, lower=True)[0], lower=True)
    found: Floats = np.tril(lower) + np.tril(lower, -1).T
    return found


class _Solved:
    """One l, ρ and u, solved in units of `spread` from `centre`: the logarithm of its evidence at once, the rest where
    it is asked for, as most of the grid has next to no weight.

    y: (n,); in multiples of v: noise and shared, a seed's variances, rest (n, n), all that there is in y beside
    what the kernel knows."""

    def __init__(self, y: Floats, kernel: _Kernel, noise: float, shared: float, rest: Floats) -> None:
        from scipy.linalg.lapack import dpotrf, dpotrs

        n = len(y)
        self._kernel, self._noise, self._shared, self._wider = kernel, noise, shared, 0.0
        # It is symmetric: turned over it lies as LAPACK wants it, and is not copied.
        self._factor, broken = dpotrf((kernel.here + rest).T, lower=True, clean=False, overwrite_a=True)
        if broken:
            raise np.linalg.LinAlgError("the covariance of the values is not positive definite")
        both, _ = dpotrs(self._factor, np.column_stack([y, np.ones(n)]), lower=True)
        self._ones, self._total = both[:, 1], float(both[:, 1].sum())
        self._mu = float(both[:, 0].sum()) / self._total
        self._residual = both[:, 0] - self._mu * self._ones
        self.squares = max(float(y @ self._residual), 1e-12)
        self.v = self.squares / (n - 1)
        self.evidence = float(
            -np.log(np.diag(self._factor)).sum() - 0.5 * np.log(self._total) - 0.5 * (n - 1) * np.log(self.squares)
        )

    def widened(self, together: float, shared: float) -> _Solved:
        """This one, for no `shared`, as it is for one, where every two values have their seeds `together` to the same
        extent. What these do to all alike is then as unknown as μ: it tells against no kernel, moves no mean, and is
        in every covariance."""
        found = copy.copy(self)
        found._shared, found._wider = shared, shared * together
        return found

    def part(self, weight: float, centre: float, spread: float, prior: Floats) -> Part:
        """The scaled t distribution's centres, squared scales and covariances, and the noise. prior: (m,), the variance
        of every mean before anything was seen, in multiples of v."""
        from scipy.linalg.lapack import dtrtrs

        cross, known = self._kernel.cross, len(self._kernel.known)
        half, _ = dtrtrs(self._factor, cross.T, lower=True)
        off = 1 - cross @ self._ones
        unit = spread**2 * self.v
        square = unit * (prior - np.einsum("mn,mn->m", half.T, half.T) + off**2 / self._total + self._wider)
        mean = centre + spread * (self._mu + cross @ self._residual)
        fallen = (half.T, unit * half[:, :known]), (off[:, None], -unit / self._total * off[None, :known])
        before = unit * (self._kernel.signal + self._wider)
        return Part(weight, mean, square, before, unit * self._noise, unit * self._shared, fallen)


def distances(points: Floats, others: Floats) -> Floats:
    """(m, k): those between `points` (m, d) and `others` (k, d)."""
    if points.shape[1] == 1:
        return np.abs(points - others.T)
    found: Floats = np.sqrt(((points[:, None] - others) ** 2).sum(-1))
    return found


def matern(apart: Floats, length: float, parameters: int) -> Floats:
    """(m, k): the Matérn 5/2 kernel of variance 1 at these distances from the first of m points in the unit cube of so
    many `parameters`, d; `length` is a multiple of √d. 0: identity. Or (p,), at distances one by one, but not of 0."""
    if length == 0:
        return np.eye(*apart.shape)
    z = np.sqrt(5.0) * apart / (length * np.sqrt(max(parameters, 1)))  # without a parameter all are one point
    found: Floats = 1 + z
    square = z * z
    square /= 3  # in place: a hundred such matrices are computed for a proposal
    found += square
    np.exp(np.negative(z, out=z), out=z)
    found *= z
    return found
