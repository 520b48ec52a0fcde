"""What `fedtune.auto` returns: how far it has come, and what is to be read of its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis import auto as reading
from analysis.auto import Auto
from analysis.auto import LeaderboardRow as Row
from fedtune.api.run import Final, report
from fedtune.api.search import result_of
from fedtune.execution import driver
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class AutoResult:
    """How far it has come after a command, and what is to be read of it."""

    folder: Path
    finished: bool
    interrupted: bool = False
    seconds: float = 0.0
    #: What there is to read: leaderboard, runs, figures.
    auto: Auto = dataclasses.field(kw_only=True, repr=False)
    #: The leader's final run.
    final: Final | None = None

    @property
    def best(self) -> Row | None:
        """The leader's row of the leaderboard."""
        return None if self.auto.leader is None else self.auto.rows[0]

    @property
    def leader(self) -> str | None:
        """The best method's name."""
        return self.auto.leader

    @property
    def leaderboard(self) -> pd.DataFrame:
        """A row per method, the leader first, see `analysis.auto.Auto.leaderboard`."""
        return self.auto.leaderboard

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial of all methods, see `analysis.auto.Auto.trials`."""
        return self.auto.trials

    @property
    def figures(self) -> Mapping[str, go.Figure]:
        """The Plotly figures leaderboard, budget and expected; `auto.searches[METHOD]` has the runs of the methods."""
        return self.auto.figures

    def report(self, output: str | Path | None = None) -> Path:
        """Writes the report and returns its path, by default `report.html` in the folder."""
        from analysis.report import build

        return build(self.folder, output)

    def model(self, seed: int | None = None, client: int | None = None) -> Any:
        """The leader's global model of the final run, or the own model of a client, of its first seed or the one that
        is named, as of `fedtune.load_model`. Raises `UserError` where there is none."""
        if self.final is None:
            raise UserError(f"{self.folder} has no final run yet. Go on with fedtune.resume.")
        return self.final.model(seed, client)

    def _repr_html_(self) -> str:
        """For a notebook: the leaderboard."""
        table = self.auto.table()
        titles = [column.title for column in table.columns]
        return pd.DataFrame(table.cells(), columns=titles).to_html(index=False)

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json."""
        return {
            "folder": str(self.folder),
            "finished": self.finished,
            "interrupted": self.interrupted,
            "seconds": self.seconds,
            "leader": self.auto.leader,
            "leaderboard": self.auto.table().json(),
            "excluded": dict(self.auto.excluded),
            "final": None if self.final is None else self.final.to_json(),
        }


def read_auto(folder: str | Path) -> AutoResult:
    """What `auto` wrote to `folder`."""
    found = reading.load(folder)
    final = found.final
    done = report(result_of(final.path, driver.Outcome(True))) if found.over and final is not None else None
    return AutoResult(found.path, found.over, auto=found, final=done)
