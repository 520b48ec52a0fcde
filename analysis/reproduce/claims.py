"""A paper's sentences, decided by our runs: *agrees*, *disagrees*, or *cannot be told*.

A sentence such as "FedKF is ahead of FedGen" is a number of lines: one for each pair of rows, metric and condition it
speaks of. Each line is a paired t test over the seeds that both cells have, and p is corrected (Holm) for all lines of
the sentence. It agrees where every line is significant in the paper's direction, and disagrees where one is significant
against it. Of a sentence that speaks of most cases, more than half of the lines decide. Otherwise, and with fewer than
two seeds in a line, it cannot be told. Where only a part of a table has been run, the lines of that part decide, and
it is said how many of all they are.

Where a sentence speaks of how fast or how smoothly a method learns, what is compared is read of the whole curve
(`measures.py`). Where it says that a lead is larger under one condition than under another, what is compared is, under
each seed, the lead there and the lead here.

Of a sentence that says that values are alike, each line is a test of equivalence: two one-sided paired t tests against
a limit that is declared (`within`).

A region of a heat map: the mean of the cells inside minus that of the others (cells are means over seeds), against
10,000 draws in which as many cells anywhere are called inside (a permutation test, two-sided). Neighbours in a grid are
alike, so that p alone would be too small: the difference must also have the same sign under every seed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.labels import PERCENT, number
from analysis.published.agreement import AGREES, DISAGREES, LEVEL, UNKNOWN
from analysis.published.papers import Published
from analysis.reproduce.declaration import Claim, Place, Side
from analysis.reproduce.folder import Made
from analysis.reproduce.measures import MEASURES, REACHES, UNEVENNESS, first_round, unevenness
from analysis.runs import Run
from analysis.stats import holm, limit_p, paired
from search_spaces.metrics import METRICS

#: Draws of a permutation test, and the seed of their order.
DRAWS, SEED = 9_999, 0
#: In place of a verdict: of a sentence, where of no comparison both cells have been begun; of one comparison.
NOT_RUN, NO_RESULT = "not run", "no result"


@dataclass(frozen=True)
class ClaimTest:
    """One comparison behind a sentence. `difference` (ahead minus behind, as recorded) is above 0 where the paper's
    side is better, whatever the direction of the metric."""

    metric: str
    ahead: str
    behind: str
    condition: str
    difference: float
    pairs: int
    p: float
    corrected: float
    #: What was read of the cells, of `measures.MEASURES`; None: their value in the round that the paper reports.
    measure: str | None = None

    @property
    def verdict(self) -> str:
        """Of this line alone."""
        if self.pairs == 0:
            return NO_RESULT
        if not self.corrected < LEVEL:
            return UNKNOWN
        return AGREES if self.difference > 0 else DISAGREES


@dataclass(frozen=True)
class Decided:
    """A sentence and what became of it."""

    claim: Claim
    verdict: str
    #: The verdict, and on what other data or after how many rounds.
    told: str
    why: str
    lines: Sequence[ClaimTest]


def decide(made: Made) -> list[Decided]:
    """Every sentence of the reproduction."""
    kinds = {"region": _region, "alike": _alike, "ordering": _ordering, "gap": _gap, "untested": _untested}
    return [kinds[claim.kind](made, claim) for claim in made.reproduction.claims]


def _decided(made: Made, claim: Claim, verdict: str, why: str, lines: Sequence[ClaimTest]) -> Decided:
    where = ""
    if verdict in (AGREES, DISAGREES):
        if made.other_data:
            where = f", on {made.here.data} instead of {made.paper.data}"
        elif made.here.rounds < made.paper.rounds:
            where = f", after {made.here.rounds} rounds instead of {made.paper.rounds}"
        elif made.record.profile == "small":
            where = ", in the small form"
        if (there := sum(line.pairs > 0 for line in lines)) < len(lines):
            where += f", in {there} of {len(lines)} comparisons, as the others have no result"
    return Decided(claim, verdict, verdict + where, why, lines)


# -- one row against another ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Contrast:
    """What one line compares: two sides, each a value by seed, higher where it is better."""

    metric: str
    sides: tuple[str, str]
    condition: str
    ahead: Mapping[int, float]
    behind: Mapping[int, float]
    #: Whether all of its cells have been begun.
    begun: bool


def _ordering(made: Made, claim: Claim) -> Decided:
    return _tested(
        made,
        claim,
        [
            _Contrast(
                metric,
                (ahead[0], behind[0]),
                _condition(made, ahead[1], behind[1]),
                _values(made, claim, ahead, metric),
                _values(made, claim, behind, metric),
                ahead in made.runs and behind in made.runs,
            )
            for metric, ahead, behind in _pairs(made, claim)
        ],
    )


def _gap(made: Made, claim: Claim) -> Decided:
    """Of every pair the lead under the condition `wider` against the lead under `than`."""
    contrasts = []
    keys = tuple(made.reproduction.columns)
    for metric, ahead, behind in _pairs(made, claim):
        here = dict(zip(keys, ahead[1], strict=True))
        if any(here[key] != value for key, value in claim.wider.items()):
            continue
        there = tuple({**here, **claim.than}.values())
        cells = [(row, place) for place in (ahead[1], there) for row in (ahead[0], behind[0])]
        wider, than = (_lead(made, claim, metric, *cells[i : i + 2]) for i in (0, 2))
        words = f"{ahead[0]} − {behind[0]}"
        begun = all(cell in made.runs for cell in cells)
        contrasts.append(_Contrast(metric, (words, words), _condition(made, ahead[1], there), wider, than, begun))
    return _tested(made, claim, contrasts)


def _lead(
    made: Made, claim: Claim, metric: str, ahead: tuple[str, Place], behind: tuple[str, Place]
) -> dict[int, float]:
    front, back = (_values(made, claim, cell, metric) for cell in (ahead, behind))
    return {seed: front[seed] - back[seed] for seed in front if seed in back}


def _tested(made: Made, claim: Claim, contrasts: Sequence[_Contrast]) -> Decided:
    """A paired t test of every contrast, corrected for all of them."""
    tests = [paired(one.behind, one.ahead) for one in contrasts]
    corrected = holm([test.t_p for test in tests])
    lines = [
        ClaimTest(one.metric, *one.sides, one.condition, test.difference, test.n, test.t_p, p, claim.measure)
        for one, test, p in zip(contrasts, tests, corrected, strict=True)
    ]
    verdict = _verdict(lines, claim.most) if any(one.begun for one in contrasts) else NOT_RUN
    return _decided(made, claim, verdict, _why(lines), lines)


def _values(made: Made, claim: Claim, cell: tuple[str, Place], metric: str) -> dict[int, float]:
    """What the sentence reads of a cell by seed, turned so that more is better."""
    falling = METRICS[metric].direction == "minimize"
    if claim.measure is None:
        found = made.values(*cell, metric)
    elif claim.measure == UNEVENNESS:
        found = {seed: unevenness(counts) for seed, counts in made.partitions(*cell).items()}
    elif claim.measure == REACHES:
        assert claim.reference is not None
        targets = {seed: curve[-1][1] for seed, curve in made.curves(claim.reference, cell[1], metric).items()}
        found = {
            seed: first_round(curve, targets[seed], falling=falling)
            for seed, curve in made.curves(*cell, metric).items()
            if seed in targets
        }
    else:
        of = MEASURES[claim.measure].of
        assert of is not None
        found = {seed: of(curve) for seed, curve in made.curves(*cell, metric).items()}
    lower = None if claim.measure is None else MEASURES[claim.measure].lower
    sign = -1.0 if (falling if lower is None else lower) else 1.0
    return {seed: sign * value for seed, value in found.items()}


def _untested(made: Made, claim: Claim) -> Decided:
    assert claim.untested is not None
    return Decided(claim, UNKNOWN, UNKNOWN, claim.untested, [])


def _pairs(made: Made, claim: Claim) -> Iterator[tuple[str, tuple[str, Place], tuple[str, Place]]]:
    """Every metric with the cell that the sentence has ahead and the one that it has behind, each pair once."""
    reproduction, seen = made.reproduction, set()
    keys = tuple(reproduction.columns)
    rows = [row.name for row in reproduction.rows]
    for metric in claim.metrics:
        for place in reproduction.places:
            condition = dict(zip(keys, place, strict=True))
            if not claim.speaks_of(condition):
                continue
            for front in claim.ahead.rows or rows:
                for back in claim.behind.rows or (front,):
                    ahead = front, _at(claim.ahead, condition)
                    behind = back, _at(claim.behind, condition)
                    if ahead != behind and (metric, ahead, behind) not in seen:
                        seen.add((metric, ahead, behind))
                        yield metric, ahead, behind


def _at(side: Side, condition: Mapping[str, object]) -> Place:
    return tuple(side.condition.get(key, value) for key, value in condition.items())


def _condition(made: Made, ahead: Place, behind: Place) -> str:
    """Under which condition a line compares, or under which two."""
    return " against ".join(dict.fromkeys(made.named(place) for place in (ahead, behind)))


def _verdict(lines: Sequence[ClaimTest], most: bool) -> str:
    there = [line for line in lines if line.pairs > 0]
    if min((line.pairs for line in there), default=0) < 2:
        return UNKNOWN
    found = [line.verdict for line in there]
    if most:
        return next((word for word in (AGREES, DISAGREES) if found.count(word) > len(found) / 2), UNKNOWN)
    if DISAGREES in found:
        return DISAGREES
    return AGREES if all(word == AGREES for word in found) else UNKNOWN


def _why(lines: Sequence[ClaimTest], within: str = "") -> str:
    """What the lines say, in one sentence. `within`: the limit in words, of a sentence that values are alike."""
    there = [line for line in lines if line.pairs > 0]
    if len(there) < len(lines):
        missing = f"{len(lines) - len(there)} of {len(lines)} comparisons have no result yet."
        return f"{missing} Of the others: {_why(there, within)}" if there else missing
    if min((line.pairs for line in lines), default=0) < 2:
        return "There are fewer than two seeds, and one seed says nothing of the spread."
    if within:
        near = sum(line.difference > 0 for line in lines)
        sure, against = (sum(line.verdict == word for line in lines) for word in (AGREES, DISAGREES))
        return (
            f"{near} of {len(lines)} differences are smaller than {within}, {sure} of them significantly; {against} "
            f"{'is' if against == 1 else 'are'} significantly larger."
        )
    if len(lines) == 1:
        gap = lines[0].difference
        sign = "the paper's sign" if gap > 0 else "the opposite sign" if gap < 0 else "no difference"
        if math.isnan(lines[0].p):
            return f"The comparison has {sign}, and no test is possible: the difference is the same under every seed."
        return f"The comparison has {sign}, p = {lines[0].p:.2g}."
    ahead = sum(line.difference > 0 for line in lines)
    sure, against = (sum(line.verdict == word for line in lines) for word in (AGREES, DISAGREES))
    return (
        f"{ahead} of {len(lines)} comparisons have the paper's sign, {sure} of them significantly; {against} "
        f"{'is' if against == 1 else 'are'} significantly against it."
    )


# -- values that are alike -----------------------------------------------------------------------------------------


def _alike(made: Made, claim: Claim) -> Decided:
    """Every row's cells against the cell that all rows share. A line's difference is the limit minus the absolute
    difference, so that it is above 0 where the paper is right."""
    assert claim.within is not None
    reproduction = made.reproduction
    centre, words = (reproduction.common,), ""
    lines, begun = [], False
    for metric in claim.metrics:
        limit = made.labels.scale(metric) * claim.within
        words = f"{limit:g} point{'s' * (limit != 1)}" if metric in PERCENT else f"{limit:g}"
        for row, place in itertools.product([row.name for row in reproduction.rows], reproduction.places):
            if place == centre or not claim.speaks_of(dict(zip(reproduction.columns, place, strict=True))):
                continue
            begun |= (row, place) in made.runs and (row, centre) in made.runs
            found = paired(made.values(row, centre, metric), made.values(row, place, metric))
            room = claim.within - abs(found.difference)
            at = _condition(made, place, centre)
            lines.append(
                ClaimTest(metric, words, f"|{row}|", at, room, found.n, limit_p(found, claim.within), math.nan)
            )
    corrected = holm([line.p for line in lines])
    lines = [dataclasses.replace(line, corrected=p) for line, p in zip(lines, corrected, strict=True)]
    return _decided(made, claim, _verdict(lines, claim.most) if begun else NOT_RUN, _why(lines, words), lines)


# -- a region of a heat map ----------------------------------------------------------------------------------------


def _region(made: Made, claim: Claim) -> Decided:
    lines, why = [], []
    for metric in claim.metrics:
        line, said = _inside(made, metric)
        lines.append(line)
        why.append(said)
    return _decided(made, claim, _verdict(lines, claim.most), " ".join(why), lines)


def _inside(made: Made, metric: str) -> tuple[ClaimTest, str]:
    """The cells in the paper's region of one metric against the others."""
    said = next(line for line in made.reproduction.lines(made.paper.dataset) if line.metric == metric and line.region)
    run = made.heatmap
    words = "" if run is None else region(made, said, run)
    nothing = ClaimTest(metric, f"inside {words}", "outside", "", math.nan, 0, math.nan, math.nan)
    if run is None:
        return nothing, "No cell has a result yet."
    done = [trial.number for trial in run.frozen if trial.state.name == "COMPLETE"]
    inside = np.array([is_inside(said, run, number) for number in done])
    by_seed = [run.last(number, metric) for number in done]
    seeds = sorted(set.intersection(*(set(values) for values in by_seed))) if by_seed else []
    values = np.array([[of_cell[seed] for seed in seeds] for of_cell in by_seed])
    nothing = dataclasses.replace(nothing, pairs=len(seeds))
    if len(seeds) < 2 or not inside.any() or inside.all() or not np.isfinite(values).all():
        return nothing, "There are fewer than two seeds, and one seed says nothing of the spread."
    sign = -1.0 if _low(said) else 1.0
    return _permuted(nothing, sign * values, inside, words)


def _permuted(line: ClaimTest, values: np.ndarray, inside: np.ndarray, words: str) -> tuple[ClaimTest, str]:
    """The test of `values` (cells, seeds), signed so that the paper has the inside higher."""
    from scipy.stats import permutation_test

    means = values.mean(axis=1)
    difference = float(means[inside].mean() - means[~inside].mean())
    p = float(
        permutation_test(
            (means[inside], means[~inside]),
            lambda a, b, axis: np.mean(a, axis=axis) - np.mean(b, axis=axis),
            vectorized=True,
            n_resamples=DRAWS,
            rng=np.random.default_rng(SEED),
        ).pvalue
    )
    each = values[inside].mean(axis=0) - values[~inside].mean(axis=0)
    steady = bool((np.sign(each) == np.sign(difference)).all())
    found = ClaimTest(
        line.metric, line.ahead, line.behind, "", difference, values.shape[1], p, p if steady else math.nan
    )
    signs = "the same sign under every seed" if steady else "not the same sign under every seed"
    side = "as" if difference > 0 else "against what"
    return found, (
        f"{inside.sum()} cells inside {words}, {(~inside).sum()} outside: {side} the paper says, permutation p = "
        f"{p:.2g}, {signs}."
    )


def is_inside(said: Published, run: Run, trial: int) -> bool:
    """Whether a cell lies in the region."""
    config = run.config(trial)
    return all(bound.holds(config) for bound in said.settings if bound.key in run.keys)


def region(made: Made, said: Published, run: Run) -> str:
    """The paper's region in words, `α < 1.25 and λ > 0.5`."""
    bounds = [bound for bound in said.settings if bound.key in run.keys]
    return " and ".join(f"{made.labels.symbol(b.key)} {b.sign} {number(b.value)}" for b in bounds)


def _low(said: Published) -> bool:
    return said.readout.endswith("low")
