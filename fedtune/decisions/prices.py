"""What a trial of a configuration costs in seconds, learnt from the trials that have ended.

A round of ten local steps of eight images costs less than one of a hundred steps of 64, so a search that may take an
hour has to know the price of a configuration before it begins one. The seconds of a round are measured in every trial,
and the model is a regression on what changes the arithmetic,

    log t(x) = b_0 + Σ_j b_j log(x_j / m_j) + Σ_k d_k [x has option k]

with one b_j for every whole number that is searched (steps, epochs, batch size, clients, widths; m_j is the middle of
its range) and one d_k for every option of a choice but the first. A learning rate changes no arithmetic and has none.
All are normal before anything is known: b_j around `ELASTICITY` where the number counts what is computed or around the
part that the space marks (`search_spaces.cost`), d_k around 0. One federation that was timed before the first trial
counts as one observation with the noise `TIMED`, a trial of r rounds as one with the variance `NOISE`² + `ROUND`² / r.
The mean of the posterior (ridge regression, Hoerl and Kennard 1970) is what a price is made of:

    price(x) = s + R t(x)

for R rounds. s is what a trial needs beside its rounds: the median over those of which that is known, `START` counted
as one of them. Trials that begin before any other has ended wait for a process to start, so they tell by themselves
what that takes (`Starts`).

Which trials have ended, and how long they took, is in the record. So the same record gives the same prices.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.decisions.history import History
    from search_spaces.dimension import Dimension
    from search_spaces.parameter import Parameter
    from search_spaces.space import Space

#: Whole numbers that count what every client computes, or how many clients compute.
COUNTS = ("local_steps", "local_epochs", "batch_size", "clients", "active_clients")
#: What twice as much of such a number, or of a server's steps or samples, is expected to cost: 2 to this power.
ELASTICITY = 0.7
#: Standard deviations before anything is known: of an elasticity, of the effect of an option, of the level.
SPREAD, OPTION, LEVEL = 0.4, 0.7, 10.0
#: Noise of log seconds: of a trial, of one round of it, and of the federation that was timed by itself.
NOISE, ROUND, TIMED = 0.15, 0.3, 0.3
#: Seconds that a trial needs beside its rounds, before any has told: where it finds a process, and where one starts.
START, COLD = 2.0, 6.0
#: From so many trials that ended last it is told how long what is left takes.
LAST = 50


class Starts(NamedTuple):
    """Seconds that a trial needs beside its rounds, to be set up and to write them: where it finds a process of an
    earlier trial, and where it waits for one to start, as the first ones do of whatever is run together."""

    warm: float
    cold: float


def starts(trials: Iterable[FrozenTrial]) -> Starts:
    """By medians over trials that ran together and of which it is recorded when they began and ended."""
    known = [t for t in trials if run_folder.BEGAN in t.user_attrs and run_folder.ENDED in t.user_attrs]
    first = min((trial.user_attrs[run_folder.ENDED] for trial in known), default=0.0)
    warm, cold = [START], list[float]()
    for trial in known:
        began, ended = trial.user_attrs[run_folder.BEGAN], trial.user_attrs[run_folder.ENDED]
        (warm if began >= first else cold).append(max(0.0, ended - began - trial.user_attrs.get("seconds", 0.0)))
    return Starts(statistics.median(warm), statistics.median(cold or [COLD]))


@dataclass(frozen=True)
class Prices:
    """Prices of the configurations of one space."""

    space: Space
    #: Seconds beside the rounds.
    start: float
    #: b_0 and the other coefficients, in the order of `_features`.
    coefficients: tuple[float, ...]

    def of_a_round(self, params: Mapping[str, Any]) -> float:
        """t(x) of the configuration with these parameters, by their names in the study."""
        return math.exp(float(np.dot(self.coefficients, _features(self.space, params))))

    def of_a_trial(self, params: Mapping[str, Any], rounds: int) -> float:
        """price(x) of a trial of so many rounds."""
        return self.start + rounds * self.of_a_round(params)


def learnt(
    space: Space,
    trials: Iterable[FrozenTrial],
    timed: tuple[Mapping[str, Any], float] | None = None,
    start: float = START,
) -> Prices | None:
    """The prices that the `trials` of a search tell, those that ended. None where nothing was measured.

    timed: parameters of a federation that was timed before, by their names in the study, and its seconds per round.
    start: s."""
    found = [trial for trial in trials if trial.state.is_finished()]
    rows, seconds, noises = [], [], []
    if timed is not None and timed[1] > 0:
        rows, seconds, noises = [_features(space, timed[0])], [timed[1]], [TIMED**2]
    for trial in found:
        rounds, took = int(trial.user_attrs.get("rounds", 0)), float(trial.user_attrs.get("seconds", 0.0))
        if rounds > 0 and took > 0:
            rows.append(_features(space, trial.params))
            seconds.append(took / rounds)
            noises.append(NOISE**2 + ROUND**2 / rounds)
    if not rows:
        return None
    means, variances = _prior(space)
    design, weights = np.array(rows), 1 / np.array(noises)
    precision = design.T @ (weights[:, None] * design) + np.diag(1 / variances)
    evidence = design.T @ (weights * np.log(seconds)) + means / variances
    coefficients = np.linalg.solve(precision, evidence)
    return Prices(space, start, tuple(float(one) for one in coefficients))


class Forecast(NamedTuple):
    """What is left of a search is expected to take these seconds."""

    #: By the number of a trial that runs: for each round.
    running: Mapping[int, float]
    #: For each round of trials to come, those that a stopped trial is spared included where the search is no race.
    coming: float


def forecast(history: History, running: Iterable[int]) -> Forecast | None:
    """By the trials of every run that ended last; None while there are none. A trial that runs is told by the price of
    its configuration, and trials to come as those before them were: samplers go on where good ones were found, and
    rules stop as many as they did."""
    seconds, rounds = 0.0, 0
    prices: dict[int, Prices | None] = {}
    for place, part in enumerate(history.parts):
        own = history.trials[place]
        last = (own[number] for number in range(len(own) - 1, part.experiment.taken - 1, -1))
        ended = list(islice((trial for trial in last if trial.state.is_finished()), LAST))
        prices[place] = learnt(part.space, ended)
        for trial in ended:
            seconds += float(trial.user_attrs.get("seconds", 0.0))
            ran = int(trial.user_attrs.get("rounds", 0))
            rounds += ran if part.experiment.races else part.experiment.rounds
    if not seconds:
        return None
    coming = seconds / rounds
    known = {number: prices[history.order[number][0]] for number in running}
    of_running = {
        number: coming if price is None else price.of_a_round(history.trial(number).params)
        for number, price in known.items()
    }
    return Forecast(of_running, coming)


# -- what changes the arithmetic ---------------------------------------------------------------------------------------


def _features(space: Space, params: Mapping[str, Any]) -> list[float]:
    """1, and of every priced parameter log(x / m), or whether each of its options but the first was chosen; 0 of one
    that the configuration does not have."""
    found = [1.0]
    for name, dimension in space.dimensions():
        if dimension.parameter.kind in ("choice", "flag"):
            found += [float(name in params and params[name] == option) for option in dimension.values()[1:]]
        elif _is_priced(dimension):
            found.append(_log(params[name]) - _middle(dimension) if name in params else 0.0)
    return found


def _prior(space: Space) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]]]:
    """Means and variances of the coefficients before anything is known."""
    means, spreads = [0.0], [LEVEL]
    for _, dimension in space.dimensions():
        if dimension.parameter.kind in ("choice", "flag"):
            options = len(dimension.values()) - 1
            means += [0.0] * options
            spreads += [OPTION] * options
        elif _is_priced(dimension):
            means.append(dimension.cost if dimension.cost is not None else _expected(dimension.parameter))
            spreads.append(SPREAD)
    return np.array(means), np.array(spreads) ** 2


def _is_priced(dimension: Dimension) -> bool:
    """Whether a number changes what is computed: whole ones do, and those whose cost the space marks."""
    return dimension.parameter.kind == "integer" or dimension.cost is not None


def _expected(parameter: Parameter) -> float:
    return ELASTICITY if parameter.key in COUNTS or parameter.work else 0.0


def _middle(dimension: Dimension) -> float:
    """The logarithm of the middle of a range."""
    assert dimension.low is not None and dimension.high is not None
    return (_log(dimension.low) + _log(dimension.high)) / 2


def _log(value: float) -> float:
    """log x; a count of 0 is taken for a half, as something else is computed then."""
    return math.log(max(float(value), 0.5))
