"""The effect of a variant under each condition of the experiment: what changes when one searched parameter alone does.

For every parameter with few values, each of its values is compared with one of them, the reference: the declared
default where it was tried, else the first that was. A difference is taken between two completed trials under the same
condition that agree in all other searched parameters, seed by seed; the differences of one seed are averaged over those
other parameters, never over conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.labels import Labels, number, unit_in_files
from analysis.runs import Run
from analysis.runs.conditions import named
from analysis.stats import Summary, holm, paired, summarise
from analysis.tables.table import Column, Table

#: A parameter with more values than this has no variants.
MOST = 6


@dataclass(frozen=True)
class Effect:
    """One value of a parameter against the reference, under one condition."""

    key: str
    value: Any
    reference: Any
    condition: Mapping[str, Any]
    #: Differences of the metric by seed, as recorded.
    by_seed: Mapping[int, float]
    #: How many pairs of trials they come from.
    pairs: int
    #: Of a paired t test over the seeds, corrected for all effects of the run; nan where fewer than two seeds differ.
    p: float

    @property
    def summary(self) -> Summary:
        return summarise(list(self.by_seed.values()))


def effects(run: Run, metric: str) -> list[Effect]:
    """Every effect that two trials show, by parameter, value and condition."""
    found = []
    for condition in run.conditions:
        part = run.within(condition)
        done = {t.number: t.params for t in part.frozen if t.state.name == "COMPLETE"}
        values = {number: part.last(number, metric) for number in done}
        for key in run.keys:
            found += _of_parameter(part, key, condition, done, values)
    keys = list(run.keys)
    found.sort(key=lambda effect: keys.index(effect.key))
    tests = [paired(dict.fromkeys(e.by_seed, 0.0), e.by_seed).t_p for e in found]
    return [Effect(**(vars(e) | {"p": p})) for e, p in zip(found, holm(tests), strict=True)]


def _of_parameter(
    part: Run,
    key: str,
    condition: Mapping[str, Any],
    done: Mapping[int, Mapping[str, Any]],
    measured: Mapping[int, Mapping[int, float]],
) -> list[Effect]:
    tried = list(dict.fromkeys(params[key] for params in done.values() if key in params))
    if not 1 < len(tried) <= MOST:
        return []
    item = next((item for item in part.searched if item["key"] == key), {})
    default = (item.get("declared") or {}).get("default")
    reference = default if default in tried else tried[0]
    listed = item.get("options") or item.get("grid") or tried
    found: list[Effect] = []
    for value in [v for v in (*listed, *tried) if v in tried and v != reference]:
        if any(effect.value == value for effect in found):
            continue
        pairs = [
            (measured[a], measured[b])
            for a, left in done.items()
            for b, right in done.items()
            if left.get(key) == value and right.get(key) == reference and _others(left, key) == _others(right, key)
        ]
        by_seed: dict[int, list[float]] = {}
        for new, old in pairs:
            for seed in sorted(new.keys() & old.keys()):
                by_seed.setdefault(seed, []).append(new[seed] - old[seed])
        if by_seed:
            means = {seed: sum(several) / len(several) for seed, several in by_seed.items()}
            found.append(Effect(key, value, reference, condition, means, len(pairs), float("nan")))
    return found


def _others(params: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != key}


def effects_table(run: Run, metric: str, labels: Labels) -> Table | None:
    """A row per variant, a column per condition: the mean difference ± its standard deviation over seeds, and the p of
    the paired test; None where there is none."""
    found = effects(run, metric)
    if not found:
        return None
    conditions = list(run.conditions)
    scale, digits = labels.scale(metric), 2 if labels.scale(metric) == 100 else 4
    rows: dict[tuple[str, Any], dict[str, Any]] = {}
    for effect in found:
        what = f"{labels.symbol(effect.key)}: {number(effect.value)} in place of {number(effect.reference)}"
        row = rows.setdefault((effect.key, effect.value), {"variant": what})
        row[named(effect.condition)] = _shown(effect, scale, digits)
    columns = [Column("variant", "change", right=False)]
    columns += [Column(named(c), _title(labels, c), str) for c in conditions]
    return Table(
        columns,
        list(rows.values()),
        f"What a variant changes under each condition: {labels.metric(metric, split=True)}",
        _notes(found),
    )


def effects_recorded(run: Run, metric: str) -> Table:
    """The same for files: a row per variant and condition, every number by itself and as recorded, so that accuracies
    are fractions."""
    rows = [
        {"parameter": e.key, "value": e.value, "reference": e.reference, **e.condition}
        | {"metric": metric, "unit": unit_in_files(metric), "difference": e.summary.mean, "std": e.summary.std}
        | {"n": e.summary.n, "pairs": e.pairs, "p_holm": e.p}
        for e in effects(run, metric)
    ]
    return Table.of_records(rows)


def _shown(effect: Effect, scale: float, digits: int) -> str:
    summary = effect.summary
    text = f"{scale * summary.mean:+.{digits}f}"
    if summary.n < 2:
        return text
    return f"{text} ± {scale * summary.std:.{digits}f}" + (f", p = {effect.p:.2g}" if effect.p == effect.p else "")


def _title(labels: Labels, condition: Mapping[str, Any]) -> str:
    return ", ".join(f"{labels.symbol(key)} = {number(value)}" for key, value in condition.items()) or "all trials"


def _notes(found: Sequence[Effect]) -> list[str]:
    notes = [
        "A difference is taken between two trials under the same condition that agree in every other searched "
        "parameter, on the same seed; where there are several such pairs it is their mean."
    ]
    seeds = max(len(effect.by_seed) for effect in found)
    if seeds > 1:
        notes.append(
            "± is the standard deviation over seeds, p that of a paired t test, corrected (Holm) for all of them."
        )
    else:
        notes.append("One seed says nothing of the noise: a difference may be chance alone. More --seeds tell.")
    return notes
