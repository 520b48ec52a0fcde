"""Curves of any configuration of a continuous space: a model of recorded ones, with seed noise as it was measured.

For a configuration x, a seed s and the validation and test values of all rounds in one vector,

    y(x, s) = m(x) + σ(x) · (p_s + q_{x,s}),    p_s ~ N(0, P),  q_{x,s} ~ N(0, Q)

m    mean curve
σ    size of one seed's noise
p_s  the part of a seed's noise that all configurations share, which is what makes paired comparisons worth while
q    the part that is the configuration's own

P and Q are the measured covariances over rounds, and between validation and test. Where all recorded values lie in
[0, 1], as accuracies do, y is cut off there. So the mean of a configuration over all seeds is known exactly: m(x), or
the mean of a normal value around m(x) that is cut off at 0 and 1. There are as many seeds as are asked for.

What lies between recorded configurations nobody knows, so there are three worlds (`WORLDS`), and a search that is good
in one of them alone is good by what that world takes for granted:

    gaussian   m and log σ are Gaussian processes (scikit-learn, Matérn 5/2, a length per parameter, noise of its own),
               m of the first principal components of the recorded mean curves. It is smooth, as the model of `ei` is
    trees      m, log σ and the probability to diverge are those of a random forest (scikit-learn): steps and cliffs
    nearest    all three are those of the nearest recorded configuration

In the latter two a federation that diverged is one: x diverges with a probability of its own, in a round in which a
recorded federation did, and its mean counts with the worst value of the table then. Recorded means are drawn towards
their common mean by as much as the noise of so few seeds asks for (`shrunk`). In the Gaussian world, in which searchers
of other packages were replayed, a diverged federation has the worst value from that round on, and what is taken off
recorded means is the process's own noise.

`Fit` says how well m tells the means of configurations that it has not seen, and how large the noise is. (Curves and
noise on the scale of log(y / (1 - y)), which needs no cut, are no better: on configurations left out they err by 5.8
points on `mixed` and 12.4 on `dfrd_full`, where these err by 5.3 and 12.5.)

Not every configuration need have every seed: means are then those of least squares over configurations and seeds, so
that a kind seed favours nobody.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from analysis.curve_table import CurveTable
from benchmarks.replay.searcher import Floats
from benchmarks.replay.table import complete
from benchmarks.tables.points import coordinates, from_unit, to_unit
from search_spaces.errors import UserError
from search_spaces.parameter import Value

#: Principal components of mean curves.
COMPONENTS = 4
#: Parts into which configurations are divided to measure the fit, each left out once.
FOLDS = 8
#: Seeds that a search may use; more than any does.
SEEDS = 1000
#: Points among which the best configuration is looked for, and rounds of looking around it.
CANDIDATES, AROUND = 4096, 30
#: Of a forest.
TREES = 100
#: Digits after the point of what a forest is made of.
DIGITS = 9
#: A model needs so many configurations, and two of them with two seeds each to tell the noise of one.
FEWEST = 5


@dataclass(frozen=True)
class Fit:
    """Of the last round's validation metric, on configurations left out: root mean square error, share of the variance
    explained, rank correlation; the standard deviation of one seed (median over configurations, and that of the better
    half), the share of its variance that configurations have in common, and its correlation between the middle round
    and the last."""

    error: float
    explained: float
    rank: float
    noise: float
    noise_of_better: float
    paired: float
    correlation: float


@dataclass(frozen=True)
class Noise:
    """`sigma`: (configurations,); `shared` and `own`: covariances (2R, 2R) of p and q."""

    sigma: Floats
    shared: Floats
    own: Floats


def check_seeds(table: CurveTable, curves: Floats) -> None:
    """Raises `UserError` where the federations that ran to their end (`curves`, NaN where there is none) do not tell
    how much one seed moves a value."""
    counts = (~np.isnan(curves[:, :, -1])).sum(axis=1)
    if len(counts) < FEWEST or (counts > 1).sum() < 2:
        raise UserError(
            f"A table to replay must have {FEWEST} configurations that ran to their end, two of them on two seeds or "
            f"more, got {len(counts)} and {(counts > 1).sum()} ({table.card['name']}): from one seed it cannot be told "
            "how much a seed moves a value, nor how far a winner lies from the best. Add runs of other seeds, as in "
            "`fedtune export RUN OTHER --table FILE`."
        )


def means_of(curves: Floats) -> Floats:
    """(configurations, 2R): the mean over all seeds of each configuration, by least squares over y_cs = m_c + p_s where
    some federations are not there (NaN)."""
    there = ~np.isnan(curves).any(axis=2)
    if there.all():
        found: Floats = curves.mean(axis=1)
        return found
    c, s, _ = curves.shape
    places, seeds = np.nonzero(there)
    design = np.zeros((len(places), c + s))
    design[np.arange(len(places)), places] = design[np.arange(len(places)), c + seeds] = 1.0
    solved = np.linalg.lstsq(design, curves[there])[0]
    adjusted: Floats = solved[:c] + solved[c:].mean(axis=0)
    return adjusted


def measure_noise(curves: Floats) -> Noise:
    """The parts of the noise of `curves` (configurations, seeds, 2R), NaN where there is no federation, by the moments
    of a two-way layout. A configuration with one federation has the median of the others' sizes."""
    c, s, values = curves.shape
    there = ~np.isnan(curves).any(axis=2)
    counts = there.sum(axis=1)
    apart = curves - means_of(curves)[:, None]
    squares = np.nansum(apart**2, axis=(1, 2))
    sigma = np.sqrt(squares / (np.maximum(counts - 1, 1) * values))
    sigma = np.where(counts > 1, sigma, np.median(sigma[counts > 1]))
    sigma = np.maximum(sigma, 1e-3 * max(float(sigma.max()), 1e-9))
    z = apart / sigma[:, None, None]
    common = np.nanmean(z, axis=0)
    rest = np.nan_to_num(z - common)
    own = np.einsum("csi,csj->ij", rest, rest) / max(int(there.sum()) - c - s + 1, 1)
    shared = np.einsum("si,sj->ij", common, common) / (s - 1) - own * float(np.mean(1 / there.sum(axis=0)))
    return Noise(sigma, _positive(shared), _positive(own))


def shrunk(means: Floats, noise: Floats) -> Floats:
    """Recorded means (n, k) drawn towards the mean of all: by the factor t / (t + v) where v (`noise`, (n, k)) is the
    variance of a recorded mean and t that of the true ones, which is what the recorded ones have beyond the noise."""
    centre = means.mean(axis=0)
    true = np.maximum(means.var(axis=0, ddof=1) - noise.mean(axis=0), 0.0)
    found: Floats = centre + np.divide(true, true + noise, out=np.zeros_like(means), where=true > 0) * (means - centre)
    return found


def _positive(covariance: Floats) -> Floats:
    """The nearest matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    found: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return found


def _root(covariance: Floats) -> Floats:
    values, vectors = np.linalg.eigh(covariance)
    found: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return found


def cut_off(mean: Floats, deviation: Floats) -> Floats:
    """The mean of min(1, max(0, z)) for z ~ N(mean, deviation²), element by element."""
    from scipy.stats import norm

    low, high = -mean / deviation, (1 - mean) / deviation
    inside = norm.cdf(high) - norm.cdf(low)
    found: Floats = mean * inside + deviation * (norm.pdf(low) - norm.pdf(high)) + norm.sf(high)
    return found


class Regression:
    """Gaussian processes of several outputs (n, k) over points (n, d) in the unit cube."""

    def __init__(self, points: Floats, outputs: Floats, seed: int = 0) -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        self._models = []
        d = points.shape[1]
        for column in outputs.T:
            kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(np.full(d, 0.5), (0.05, 20.0), nu=2.5)
            model = GaussianProcessRegressor(
                kernel + WhiteKernel(0.05, (1e-4, 1.0)), normalize_y=True, n_restarts_optimizer=2, random_state=seed
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a length at its bound says that a parameter does not matter
                self._models.append(model.fit(points, column))

    def __call__(self, points: Floats) -> Floats:
        found: Floats = np.stack([model.predict(points) for model in self._models], axis=1)
        return found


class MeanCurves:
    """m: mean curves (n, 2R) as a function of points (n, d)."""

    def __init__(self, points: Floats, means: Floats) -> None:
        self._centre = means.mean(axis=0)
        _, _, directions = np.linalg.svd(means - self._centre, full_matrices=False)
        self._directions = directions[: min(COMPONENTS, len(means) - 1)]
        self._scores = Regression(points, (means - self._centre) @ self._directions.T)

    def __call__(self, points: Floats) -> Floats:
        found: Floats = self._centre + self._scores(points) @ self._directions
        return found


class Forest:
    """A random forest of several outputs (n, k) over points (n, d).

    Where two splits of a tree are equally good, the last digit of a value decides, and processors differ in it. So
    values are rounded first (`DIGITS`), and the same table is the same forest everywhere."""

    def __init__(self, points: Floats, outputs: Floats) -> None:
        from sklearn.ensemble import RandomForestRegressor

        self._outputs = outputs.shape[1]
        rounded = np.round(outputs, DIGITS)
        model = RandomForestRegressor(TREES, min_samples_leaf=2, random_state=0)
        self._model = model.fit(np.round(points, DIGITS), rounded if self._outputs > 1 else rounded[:, 0])

    def __call__(self, points: Floats) -> Floats:
        found: Floats = self._model.predict(np.round(points, DIGITS)).reshape(len(points), self._outputs)
        return found


class Nearest:
    """The outputs (n, k) of the nearest of the points (n, d)."""

    def __init__(self, points: Floats, outputs: Floats) -> None:
        self._points, self._outputs = points, outputs

    def __call__(self, points: Floats) -> Floats:
        apart = ((points[:, None] - self._points) ** 2).sum(axis=2)
        found: Floats = self._outputs[apart.argmin(axis=1)]
        return found


Model = Callable[[Floats], Floats]


class World(NamedTuple):
    """What a mean curve and other numbers of a configuration are made with, and how the page calls it."""

    mean: Callable[[Floats, Floats], Model]
    other: Callable[[Floats, Floats], Model]
    text: str


GAUSSIAN = "gaussian"
WORLDS = {
    GAUSSIAN: World(MeanCurves, Regression, "A model"),
    "trees": World(Forest, Forest, "Trees"),
    "nearest": World(Nearest, Nearest, "The nearest"),
}


def named(table: str, world: str) -> str:
    """What a table is called in a world."""
    return table if world == GAUSSIAN else f"{table}, {world}"


class Place(NamedTuple):
    """`mean` (2R,): m(x); `true` (2R,): the mean of all seeds' curves; the noise's size σ(x); seconds of a round; the
    probability to diverge."""

    mean: Floats
    true: Floats
    sigma: float
    seconds: float
    diverges: float


class Surrogate:
    """A table of a continuous space; see the module's text."""

    def __init__(self, table: CurveTable, world: str = GAUSSIAN) -> None:
        """Raises `UserError` where the table does not tell the noise of a seed."""
        self.table, self.space, self.rounds = table, table.space, table.rounds
        self.world = WORLDS[world]
        self.name = named(str(table.card["name"]), world)
        validation, test = complete(table)
        filled = np.concatenate([validation, test], axis=2)
        broken = table.whole & np.isnan(table.validation[:, :, -1]) & (world != GAUSSIAN)
        filled[~table.whole | broken] = np.nan
        kept, seeds = ((table.whole & ~broken).any(axis=axis) for axis in (1, 0))
        self.curves = filled[kept][:, seeds]
        check_seeds(table, self.curves)
        every = np.array([to_unit(self.space, values) for values in table.configurations])
        self.points = every[kept]
        means = means_of(self.curves)
        self.noise = measure_noise(self.curves)
        self.roots = _root(self.noise.shared), _root(self.noise.own)
        self.bounded = bool(np.nanmin(self.curves) >= 0 and np.nanmax(self.curves) <= 1)
        if world != GAUSSIAN:
            counts = (~np.isnan(self.curves[:, :, -1])).sum(axis=1)
            means = shrunk(means, (self.noise.sigma**2 / counts)[:, None] * np.diag(self.noise.own))
        self._mean = self.world.mean(self.points, means)
        # Two positive numbers, by their logarithms: the noise's size, and the seconds of a round.
        seconds = np.nanmean(np.where(np.isfinite(table.seconds), table.seconds, np.nanmedian(table.seconds)), axis=1)
        positive = np.log(np.stack([self.noise.sigma, seconds[kept]], axis=1))
        self._positive = self.world.other(self.points, positive)
        self._diverges: Model | None = None
        if broken.any():
            ran = table.whole.any(axis=1)
            shares = broken[ran].sum(axis=1) / table.whole[ran].sum(axis=1)
            self._diverges = self.world.other(every[ran], shares[:, None])
        #: The first rounds, counted from 0, that diverged federations do not have; what their mean counts with.
        self.breaks = np.isnan(table.validation[broken]).argmax(axis=1)
        self.worst = np.repeat([validation.min(), test.min()], self.rounds)
        self.fit = self._measure_fit(means)
        self.best, self.blind, self.best_values = self._extremes()
        self._known: dict[tuple[tuple[str, Value], ...], Place] = {}

    def true(self, points: Floats) -> Floats:
        """The means of all seeds' curves (n, 2R) at points (n, d)."""
        sigma = np.exp(self._positive(points)[:, :1])
        return self._over_seeds(self._mean(points), sigma, self._probability(points))

    def at(self, values: Mapping[str, Value]) -> Place:
        """What is known of a configuration."""
        key = tuple(values.items())
        if key not in self._known:
            point = to_unit(self.space, values)[None]
            sigma, seconds = map(float, np.exp(self._positive(point)[0]))
            mean, diverges = self._mean(point)[0], float(self._probability(point)[0, 0])
            self._known[key] = Place(mean, self._over_seeds(mean, sigma, diverges), sigma, seconds, diverges)
        return self._known[key]

    def _probability(self, points: Floats) -> Floats:
        """(n, 1): the probability to diverge."""
        if self._diverges is None:
            return np.zeros((len(points), 1))
        found: Floats = np.clip(self._diverges(points), 0.0, 1.0)
        return found

    def _over_seeds(self, mean: Floats, sigma: Floats | float, diverges: Floats | float) -> Floats:
        """What m(x), σ(x) and the probability to diverge give as the mean of all seeds' curves."""
        whole = mean
        if self.bounded:
            whole = cut_off(mean, sigma * np.sqrt(np.diag(self.noise.shared + self.noise.own)))
        if self._diverges is None:
            return whole
        found: Floats = (1 - diverges) * whole + diverges * self.worst
        return found

    def episode(self, repetition: int) -> SurrogateEpisode:
        return SurrogateEpisode(self, repetition)

    def describe(self) -> str:
        c, s, r = self.table.validation.shape
        f = self.fit
        return (
            f"{self.world.text} of {c} configurations × {s} seeds × {r} rounds. On configurations left out it errs by "
            f"{100 * f.error:.1f} points of the last round's mean ({100 * f.explained:.0f} % of the variance told, "
            f"rank correlation {f.rank:.2f}). One seed's standard deviation is {100 * f.noise:.1f} points, "
            f"{100 * f.noise_of_better:.1f} in the better half; {100 * f.paired:.0f} % of its variance is shared by "
            f"all configurations; it correlates by {f.correlation:.2f} between the middle round and the last."
        )

    def _measure_fit(self, means: Floats) -> Fit:
        last, middle = self.rounds - 1, self.rounds // 2 - 1
        folds = np.arange(len(means)) % min(FOLDS, len(means))
        predicted = np.empty(len(means))
        for fold in range(folds.max() + 1):
            out = folds == fold
            predicted[out] = self.world.mean(self.points[~out], means[~out])(self.points[out])[:, last]
        from scipy.stats import spearmanr

        true, apart = means[:, last], self.curves - means[:, None]
        several = (~np.isnan(self.curves[:, :, last])).sum(axis=1) > 1
        spread = np.nanstd(self.curves[several, :, last], axis=1, ddof=1)
        shared, own = self.noise.shared, self.noise.own
        both = (apart[:, :, [max(middle, 0), last]]).reshape(-1, 2)
        both = both[~np.isnan(both).any(axis=1)]
        return Fit(
            error=float(np.sqrt(np.mean((predicted - true) ** 2))),
            explained=float(1 - np.mean((predicted - true) ** 2) / max(np.var(true), 1e-12)),
            rank=float(spearmanr(predicted, true).statistic),
            noise=float(np.median(spread)),
            noise_of_better=float(np.median(spread[true[several] >= np.median(true)])),
            paired=float(shared[last, last] / max(shared[last, last] + own[last, last], 1e-12)),
            correlation=float(np.corrcoef(both.T)[0, 1]),
        )

    def _extremes(self) -> tuple[float, float, dict[str, Value]]:
        """The largest mean of the last round's test metric in the whole space, that of a blind choice, and the
        configuration that has the former."""
        rng = np.random.default_rng(0)
        drawn = self._possible(rng.random((CANDIDATES, coordinates(self.space))))
        values = self.true(np.concatenate([drawn, self.points]))[:, -1]
        blind = float(values[:CANDIDATES].mean())
        best = np.concatenate([drawn, self.points])[int(values.argmax())]
        top = float(values.max())
        for n in range(AROUND):
            near = self._possible(np.clip(best + rng.normal(0, 0.2 * 0.85**n, (256, len(best))), 0, 1))
            values = self.true(near)[:, -1]
            if values.max() > top:
                best, top = near[int(values.argmax())], float(values.max())
        return top, blind, from_unit(self.space, best)

    def _possible(self, points: Floats) -> Floats:
        """Points as configurations have them: on steps, whole numbers and options."""
        return np.array([to_unit(self.space, from_unit(self.space, point)) for point in points])


class SurrogateEpisode:
    """Noise of its own for every repetition, seed and configuration."""

    fresh: int | None = None
    floor: float | None = None

    def __init__(self, world: Surrogate, repetition: int) -> None:
        self._world, self._repetition = world, repetition
        self.seeds, self.best, self.blind = SEEDS, world.best, world.blind
        self._shared: dict[int, Floats] = {}

    def curve(self, values: Mapping[str, Value], seed: int) -> Floats:
        mean, _, sigma, _, diverges = self._world.at(values)
        shared, own = self._world.roots
        if seed not in self._shared:
            draws = np.random.default_rng([self._repetition, 3, seed])
            self._shared[seed] = shared @ draws.standard_normal(shared.shape[1])
        draws = np.random.default_rng([self._repetition, 4, seed, digest(values)])
        found: Floats = mean + sigma * (self._shared[seed] + own @ draws.standard_normal(own.shape[1]))
        found = found[: self._world.rounds]
        found = np.clip(found, 0.0, 1.0) if self._world.bounded else found
        if diverges > 0:
            draws = np.random.default_rng([self._repetition, 6, seed, digest(values)])
            if draws.random() < diverges:
                found[draws.choice(self._world.breaks) :] = np.nan
        return found

    def seconds(self, values: Mapping[str, Value], seed: int) -> float:
        return self._world.at(values).seconds

    def truth_curve(self, values: Mapping[str, Value]) -> Floats:
        return self._world.at(values).true[self._world.rounds :]

    def expected(self, values: Mapping[str, Value]) -> float:
        return float(self._world.at(values).true[self._world.rounds - 1])


def digest(values: Mapping[str, Any]) -> int:
    """A number that stands for a configuration, the same in every process."""
    text = json.dumps(values, sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
