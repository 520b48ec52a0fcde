"""Finished reproductions of made-up values, as `fedtune reproduce` would leave them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from analysis.reproduce.declaration import Place, Reproduction, Row, declared
from analysis.reproduce.folder import Made, ReproductionRecord, Setting, cell_name, load_made
from search_spaces import run_folder
from tests.analysis import synthetic

HERE, PAPER = Setting("digits", "cnn_small", 10, 5, 3), Setting("svhn", "cnn", 10, 200, 3)
#: DFRD's Table 1 on the paper's terms, so that every number is compared.
SAME = Setting("fmnist32", "lenet_code", 10, 200, 3)
FASHION = ReproductionRecord("dfrd-table1", "paper", SAME, SAME, {"omega": "ω"})


def heatmap(folder: Path, **changes: Any) -> Made:
    """DFRD's Fig. 5, with a hill at α = 0.8, λ = 0.7."""
    settings: dict[str, Any] = {"sampler": "grid", "seeds": (0, 1), "rounds": 5, "failures": False}
    synthetic.write(folder / run_folder.CELLS / "01-dfrd", **settings | changes)
    record = ReproductionRecord("dfrd-fig5", "small", HERE, PAPER, {"alpha": "α", "lambda": "λ"})
    return _recorded(folder, record)


def table(folder: Path) -> Made:
    """FedKF's Table V, every row a little better than the one before; the last cell has not been run."""
    one = declared("fedkf-table5")
    for number, row in enumerate(one.rows):
        for place in one.places:
            if (number, place) != (len(one.rows) - 1, one.places[-1]):
                _final(folder, one, row, place, rounds=5, shift=0.01 * number)
    theirs = Setting("emnist_letters32", "resnet8", 20, 100, 3)
    return _recorded(folder, ReproductionRecord(one.name, "small", HERE, theirs, {"omega": "ω"}))


def brackets(
    folder: Path,
    rounds: int = 20,
    rows: Collection[str] = ("FedAvg", "+ DFRD"),
    record: ReproductionRecord | None = None,
) -> Made:
    """Two rows of DFRD's Table 1, read in the best round, with the local accuracy in brackets; by default in small."""
    one = declared("dfrd-table1")
    for row in (row for row in one.rows if row.name in rows):
        for place in one.places:
            _final(folder, one, row, place, rounds, shift=0.1 * (row.method == "dfrd"))
    return _recorded(folder, record or ReproductionRecord(one.name, "small", HERE, PAPER, {"omega": "ω"}))


def lines(folder: Path) -> Made:
    """FedMD-CG's Fig. 6, of which two rows have been run at three values: one is equally good at all, one falls."""
    one = declared("fedmdcg-fig6")
    for row, fall in ((one.rows[0], 0.0), (one.rows[4], 0.1)):
        for place in ((0,), (0.5,), (1.0,)):
            _final(folder, one, row, place, rounds=5, shift=fall * (place[0] - 1))
    theirs = Setting("fmnist", "lenet_code_64", 10, 100, 5)
    return _recorded(folder, ReproductionRecord(one.name, "small", HERE, theirs, {"value": "λ"}))


def _final(folder: Path, one: Reproduction, row: Row, place: Place, rounds: int, shift: float) -> None:
    """The cell of one row and condition, run with three seeds."""
    if (folder / run_folder.CELLS / cell_name(one, row, place)).exists():
        return
    synthetic.write(
        folder / run_folder.CELLS / cell_name(one, row, place),
        keys=(),
        trials=1,
        seeds=(1000, 1001, 1002),
        kind="run",
        rounds=rounds,
        method=row.method,
        shift=shift,
        failures=False,
        published=None,
        fixed=one.condition(row, place),
    )


def _recorded(folder: Path, record: ReproductionRecord) -> Made:
    (folder / run_folder.REPRODUCTION).write_text(yaml.safe_dump(record.to_yaml(), allow_unicode=True))
    return load_made(folder)
