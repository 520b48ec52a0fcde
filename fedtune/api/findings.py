"""What the object that a command returns shows of its run directory: tables, figures, the report, the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.figures import figures
from analysis.loaded import Loaded
from analysis.runs import Run
from analysis.runs import load_run as load
from search_spaces import run_folder
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    from torch import nn

    from trainables.zoo import Card


class Figures(Mapping[str, "go.Figure"]):
    """The figures of a run by name; each is drawn when it is asked for. Those that cannot be drawn are not there."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._known = {name: figure for name, figure in figures().items() if not figure.many}

    def __getitem__(self, name: str) -> go.Figure:
        """Raises `UserError` with the reason where a figure cannot be drawn, `KeyError` where there is none."""
        if name not in self._known:
            raise KeyError(name)
        return Loaded([self._run]).figure(name)

    def __contains__(self, name: object) -> bool:
        return name in self._known and self._known[str(name)].drawable(self._run)

    def __iter__(self) -> Iterator[str]:
        return (name for name, figure in self._known.items() if figure.drawable(self._run))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Findings:
    """What can be read of the run in `folder`."""

    folder: Path

    @cached_property
    def run(self) -> Run:
        """The run directory, read."""
        return load(self.folder)

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial, see `analysis.runs.Run.trials`."""
        return self.run.trials

    @property
    def leaderboard(self) -> pd.DataFrame:
        """The rows of `trials` that ran to their end, best first: of a search, one per configuration."""
        return self.run.trials.set_index("number", drop=False).loc[list(self.run.ranked)].reset_index(drop=True)

    @property
    def figures(self) -> Mapping[str, go.Figure]:
        """Plotly figures by name, such as `figures["heatmap"]`."""
        return Figures(self.run)

    @property
    def names(self) -> list[str]:
        """Every figure and table that can be asked for by name."""
        return Loaded([self.run]).names

    def figure(self, name: str, where: Mapping[str, Any] | None = None, metrics: Sequence[str] | str = ()) -> go.Figure:
        """The Plotly figure of that name, of the condition `where` and these `metrics`; see
        `analysis.loaded.Loaded.figure`."""
        return Loaded([self.run]).figure(name, where, metrics)

    def table(self, name: str, **options: Any) -> pd.DataFrame:
        """The table of that name, such as `pivot`; see `analysis.loaded.Loaded.table`."""
        return Loaded([self.run]).table(name, **options)

    def save(self, name: str, path: str | Path, *, kind: str | None = None, **options: Any) -> Path:
        """Writes a figure or a table to a file; see `analysis.loaded.Loaded.save`."""
        return Loaded([self.run]).save(name, path, kind=kind, **options)

    def report(self, output: str | Path | None = None) -> Path:
        """Writes the report and returns its path, by default `report.html` in the run directory."""
        from analysis.report import build

        return build(self.folder, output)

    def model(self, seed: int | None = None, client: int | None = None) -> Any:
        """The trained global model of a final run, or the own model of one of its clients, of the first seed or the one
        that is named, as of `fedtune.load_model`. Raises `UserError` where there is none."""
        return load_model(model_path(self.folder, seed, of_clients=client is not None), client)

    def _repr_html_(self) -> str:
        """For a notebook: what was found in a few lines, and the best trials."""
        run = self.run
        table = self.leaderboard[["number", "value", *run.keys]].head(5)
        counts = ", ".join(
            f"{count} {str(state).lower()}" for state, count in run.trials["state"].value_counts().items()
        )
        head = f"<b>{escape(run.method_title)}</b>: {escape(run.shown)}, {escape(counts or 'no trial yet')}"
        return f"<p>{head}</p>{table.to_html(index=False, float_format=lambda value: f'{value:.4g}')}"


#: How the names of the files begin that hold global models, and clients' own.
GLOBAL, CLIENTS = "model-", "clients-"


def model_files(folder: Path, start: str) -> list[Path]:
    """The files of that kind, one for each seed of a final run, in order."""
    return sorted((folder / run_folder.TRIALS).glob(f"*/{start}*.safetensors"))


def model_path(folder: Path, seed: int | None, *, of_clients: bool = False) -> Path:
    """The saved model of a final run, or the file with those of the clients. Raises `UserError` where there is none."""
    start, other = (CLIENTS, GLOBAL) if of_clients else (GLOBAL, CLIENTS)
    found = model_files(folder, start)
    named = [path for path in found if seed is None or path.stem == f"{start}{seed}"]
    if not found and model_files(folder, other):
        raise UserError(
            f"{folder} holds no models of clients, as its method has none of their own. Leave client out."
            if of_clients
            else f"{folder} holds no global model, as its method has none. Its clients have models: give client=0."
        )
    if not found:
        raise UserError(
            f"{folder} holds no models. A search keeps none; train its best configuration with fedtune.run."
        )
    if not named:
        seeds = ", ".join(path.stem.removeprefix(start) for path in found)
        raise UserError(f"{folder} holds no model of seed {seed}. It has: {seeds}.")
    return named[0]


def load_model(path: str | Path, client: int | None = None) -> tuple[nn.Module, Card]:
    """The network in evaluation mode with its weights, and its card (`trainables.zoo.Card`): of a global model
    (`model-<seed>.safetensors`), or of one of the clients (`clients-<seed>.safetensors`), which is named by `client`.

    Raises `UserError` where a file is missing or unreadable, or does not hold what is asked for."""
    of_clients = Path(path).name.startswith("clients-")
    if client is not None and not of_clients:
        raise UserError(f"{path} holds a global model. Leave client out, or name a file clients-<seed>.safetensors.")
    if client is None and of_clients:
        raise UserError(f"{path} holds the models of several clients. Say which one, such as client=0.")
    from trainables import zoo

    return zoo.load_model(path) if client is None else zoo.load_client_model(path, client)
