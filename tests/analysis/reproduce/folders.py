"""Finished reproductions of made-up values, as `fedtune reproduce` would leave them."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from analysis.reproduce.declaration import Place, Reproduction, Row, declared
from analysis.reproduce.folder import Made, ReproductionRecord, Setting, cell_name, load_made
from search_spaces import kept_images, run_folder
from tests.analysis import synthetic
from tests.analysis.figures import kept

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


def curves(folder: Path) -> Made:
    """FedKF's Fig. 6, whose second row is better in every round."""
    return _every(folder, "fedkf-fig6", Setting("cifar10", "resnet8", 20, 100, 3), rounds=6)


def shares(folder: Path) -> Made:
    """FedKF's Fig. 8: two rows, of which the second is better the more clients take part."""
    theirs = Setting("cifar10", "resnet8", 20, 100, 3)
    return _every(folder, "fedkf-fig8", theirs, {"active_clients": "S"}, grows="active_clients")


def partitions(folder: Path) -> Made:
    """FedKF's Fig. 4: the smaller ω, the more of a client's samples are of one class."""
    made = _every(folder, "fedkf-fig4", Setting("cifar10", "resnet8", 20, 1, 3), {"omega": "ω"}, rounds=1)
    for (_, (omega,)), run in made.runs.items():
        for number, seed in enumerate((1000, 1001, 1002)):
            counts = np.full((10, 10), 1 + seed % 10) + np.eye(10, dtype=int) * round(10 / omega)
            path = run.path / run_folder.trial_folder(number) / run_folder.PARTITION
            path.write_text(json.dumps({str(seed): counts.tolist()}))
    return load_made(folder)


def painted(folder: Path) -> Made:
    """DFRD's Figs. 13-18, of which three rows have kept images."""
    made = _every(folder, "dfrd-fig13", Setting("svhn", "cnn", 10, 200, 3))
    for row in made.reproduction.rows[:3]:
        trial = made.runs[row.name, ()].path / run_folder.trial_folder(0)
        for round_ in (1, 5):
            arrays = kept.of_round("generator", 40 * round_, [64, 64]) | kept.of_round("ema", 30 * round_, [64, 64])
            np.savez_compressed(trial / kept_images.name_of(1000, round_), **arrays)
        data = {"data": kept.grey(200, 2, 2), "data_mean": kept.grey(200, 2), "data_count": np.array([50, 50])}
        np.savez_compressed(trial / kept_images.name_of(1000, None), **data)
    return load_made(folder)


def attacked(folder: Path) -> Made:
    """FedMD-CG's Fig. 4: the same two images of every method, the better rebuilt the later its row."""
    made = _every(folder, "fedmdcg-fig4", Setting("emnist_digits", "lenet_code", 20, 1, 5), rounds=1)
    for number, row in enumerate(made.reproduction.rows):
        originals = np.stack([np.full((1, 8, 8), level, dtype=np.uint8) for level in (10, 120)])
        np.savez_compressed(
            made.runs[row.name, ()].path / run_folder.ATTACK,
            original=originals,
            recovered=originals + number,
            psnr=np.array([5.0 + number, 6.0 + number]),
            label=np.arange(2),
            client=np.zeros(2, dtype=np.int64),
            trial=np.array(0),
        )
    return load_made(folder)


def _every(
    folder: Path,
    name: str,
    theirs: Setting,
    symbols: dict[str, str] | None = None,
    rounds: int = 5,
    grows: str = "",
) -> Made:
    """All cells of a reproduction, every row a little better than the one before; more so with the condition
    `grows`."""
    one = declared(name)
    for number, row in enumerate(one.rows):
        for place in one.places:
            by = one.condition(row, place).get(grows, 1)
            _final(folder, one, row, place, rounds, shift=0.01 * number * by)
    return _recorded(folder, ReproductionRecord(name, "small", HERE, theirs, symbols or {}))


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
        fixed=one.condition(row, place),
    )


def _recorded(folder: Path, record: ReproductionRecord) -> Made:
    (folder / run_folder.REPRODUCTION).write_text(yaml.safe_dump(record.to_yaml(), allow_unicode=True))
    return load_made(folder)
