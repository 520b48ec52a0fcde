"""From what `fedtune reproduce` was asked for to the runs that make it up, with every problem of the request found
first. What is there already must belong to the same plan."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.reproduce.declaration import VALUE, Place, Reproduction, Row, declared
from analysis.reproduce.folder import ReproductionRecord as Record
from analysis.reproduce.folder import Setting, cell_name, check_plain_made
from fedtune import option
from fedtune.options import ReproduceRequest, RunRequest, SearchRequest
from fedtune.planning.checks import writable
from fedtune.planning.plan import middle_values
from fedtune.planning.settings import Settings, settled
from fedtune.record.experiment import Experiment, final_seeds, search_seeds
from fedtune.record.storage import check_uri, folder_name
from search_spaces import run_folder
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.files import given
from search_spaces.parameter import Value
from search_spaces.shell import join


def command(asked: ReproduceRequest, **changes: Any) -> str:
    """The command line that asks for this, or for the same with `changes`."""
    asked = dataclasses.replace(asked, **changes)
    words = ["fedtune", "reproduce", asked.name, *(["--small"] if asked.small else [])]
    given: dict[str, object] = {"rows": ",".join(asked.rows) or None}
    given |= {"rounds": asked.rounds, "seeds": asked.seeds, "dataset": asked.dataset}
    given["runs-dir"] = None if asked.runs_dir == "runs" else asked.runs_dir
    given["storage"] = asked.storage
    words += [word for column in asked.columns for word in ("--columns", column)]
    return join([*words, *(w for k, v in given.items() if v is not None for w in (f"--{k}", str(v)))])


@dataclass(frozen=True)
class PlannedRun:
    """One run: a cell of a table, or the grid of a heat map."""

    row: Row
    place: Place
    folder: Path
    request: SearchRequest | RunRequest
    settings: Settings

    @property
    def exists(self) -> bool:
        return self.folder.exists()

    @property
    def is_grid(self) -> bool:
        """Whether it is a search over a grid, and no final run."""
        return isinstance(self.request, SearchRequest)

    @property
    def seeds(self) -> int:
        """Of a final run, or of every trial of a grid."""
        return self.request.seeds or 1

    @property
    def trials(self) -> int:
        """How many trials the run has: the seeds of a cell, or the points of a grid."""
        return self.settings.space.cells() if self.is_grid else self.seeds

    @property
    def each(self) -> int:
        """How many seeds a trial has."""
        return self.seeds if self.is_grid else 1

    def values(self) -> dict[str, Value]:
        """Every parameter, of a grid in its middle."""
        from trainables import registry

        settings = self.settings
        middle = middle_values(settings.space.search.values()) if self.is_grid else {}
        return registry.possible(self.row.method, {**settings.defaults, **settings.values, **middle}).values


@dataclass(frozen=True)
class ReproductionPlan:
    """What is to be made now."""

    asked: ReproduceRequest
    folder: Path
    reproduction: Reproduction
    record: Record
    #: Those of the rows and columns that were asked for.
    parts: tuple[PlannedRun, ...]

    @property
    def is_declared(self) -> bool:
        """Whether these are the rounds of which the reproduction declares the seconds."""
        is_whole = (self.asked.rows, self.asked.columns, self.asked.dataset) == ((), (), None)
        return is_whole and self.asked.small


def plan_reproduction(asked: ReproduceRequest) -> ReproductionPlan:
    """Checks all of a request and what is in its folder. Raises one `UserError` with every problem; writes nothing."""
    problems: list[str] = []
    reproduction = declared(asked.name)
    if asked.dataset is not None:
        asked = dataclasses.replace(asked, dataset=reproduction.meant(asked.dataset))
    problems.extend(option.problems(asked))
    folder = _folder(asked, problems)
    _check_storage(asked.storage, folder.name, problems)
    chosen = _chosen(asked, reproduction, problems)
    if problems:
        raise UserError(*problems)
    parts = tuple(
        _part(asked, reproduction, folder, row, place, problems)
        for row in reproduction.rows
        for place in reproduction.places
    )
    if problems:
        raise UserError(*dict.fromkeys(problems))
    record = _record(asked, reproduction, parts[0])
    if folder.exists():
        _same_plan(asked, folder, record, parts)
    # What is one cell of several rows is run once.
    wanted = {part.folder: part for part in parts if (part.row.name, part.place) in chosen}
    return ReproductionPlan(asked, folder, reproduction, record, tuple(wanted.values()))


def planned_again(folder: Path) -> ReproductionPlan:
    """What was begun in `folder`: the rows and columns of which there is a run. Raises `UserError` as
    `plan_reproduction`."""
    check_plain_made(folder)
    record = Record.read(folder)
    here, small = record.here, record.profile == "small"
    asked = ReproduceRequest(
        record.reproduction, small=small, rounds=here.rounds, seeds=here.seeds, runs_dir=str(folder.parent)
    )
    if folder.name != (name := _name(asked)):
        asked = dataclasses.replace(asked, dataset=here.dataset)
    begun = sorted(path for path in (folder / run_folder.CELLS).glob("*") if path.is_dir())
    if begun:
        asked = dataclasses.replace(asked, data_dir=Experiment.read(begun[0]).data_dir)
    planned = plan_reproduction(asked)
    if planned.folder.name != folder.name:
        raise UserError(f"{folder} was renamed. Give it the name back that it was made with, which begins with {name}.")
    return dataclasses.replace(planned, parts=tuple(part for part in planned.parts if part.exists) or planned.parts)


def _chosen(asked: ReproduceRequest, reproduction: Reproduction, problems: list[str]) -> set[tuple[str, Place]]:
    """The row and the condition of every run that is asked for."""
    if reproduction.heatmap and (asked.rows or asked.columns):
        given = " ".join((*asked.rows, *asked.columns))
        must = f"left out for {reproduction.name}, a heat map, which is one search"
        problems.append(sentence("--rows and --columns", must, Shown(given)))
        return set()
    rows = reproduction.chosen_rows(asked.rows, problems)
    places = reproduction.chosen_places(asked.columns, problems)
    return {(row, place) for row in rows for place in places}


def _name(asked: ReproduceRequest) -> str:
    """`fedkf-table5-small`; data of the user's choice are part of the name."""
    on = "" if asked.dataset is None else "-" + re.sub(r"[^A-Za-z0-9._-]+", "-", Path(asked.dataset).stem)[:40]
    return f"{asked.name}{'-small' if asked.small else ''}{on}"


def _folder(asked: ReproduceRequest, problems: list[str]) -> Path:
    """Where it is made."""
    folder = given(asked.runs_dir, "--runs-dir").resolve() / _name(asked)
    check_plain_made(folder)
    if not folder.exists():
        writable(folder.parent, "--runs-dir", problems)
    elif not folder.is_dir() or (any(folder.iterdir()) and not Record.is_in(folder)):
        problems.append(
            f"{folder} exists and was not made by `fedtune reproduce`. Move it away, or give another --runs-dir."
        )
    return folder


def _check_storage(uri: str | None, name: str, problems: list[str]) -> None:
    """Adds a problem where a mirror cannot be kept there, or where the folder that `fedtune resume URI` makes would
    have another name than this one."""
    before = len(problems)
    check_uri(uri, problems)
    if uri is not None and len(problems) == before and folder_name(uri) != name:
        fix = f"Write it as {uri.partition('?')[0].rstrip('/')}/{name}."
        problems.append(sentence("storage", f"a URI that ends with the folder's name, {name}", uri, "--storage", fix))


def _part(
    asked: ReproduceRequest, reproduction: Reproduction, folder: Path, row: Row, place: Place, problems: list[str]
) -> PlannedRun:
    from trainables import registry

    cells, name = folder / run_folder.CELLS, cell_name(reproduction, row, place)
    rounds, seeds = size(asked, reproduction)
    paper = next(iter(reproduction.datasets))
    values = {**reproduction.values, **row.values, **reproduction.condition(row, place)}
    if asked.small:
        share = registry.declared(row.method)["validation_fraction"].default
        values = {"validation_fraction": share, **reproduction.small_values, **values}
    else:
        values = {**reproduction.on(reproduction.dataset(asked.dataset), row.method), **values}
    values = {"eval_test": "every", **values}  # of a grid too, whose page may draw curves
    shared: dict[str, Any] = {
        "space": row.space,
        "dataset": asked.dataset or (None if asked.small else paper),
        "data_dir": asked.data_dir,
        "paper": not asked.small,
        "rounds": rounds,
        "seeds": seeds,
        "set": values,
        "name": str(cells / name),
        "keep_images": reproduction.keeps_images,
        "slots": asked.slots,
        "storage": asked.storage,
    }
    request: SearchRequest | RunRequest = (
        SearchRequest(row.method, sampler="grid", scheduler="none", **shared)
        if reproduction.heatmap
        else RunRequest(row.method, **shared)
    )
    return PlannedRun(row, place, cells / name, request, settled(request, problems))


def size(asked: ReproduceRequest, reproduction: Reproduction) -> tuple[int | None, int]:
    """How many rounds (None: those of the paper's profile) and seeds are asked for."""
    rounds, seeds = (reproduction.small_rounds, reproduction.small_seeds) if asked.small else (None, reproduction.seeds)
    return asked.rounds or rounds, asked.seeds or seeds


def _record(asked: ReproduceRequest, reproduction: Reproduction, first: PlannedRun) -> Record:
    """What is planned here, beside what the paper did."""
    from trainables import registry

    dataset = reproduction.dataset(asked.dataset)
    values = {**reproduction.on(dataset, first.row.method), **reproduction.values, **first.row.values}
    request = dataclasses.replace(first.request, paper=True, dataset=dataset, rounds=None, set=values)
    theirs = settled(request, [])
    declarations = registry.declared(first.row.method)
    symbols = {
        key: declarations[key].symbol or key for key in (*reproduction.columns, *theirs.space.search) if key != VALUE
    }
    if varied := [symbols[row.varies] for row in reproduction.rows if row.varies]:
        symbols[VALUE] = varied[0].partition("_")[0].rstrip("₀₁₂₃₄₅₆₇₈₉")
    return Record(
        reproduction.name,
        "small" if asked.small else "paper",
        _setting(first.settings, size(asked, reproduction)[1], asked.data_dir),
        _setting(theirs, reproduction.seeds, asked.data_dir),
        symbols,
    )


def _setting(settings: Settings, seeds: int, data_dir: str | None) -> Setting:
    from trainables import data
    from trainables.simulation.federated_data import resolve_model

    dataset = str(settings.value("dataset"))
    shape = (data.describe(dataset) if dataset in data.names() else data.load(dataset, data_dir)).shape
    clients, rounds = settings.value("clients"), settings.value("rounds")
    return Setting(dataset, resolve_model(str(settings.value("model")), shape), int(clients), int(rounds), seeds)


# -- what is there already -----------------------------------------------------------------------------------------


def _same_plan(asked: ReproduceRequest, folder: Path, record: Record, parts: tuple[PlannedRun, ...]) -> None:
    """Raises `UserError` where the folder, or a run in it, was begun with another plan."""
    if not Record.is_in(folder):
        return  # an empty folder
    begun = Record.read(folder)
    changed = [
        f"{getattr(begun.here, name)} {words}, not {getattr(record.here, name)}"
        for name, words in (("rounds", "rounds"), ("seeds", "seeds"))
        if getattr(begun.here, name) != getattr(record.here, name)
    ]
    if begun.here.dataset != record.here.dataset:
        changed.append(f"the data set {begun.here.dataset}, not {record.here.dataset}")
    if begun.reproduction != record.reproduction or begun.profile != record.profile:
        changed.append(f"{begun.reproduction} ({begun.profile}), not {record.reproduction} ({record.profile})")
    if changed:
        again = command(asked, rounds=begun.here.rounds, seeds=begun.here.seeds)
        raise UserError(
            f"{folder} was begun with {' and '.join(changed)}: go on with `{again}`, or give another --runs-dir."
        )
    for part in parts:
        if part.exists:
            _same_run(part)


def _same_run(part: PlannedRun) -> None:
    """Raises `UserError` where the run of a part is another one than would be begun now."""
    found = Experiment.read(part.folder)
    wanted = {key: value for key, value in _values(part).items() if value != "auto"}
    differing = [key for key, value in wanted.items() if found.values.get(key, value) != value]
    seeds = search_seeds(0, part.seeds) if part.is_grid else final_seeds(0, part.seeds)
    if found.method != part.row.method or found.seeds != seeds:
        differing.append("method or seeds")
    if differing:
        key = differing[0]
        how = f"{key} {found.values.get(key)}, not {wanted[key]}" if key in wanted else f"another {key}"
        raise UserError(
            f"{part.folder} was begun with {how}, so it does not belong to this plan. Move it away, or give another "
            f"--runs-dir."
        )


def _values(part: PlannedRun) -> dict[str, object]:
    """Every value of the run that is the same in all its trials."""
    if part.is_grid:
        return dict(part.settings.values)
    return {**part.settings.defaults, **part.settings.values}
