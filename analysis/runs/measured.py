"""What the trials of a run measured: their table, their rounds, and the last values of every metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from analysis.runs.described import Described
from analysis.runs.rounds import Lines, by_seed, last_values, read_lines, readout
from analysis.stopping import AUDITED
from search_spaces.metrics import is_unreached

if TYPE_CHECKING:
    import pandas as pd

#: Of `Run.trials`, before the searched parameters.
COLUMNS = ["number", "state", "value", "values", "stop_reason", "rounds", "seconds", "error", "origin", "taken"]
COLUMNS += ["audited", "start", "end"]


@dataclass(frozen=True)
class Measured(Described):
    """The larger tables are read when first asked for, and pandas with them: what a listing says of a run needs none.
    `analysis.runs.run.Run` is one."""

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial, sorted by `number`.

        number, state (COMPLETE, PRUNED, FAIL, RUNNING, WAITING), value (first objective; nan for a target that was not
        reached), values (tuple), stop_reason, rounds, seconds, error, origin (see `origin`), taken (whether the result
        is an earlier run's), audited (of an audited trial, the round after which it would have been stopped; nan for
        others), start, end (datetimes), and each searched parameter under its key."""
        import pandas as pd

        rows = []
        for t in self.frozen:
            attributes = t.user_attrs
            values = tuple(t.values) if t.values else ()
            row = {
                "number": t.number,
                "state": t.state.name,
                "value": float(values[0]) if values and not is_unreached(values[0]) else math.nan,
                "values": values,
                "stop_reason": attributes.get("stop_reason") or "",
                "rounds": attributes.get("rounds"),
                "seconds": attributes.get("seconds"),
                "error": attributes.get("error") or "",
                "origin": self.origin(t),
                "taken": t.number < self.taken,
                "audited": attributes.get(AUDITED),
                "start": t.datetime_start,
                "end": t.datetime_complete,
            }
            row |= t.params
            rows.append(row)
        frame = pd.DataFrame(rows, columns=None if rows else COLUMNS)
        for name in ("rounds", "seconds", "audited"):
            frame[name] = pd.to_numeric(frame[name], errors="coerce")
        unfinished = frame["rounds"].isna()
        if unfinished.any() and not self.rounds.empty:
            # A live trial has not told the study yet how far it is; its file has.
            frame.loc[unfinished, "rounds"] = frame.loc[unfinished, "number"].map(
                self.rounds.groupby("trial")["round"].max()
            )
        return frame

    @cached_property
    def lines(self) -> Lines:
        """What every trial measured, by round and seed."""
        return read_lines(self.path, [t.number for t in self.frozen])

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Tidy: one row per trial, round and seed, one column per metric (nan where not measured or not finite)."""
        from analysis.runs.rounds import tidy

        return tidy(self.lines)

    @cached_property
    def ends(self) -> Mapping[int, Mapping[str, float]]:
        """By trial that measured any, every metric's last value, mean over seeds (`last_values`).

        Of a trial whose folder was lost only the objectives are known, which the study holds."""
        found = last_values(self.lines)
        lost = {
            t.number: dict(zip(self.metrics, t.values, strict=False))
            for t in self.frozen
            if t.values and t.number not in found
        }
        return dict(sorted((found | lost).items()))

    @cached_property
    def finals(self) -> pd.DataFrame:
        """The same as a table, a row per trial; nan where a metric was not measured."""
        import pandas as pd

        columns = list(dict.fromkeys(name for row in self.ends.values() for name in row))
        index = pd.Index(list(self.ends), name="trial", dtype="int64")
        return pd.DataFrame(list(self.ends.values()), index=index, columns=columns, dtype=float)

    def measured(self, *numbers: int) -> dict[str, float]:
        """The mean of these trials' rows of `finals` by metric, as far as all are finite; reads their rounds alone."""
        rows = list(last_values(read_lines(self.path, numbers)).values())
        means = {name: sum(row[name] for row in rows) / len(rows) for name in (rows[0] if rows else ())}
        return {name: mean for name, mean in means.items() if not math.isnan(mean)}

    def completed(self, number: int) -> int:
        """Rounds that a trial has on record; reads that trial's rounds alone."""
        mine = read_lines(self.path, [number]).get(number, {})
        return max((round_ for round_, _ in mine), default=0)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """`rounds` averaged over seeds: trial, round, seeds (count), every metric, and `<metric>:std`."""
        import pandas as pd

        if self.rounds.empty:
            return pd.DataFrame(columns=["trial", "round", "seeds"])
        names = [c for c in self.rounds.columns if c not in ("trial", "round", "seed")]
        groups = self.rounds.groupby(["trial", "round"], sort=True)
        mean = groups[names].mean()
        spread = groups[names].std().add_suffix(":std")
        return pd.concat([groups.size().rename("seeds"), mean, spread], axis=1).reset_index()

    @cached_property
    def _by_seed(self) -> Mapping[int, Mapping[int, float]] | None:
        """The last values of the objective by trial and seed, of a search whose trials have several seeds each."""
        seeds = self.experiment.get("seeds")
        several = isinstance(seeds, list) and len(seeds) > 1 and not self.raced
        return by_seed(self.lines, self.metrics[0]) if several else None

    def last(self, number: int, metric: str) -> dict[int, float]:
        """A trial's last measured value of the metric by seed."""
        return readout(self.lines, number, metric, "last")

    def peak(self, number: int, metric: str, direction: str = "maximize") -> dict[int, float]:
        """A trial's best value of the metric over rounds by seed."""
        return readout(self.lines, number, metric, direction)
