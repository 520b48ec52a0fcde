"""Trials whose results a search takes from earlier runs: their folders in the new run directory.

A folder holds what a trial writes that readers need: `config.yaml`, `partition.json`, `rounds.jsonl`. There is no
checkpoint, as the trial has ended. The study gets these trials when the run is first driven
(`fedtune.execution.imported_trials`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces import files, run_folder
from search_spaces.parameter import Value
from trainables.worker import rounds_jsonl
from trainables.worker.rounds_jsonl import Row


@dataclass(frozen=True)
class TakenTrial:
    """A complete trial of an earlier run, checked."""

    #: The searched parameters by key.
    values: Mapping[str, Value]
    #: One for each round and seed, in that order.
    rows: Sequence[Row]
    #: What `partition.json` holds.
    partition: Mapping[str, Any]


def write(place: Path, trial: TakenTrial) -> None:
    """Makes the trial's folder `place`, without the `config.yaml`. Raises `OSError` where the disk refuses."""
    place.mkdir()
    files.replace(place / run_folder.PARTITION, json.dumps(trial.partition))
    rounds_jsonl.rewrite(place / run_folder.ROUNDS, trial.rows)
