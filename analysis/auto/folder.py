"""The folder that `fedtune auto` makes, in memory: its runs and what they say together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.auto.leaderboard import LeaderboardRow, leaderboard_rows, leaderboard_table
from analysis.auto.record import AutoRecord
from analysis.runs import Paths, Run, load_run
from analysis.runs.symbolic_links import check_plain_parts
from analysis.tables.table import Table
from search_spaces import files, run_folder

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from analysis.auto.figures import AutoFigure

#: A method whose p is above this is not told from the leader.
RISK = 0.05
_FILES = (run_folder.AUTO, run_folder.LOCK, run_folder.REPORT)
_PARTS = (run_folder.SEARCHES, run_folder.BEST, run_folder.FRESH, run_folder.FINAL)


@dataclass(frozen=True)
class Auto:
    """One search over several methods."""

    path: Path
    record: AutoRecord
    #: By method, in the order of the request.
    searches: Mapping[str, Run]
    #: Every method's best configuration on fresh seeds, as far as they were begun.
    fresh: Mapping[str, Run]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def metric(self) -> str:
        """The metric that was selected by."""
        return self.record.metric

    @property
    def excluded(self) -> dict[str, str]:
        """The methods that could not take part, and why."""
        return {one.name: one.why for one in self.record.excluded}

    @cached_property
    def rows(self) -> Sequence[LeaderboardRow]:
        """The leaderboard, the leader first."""
        return leaderboard_rows(self.searches, self.fresh, self.metric, self.record.fresh)

    @property
    def leader(self) -> str | None:
        """The first method of the leaderboard; None while no trial ran to its end."""
        return next((row.method for row in self.rows if row.trial is not None), None)

    @property
    def leaderboard(self) -> pd.DataFrame:
        """The leaderboard, a row per method with the leader first: the fields of `analysis.auto.LeaderboardRow`, the
        number of fresh `seeds`, and the best `configuration` as text."""
        import pandas as pd

        return pd.DataFrame([row.record() for row in self.rows])

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial of all searches, as in `Run.trials`, with `method` and `place`, the trial's place among
        all."""
        import pandas as pd

        found = []
        for name, run in self.searches.items():
            places = {trial.number: trial.user_attrs.get(run_folder.PLACE) for trial in run.frozen}
            found.append(run.trials.assign(method=name, place=run.trials["number"].map(places)))
        whole = pd.concat([frame for frame in found if len(frame)] or found)
        return whole.sort_values("place").reset_index(drop=True)

    @cached_property
    def final(self) -> Run | None:
        """The leader's final run, where it was begun."""
        folder = self.path / run_folder.FINAL / str(self.leader)
        return load_run(folder) if self.leader is not None and folder.is_dir() else None

    @property
    def over(self) -> bool:
        """Whether every seed of the leader's final run has ended."""
        final = self.final
        if final is None:
            return False
        planned = self.record.final if self.record.clock is None else int(final.experiment["trials"])
        return len(final.frozen) >= planned and all(trial.state.is_finished() for trial in final.frozen)

    def drawable(self) -> dict[str, AutoFigure]:
        """The figures that can be drawn by now."""
        from analysis.auto.figures import FIGURES

        ready = {
            "leaderboard": any(row.fresh for row in self.rows),
            "budget": any(row.seed_rounds for row in self.rows),
            "expected": any(row.done or row.stopped for row in self.rows),
        }
        return {name: figure for name, figure in FIGURES.items() if ready[name]}

    @cached_property
    def figures(self) -> dict[str, go.Figure]:
        """The figures that can be drawn by now: leaderboard, budget, expected."""
        return {name: figure.draw(self.rows, self.metric) for name, figure in self.drawable().items()}

    @property
    def tied(self) -> list[LeaderboardRow]:
        """The methods that the tests on fresh seeds do not tell from the leader."""
        return [row for row in self.rows[1:] if row.fresh and self.rows[0].fresh and not row.p <= RISK]

    def untold(self) -> list[str]:
        """The sentence that names the methods that the tests do not tell from the leader, where there are any."""
        names = [row.method for row in self.tied]
        if not names:
            return []
        apart = f"Not told from {self.leader} by the test (p above {RISK:g}): {', '.join(names)}."
        return [f"{apart} More --fresh-seeds tell more."]

    def table(self) -> Table:
        """The leaderboard for the terminal and the report."""
        notes = [f"{name} was left out: {why}." for name, why in self.excluded.items()]
        return leaderboard_table(self.rows, self.metric, notes, required=bool(self.record.require))


def explained(auto: Auto) -> list[str]:
    """What the columns of the leaderboard mean, for the terminal and the report."""
    from analysis.labels import Labels

    required = [f"kept: whether the fresh mean keeps {' and '.join(auto.record.require)}."]
    metric, had = Labels().metric(auto.metric, unit=False), [len(run.frozen) for run in auto.fresh.values()]
    few, most = (min(had), max(had)) if had else (auto.record.fresh, auto.record.fresh)
    count = f"{most}" if few == most else f"{few} to {most}"
    return [
        f"fresh ±: mean {metric} over {count} seed{'s' * (most > 1)} that the search never saw, and half of its 95 % "
        f"interval; test: the same models on test data.",
        "diff, p: mean difference to the leader on the same seeds; paired t test with Holm's correction.",
        "search: what the search expected; trials, rounds: what the search spent, in rounds of single federations.",
        *auto.untold(),
        *(required if auto.record.require else []),
    ]


def load_one(run: Paths) -> Auto | None:
    """What `fedtune auto` wrote to `run`; None where that is another run, or several. Raises `UserError` as `load`."""
    path = run if isinstance(run, (str, os.PathLike)) else run[0] if len(run) == 1 else None
    return load(path) if isinstance(path, (str, os.PathLike)) and AutoRecord.is_in(path) else None


def load(path: str | os.PathLike[str]) -> Auto:
    """What `fedtune auto` wrote to `path`. Raises `UserError` where that is something else, or holds a symbolic
    link."""
    folder = files.given(path)
    check_plain_parts(folder, _FILES, _PARTS)
    record = AutoRecord.read(folder)
    names = [one.name for one in record.methods]
    searches = {name: load_run(folder / run_folder.SEARCHES / name) for name in names}
    fresh = {
        name: load_run(folder / run_folder.FRESH / name)
        for name in names
        if (folder / run_folder.FRESH / name).is_dir()
    }
    return Auto(folder.resolve(), record, searches, fresh)
