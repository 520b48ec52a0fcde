"""Several objectives: the Pareto front, its knee and its hypervolume.

Points are rows of objectives that are all to be maximised; one that is to be minimised has its sign turned.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

Points = NDArray[np.float64]


def signed(values: Sequence[Sequence[float]], directions: Sequence[str]) -> Points:
    """Values `(points, objectives)`, so signed that more is better everywhere."""
    signs = np.array([1.0 if direction == "maximize" else -1.0 for direction in directions])
    found: Points = signs * np.asarray(values, dtype=float).reshape(-1, len(directions))
    return found


def front(points: Points) -> list[int]:
    """The rows that no other row beats: none is nowhere worse and somewhere better."""
    beaten = [((points >= own).all(axis=1) & (points > own).any(axis=1)).any() for own in points]
    return [row for row, is_beaten in enumerate(beaten) if not is_beaten]


def front_of_trials(trials: Iterable[FrozenTrial], directions: Sequence[str]) -> list[int]:
    """The numbers of those of the completed trials that no other of them beats. A trial that was stopped, or that has a
    value which is not finite, is on no front."""
    done = [t for t in trials if t.state.name == "COMPLETE" and t.values and np.isfinite(t.values).all()]
    return [done[row].number for row in front(signed([t.values for t in done], directions))]


def scaled(points: Points, among: Points) -> Points:
    """`points` with every objective scaled so that the worst of `among` is 0 and the best 1; an objective that is the
    same in all of `among` is 1."""
    low, width = among.min(axis=0), np.ptp(among, axis=0)
    return np.where(width > 0, (points - low) / np.where(width > 0, width, 1.0), 1.0)


def knee(points: Points) -> int:
    """The row, of a front, that gives up least of one objective for what it gains in the others: with every objective
    scaled over the front, the one farthest beyond the plane through the best of each objective, which is the one with
    the largest sum (Das 1999, "On characterizing the knee of the Pareto curve"). The first of several."""
    return int(np.argmax(scaled(points, points).sum(axis=1).round(12)))


def volumes(points: Points) -> list[float]:
    """After every row, the share of the box from the worst to the best of each objective over all rows that the front
    so far dominates (the hypervolume, from 0 to 1; with a front of the best of each objective alone 1). Never falls."""
    return dominated(scaled(points, points))


def dominated(box: Points) -> list[float]:
    """The same of points in the unit cube, measured from its corner 0."""
    import optuna

    from analysis.runs.study import in_memory

    names = [f"x{i}" for i in range(box.shape[1])]
    study = in_memory(
        ["maximize"] * len(names),
        [
            optuna.trial.FrozenTrial(
                number=row,
                trial_id=row,
                state=optuna.trial.TrialState.COMPLETE,
                value=None,
                values=list(map(float, values)),
                datetime_start=None,
                datetime_complete=None,
                params={},
                distributions={},
                user_attrs={},
                system_attrs={},
                intermediate_values={},
            )
            for row, values in enumerate(box)
        ],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        drawn = optuna.visualization.plot_hypervolume_history(study, [0.0] * len(names))
    return [float(value) for value in drawn.data[0].y]
