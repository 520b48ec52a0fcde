"""The last words of `make demo`: the report, the best configuration, its final accuracy, and what was gained.

scripts/closing.py runs/demo runs/demo-final
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import yaml

from analysis.labels import Labels
from analysis.report.winner_card import fresh_verdict
from analysis.runs import load_run
from analysis.runs.final_runs import final_runs
from search_spaces import run_folder


def main(search: Path, final: Path) -> None:
    exported = yaml.safe_load((search / "best.yaml").read_text(encoding="utf-8"))
    best = ", ".join(f"{key} {exported['parameters'][key]:.4g}" for key in exported["searched"])
    reached = list(load_run(final).over_seeds("global_accuracy").values())
    model = next((final / run_folder.TRIALS).glob("*/model-*.json"))
    card = json.loads(model.read_text(encoding="utf-8"))
    print(f"Report          {search / run_folder.REPORT}")
    print(f"Best            {exported['method']} with {best}  ({search / 'best.yaml'})")
    print(
        f"Final accuracy  {statistics.fmean(reached):.4f} ± {statistics.stdev(reached):.4f} on the test set, "
        f"{len(reached)} fresh seeds"
    )
    searched = load_run(search)
    if verdict := fresh_verdict(searched, Labels.of([searched], markup=False), final_runs(searched)):
        print(f"Gain            {verdict}")
    print(f"Model           {model.with_suffix('.safetensors')}  ({card['model']} on {card['dataset']})")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
