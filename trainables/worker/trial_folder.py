"""The folder of a trial: who may write to it, its checkpoint, its rounds, its log and its saved models.

Rows are appended to `rounds.jsonl`, and what clients keep is written to files of its own, before the checkpoint that
contains them is swapped in; files that it no longer needs are removed after that. So after a kill at any
moment the checkpoint's round and the rows up to it are complete.
"""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from search_spaces import files, kept_images, leftovers
from search_spaces.errors import EnvironmentFault
from search_spaces.run_folder import (
    CHECKPOINT,
    CONFIG,
    CONFUSION,
    LOG,
    PARTITION,
    ROUNDS,
    STATES,
    has_ended,
    remove_states,
)
from trainables.wire import Params
from trainables.worker import rounds_jsonl
from trainables.worker.process import disk_errors, is_out_of_memory
from trainables.worker.rounds_jsonl import Damaged, Row
from trainables.zoo import Card, save_clients, save_model

#: So many seconds a process lives on average, as far as the time between checkpoints goes.
MEAN_LIFE = 3600.0
#: The largest share of the running time that writing checkpoints may take.
CHECKPOINT_SHARE = 0.05
#: How long a trial waits for the process of a killed driver to let go of its folder, in seconds.
LOCK_SECONDS = 60.0
#: How names of files begin that are written in whole, beside their place first.
WRITTEN = (CHECKPOINT, CONFIG, CONFUSION, PARTITION, ROUNDS, STATES, "model-", "clients-", kept_images.PREFIX)


class Resumable(Protocol):
    """What a trial simulates, as far as its folder is concerned (see `trainables.simulation.replicates.Replicates`)."""

    @property
    def round(self) -> int: ...

    def keep_in(self, folder: Path) -> None:
        """From now on what is too much for the memory goes into files in `folder`."""

    def save(self, path: str | Path, *, merged: bool = False) -> Sequence[str]:
        """Saves it, and returns the names of the files beside `path` that belong to it: `merged` as few as can be."""

    def load(self, path: str | Path) -> Sequence[str]:
        """Goes on from there, and returns the same."""

    def partition(self) -> Mapping[str, Any]: ...


class TrialFolder:
    """The folder at `path`, made where there is none, and held until `close`.

    Raises `OSError` where it cannot be made, another process goes on writing to it, or it is a symbolic link."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        files.check_folder(path)
        self.path = path
        self.log = _locked(path)
        #: What `resume` found and mended, if anything.
        self.note: str | None = None
        self._saved_at, self._save_cost = time.monotonic(), 0.0

    def close(self) -> None:
        """Lets go of the folder."""
        self.log.close()

    def resume(self, simulation: Resumable, seeds: Sequence[int], *, ended: bool = False) -> list[Row]:
        """Puts `simulation` where the folder's checkpoint stands, if there is one, and returns the rows of the rounds
        up to it. `ended`: the trial had ended and is to be computed again.

        Raises `Damaged` where the folder does not hold what was written to it; then `simulation` is of no more use. And
        `EnvironmentFault` where the trial has ended meanwhile, in another process."""
        leftovers.clear(self.path, lambda name: name.startswith(WRITTEN))
        simulation.keep_in(self.path)
        checkpoint = self.path / CHECKPOINT
        rows: list[Row] = []
        over = has_ended(self.path)
        if over and not ended:
            raise EnvironmentFault("The trial has ended already, in another process.")
        if checkpoint.exists() and not over:
            self._check_partition(simulation)
            remove_states(self.path, _load(simulation, checkpoint))
            rows = rounds_jsonl.first_rows(self.path / ROUNDS, simulation.round, seeds)
        elif ended:
            raise Damaged(f"its {ROUNDS} is damaged")
        elif self._has_second_round(seeds):
            raise Damaged("its checkpoint is missing")
        # Rounds after the checkpoint are run again, to the same numbers. If their rows stayed, they would be there
        # twice.
        self.rewrite(rows)
        files.replace(self.path / PARTITION, json.dumps(simulation.partition()))
        return rows

    def start_over(self, why: Damaged) -> None:
        """Removes what was computed, and notes the reason in the log. The same rounds give the same numbers again."""
        self.log.write(f"{why} (the trial starts again from round 0)\n")
        images = [path.name for path in self.path.iterdir() if kept_images.of_name(path.name)]
        for name in (CHECKPOINT, CONFUSION, ROUNDS, *images):
            (self.path / name).unlink(missing_ok=True)
        remove_states(self.path)

    def _has_second_round(self, seeds: Sequence[int]) -> bool:
        """Whether more rounds were run than the first, after which there is always a checkpoint."""
        try:
            return files.read_bytes(self.path / ROUNDS).count(b"\n") > len(seeds)
        except FileNotFoundError:
            return False

    def _check_partition(self, simulation: Resumable) -> None:
        """Raises `Damaged` where the rounds so far were run on another partition. One that cannot be read is written
        again, and noted: nothing is computed from the file, and the partition of the first seed was compared with that
        in the run's record before the run went on."""
        try:
            before = json.loads(files.read_text(self.path / PARTITION))["hash"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self.note = f"its {PARTITION} could not be read, and is written again"
            self.log.write(f"{self.note}\n")
            return
        if before != simulation.partition()["hash"]:
            raise Damaged("its rounds were run on another partition")

    def rewrite(self, rows: Sequence[Row]) -> None:
        """Makes these rows all that the trial has."""
        rounds_jsonl.rewrite(self.path / ROUNDS, rows)

    def append(self, rows: Sequence[Row]) -> None:
        """Adds a round's rows to `rounds.jsonl`."""
        rounds_jsonl.append(self.path / ROUNDS, rows)

    def save_checkpoint(self, simulation: Resumable, *, last: bool, stays: bool = False) -> None:
        """Saves the round that has just ended: always where it is the trial's `last` or first, else after
        `between_checkpoints`. `stays`: the checkpoint will be there for as long as the run, and is made small."""
        due = time.monotonic() - self._saved_at >= between_checkpoints(self._save_cost)
        if not due and not last:
            return
        started = time.monotonic()
        path = self.path / CHECKPOINT
        with disk_errors(path), files.replacing(path, durable=True) as temporary:
            needed = simulation.save(temporary, merged=stays)
            # The rows first: a power cut must not leave a checkpoint without the rounds before it.
            files.sync(self.path / ROUNDS)
        remove_states(self.path, needed)
        self._saved_at, self._save_cost = time.monotonic(), time.monotonic() - started

    def save_model(self, seed: int, params: Params, card: Card) -> None:
        """Saves a seed's global model in place of the one that was there."""
        path = self.path / f"model-{seed}.safetensors"
        with disk_errors(path):
            save_model(path, params, card)

    def save_clients(self, seed: int, found: Mapping[int, tuple[Params, Card]]) -> None:
        """Saves the clients' own models of a seed in place of those that were there."""
        path = self.path / f"clients-{seed}.safetensors"
        with disk_errors(path):
            save_clients(path, found)

    def save_confusion(self, found: Mapping[int, Mapping[str, Any]]) -> None:
        """Saves what the global models of the last round take the samples of each class for, by seed; nothing where
        there is none."""
        if found:
            files.replace(self.path / CONFUSION, json.dumps({str(seed): counts for seed, counts in found.items()}))

    def save_images(self, round_: int | None, images: Mapping[int, Mapping[str, NDArray[np.generic]]]) -> None:
        """Saves what is kept of a round by seed; None: of the data."""
        for seed, arrays in images.items():
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # an array may be called as an option is
            files.replace(self.path / kept_images.name_of(seed, round_), buffer.getvalue())


def between_checkpoints(cost: float) -> float:
    """The seconds between two checkpoints that each take `cost` seconds to write: those for which writing them and
    computing again what a process that dies had not saved take least time together (Young, CACM 17, 1974: the square
    root of 2 × cost × `MEAN_LIFE`), and never less than `CHECKPOINT_SHARE` asks for."""
    return max(math.sqrt(2 * cost * MEAN_LIFE), cost / CHECKPOINT_SHARE)


def _load(simulation: Resumable, checkpoint: Path) -> Sequence[str]:
    """Loads a checkpoint, and returns the names of the files that belong to it. Raises `Damaged` where it is not one
    that was written for this simulation."""
    try:
        return simulation.load(checkpoint)
    except OSError:
        raise
    except Exception as error:  # zipfile, pickle and torch each have their own ways of refusing a broken file
        if is_out_of_memory(error):
            raise
        raise Damaged("its checkpoint is damaged") from error


def held_log(folder: Path) -> io.TextIOBase | None:
    """The log of the trial in this folder, which nobody else writes to until it is closed. None where another process
    does, such as a worker of a killed driver that may still be finishing its round."""
    file = os.fdopen(
        files.open_plain(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a", encoding="utf-8", buffering=1
    )
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:
        file.close()
        raise
    return file


def _locked(folder: Path) -> io.TextIOBase:
    """The trial's log, as soon as no other process writes to the folder."""
    deadline = time.monotonic() + LOCK_SECONDS
    while (log := held_log(folder)) is None:
        if time.monotonic() > deadline:
            raise OSError(f"another process still writes {folder / LOG}")
        time.sleep(0.1)
    return log
