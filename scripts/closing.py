"""The last words of `make demo`: the report, the best configuration, its final accuracy.

    scripts/closing.py runs/demo runs/demo-final
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import optuna
import yaml

from search_spaces import run_folder


def main(search: Path, final: Path) -> None:
    exported = yaml.safe_load((search / "best.yaml").read_text(encoding="utf-8"))
    best = ", ".join(f"{key} {exported['parameters'][key]:.4g}" for key in exported["searched"])
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{final / run_folder.STUDY}")
    reached = [trial.user_attrs["metric:global_accuracy"] for trial in study.trials]
    model = next((final / run_folder.TRIALS).glob("*/model-*.json"))
    card = json.loads(model.read_text(encoding="utf-8"))
    print(f"Report          {search / run_folder.REPORT}")
    print(f"Best            {exported['method']} with {best}  ({search / 'best.yaml'})")
    print(f"Final accuracy  {statistics.fmean(reached):.4f} ± {statistics.stdev(reached):.4f} on the test set, {len(reached)} fresh seeds")
    print(f"Model           {model.with_suffix('.safetensors')}  ({card['model']} on {card['dataset']})")


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
