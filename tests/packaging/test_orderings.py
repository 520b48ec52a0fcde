"""scripts/orderings.py: the papers' orderings on the runs of scripts/results.sh, and in docs/results.md."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import orderings
import pytest
from scipy import stats

from search_spaces import run_folder
from tests.analysis import synthetic
from tests.packaging.test_results import OTHER

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results.md"
SEEDS = (5, 6, 7)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the section `rolex`, made up: DFRD far ahead at ρ = 10, as good as its base at ρ = 5."""
    root = tmp_path_factory.mktemp("runs")
    for run, shift, scatter in (
        ("fedrolex-10", 0.0, (0.0, 0.0, 0.0)),
        ("fedrolex-dfrd-10", 0.2, (0.01, -0.012, 0.004)),
        ("fedrolex-5", 0.0, (0.0, 0.0, 0.0)),
        ("fedrolex-dfrd-5", 0.0, (0.01, -0.012, 0.004)),
    ):
        folder = root / f"{OTHER}-{run}"
        synthetic.write(folder, keys=(), kind="run", seeds=SEEDS, failures=False, shift=shift)
        spread(folder, scatter)
    return root


def spread(run: Path, scatter: tuple[float, ...]) -> None:
    """Adds to every accuracy what `scatter` has for its seed."""
    for file in run.rglob(run_folder.ROUNDS):
        lines = [json.loads(line) for line in file.open()]
        for line in lines:
            for metric in ("global_accuracy", "local_accuracy"):
                line[metric] += scatter[SEEDS.index(line["seed"])]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def last(run: Path, metric: str) -> list[float]:
    """The metric's last value of every seed, as written."""
    found = {}
    for file in sorted(run.rglob(run_folder.ROUNDS)):
        for line in map(json.loads, file.open()):
            found[line["seed"]] = line[metric]
    return [found[seed] for seed in SEEDS]


def test_the_table_holds_paired_tests_corrected_within_a_part(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert orderings.main(["rolex", "--runs", str(runs), "--dataset", OTHER]) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["", "difference", "points", "p", "Holm", "seeds", "holds"] and len(rows) == 6
    for part, two in (("global", rows[2:4]), ("local", rows[4:6])):
        raw = []
        for row, rho in zip(two, (10, 5), strict=True):
            ahead, behind = (
                last(runs / f"{OTHER}-{run}-{rho}", f"{part}_accuracy") for run in ("fedrolex-dfrd", "fedrolex")
            )
            apart = 100 * np.subtract(ahead, behind)
            assert row[:2] == [part, f"DFRD − FedRolex, ρ = {rho}"]
            assert row[2] == f"{apart.mean():+.2f} ± {apart.std(ddof=1):.2f}".replace("-", "−")
            raw.append(float(stats.ttest_rel(ahead, behind).pvalue))
            assert row[3] == shown(raw[-1])
        small = min(raw)
        for row, p in zip(two, raw, strict=True):
            corrected = min(1, 2 * small) if p == small else max(p, min(1, 2 * small))
            assert row[4] == shown(corrected) and row[6] == ("yes" if corrected < 0.05 else "cannot tell")
    assert rows[2][6] == "yes" and rows[3][6] == "cannot tell"


def shown(p: float) -> str:
    """A p as the page shows it."""
    return "< 0.001" if p < 0.001 else format(p, ".3f" if p < 0.1 else ".2f")


def test_runs_that_are_missing_are_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert orderings.main(["rolex", "dhf", "--runs", str(runs), "--dataset", OTHER]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(
        f"The folder of runs must be one with all runs of the section, got {runs} without "
    )
    assert f"{OTHER}-p-dhf-0.5-dir_pfl, " in err and err.endswith("Make them with scripts/results.sh.\n")
