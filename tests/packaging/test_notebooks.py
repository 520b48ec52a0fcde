"""The notebooks of examples/ are kept without outputs, name only what there is, and run from their first cell to the
last."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import fedtune

ROOT = Path(__file__).resolve().parents[2]


def executed(path: Path, folder: Path) -> dict[str, list[Any]]:
    """The outputs by cell of a notebook that is run in `folder`, with the code of this repository."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1"}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute(
        env={**os.environ, **environment}
    )
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def shown(outputs: list[Any], kind: str = "text/plain") -> str:
    """What a cell shows, its last value included."""
    return "".join(o.text if o.output_type == "stream" else o.data.get(kind, "") for o in outputs)


def complaints(made: dict[str, list[Any]]) -> str:
    """What was written to stderr, which a notebook shows as if it were a fault."""
    return "".join(o.text for outputs in made.values() for o in outputs if o.get("name") == "stderr")


def test_the_search_runs_in_a_notebook(tmp_path: Path) -> None:
    made = executed(shutil.copy(ROOT / "examples" / "search.ipynb", tmp_path / "copy.ipynb"), tmp_path)
    assert complaints(made) == ""
    # Progress is one output that was drawn anew, and its last line stays.
    bars = [o for o in made["search"] if o.output_type == "display_data"]
    assert len(bars) == 1 and "6 of 6 trials" in bars[0].data["text/html"]
    assert "<b>FedProx</b>" in shown(made["search"], "text/html")
    found = fedtune.load(tmp_path / "runs" / "notebook")
    assert found.best is not None and str(found.best.params) in shown(made["best"])
    assert all(f" {state}" in shown(made["trials"]) for state in found.trials["state"])
    assert "mu" in shown(made["leaderboard"])
    (figure,) = (o.data["application/vnd.plotly.v1+json"] for o in made["heatmap"])
    assert figure["data"]
    assert (tmp_path / "runs" / "notebook" / "report.html").is_file() and "report.html" in shown(made["report"])
    assert "1 of 1 seeds: 1 done" in shown(made["final"])
    assert "cnn_small (1, 8, 8) 10" in shown(made["model"])
    assert shown(made["load"]) == "True"


def test_a_search_over_methods_runs_in_a_notebook(tmp_path: Path) -> None:
    made = executed(shutil.copy(ROOT / "examples" / "auto.ipynb", tmp_path / "copy.ipynb"), tmp_path)
    assert complaints(made) == ""
    found = fedtune.load(tmp_path / "runs" / "methods")
    assert found.finished and {"fedper", "fedrod"} == {str(name) for name in found.leaderboard["method"]}
    # One output each: planning, the search, the fresh seeds, the final run.
    told = [o.data["text/plain"] for o in made["auto"] if o.output_type == "display_data"]
    # Of the 24 rounds 14 are the search's, and a trial takes two: where one is stopped, one round may be left.
    assert len(told) == 4 and re.findall(r"(\d+) % of the budget", told[1])[-1] in ("93", "100")
    assert "4 of 4 seeds" in told[2] and "1 of 1 seeds" in told[3]
    assert shown(made["auto"], "text/html").count("<table") == 1
    assert shown(made["leaderboard"]).startswith(f"{found.leader}\n")
    (figure,) = (o.data["application/vnd.plotly.v1+json"] for o in made["figure"])
    assert figure["data"] and (tmp_path / "runs" / "methods" / "report.html").is_file()
    assert shown(made["model"]) == f"{found.leader} 0 (1, 8, 8) 10\n"
    assert shown(made["load"]) == "True\n['fedper', 'fedrod']"
