"""What a case works with: commands in processes of their own, an empty folder, and two runs that all cases share."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from tests.end_to_end.cli import SMALL
from tests.faults import outcome, processes
from tests.faults.outcome import Done
from tests.toy import write_toy

#: Rounds of milliseconds, of which some trials are stopped early; two trials at a time.
BUDGET = (
    "--trials",
    6,
    "--rounds",
    8,
    "--seeds",
    2,
    "--no-race",
    "--metric",
    "global_loss",
    "--seed",
    1,
    "--slots",
    2,
)
#: Of the search over several methods, and the reproduction with the fewest cells.
METHODS = ("fedavg", "fedprox")
TABLE = "fedkf-table12"
#: Of the final run.
CLIENTS = 3
#: A folder that was made whole, and `outcome.said` of it.
Made = tuple[Path, dict[str, Any]]
#: Seconds after which a command hangs.
LIMIT = 180.0


class NoMoment(Exception):
    """The command ended before its moment came; the text says how."""


@dataclass
class Session:
    """A command that runs. What it prints goes to files: a pipe would stay open while any process of Ray lives."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def wait(self, limit: float = LIMIT) -> Done:
        """Until it ends; one that hangs is ended."""
        try:
            code: int | None = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            processes.kill(self.process.pid)
            self.process.wait()
        return Done(code, self.out.read_text(errors="replace"), self.err.read_text(errors="replace"))

    def until(self, ready: Callable[[], Any], limit: float = LIMIT) -> Any:
        """The first true answer of `ready`. Raises `NoMoment` where the command ends before."""
        deadline = time.monotonic() + limit
        while not (answer := ready()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise NoMoment(f"ended with {self.wait(1)}")
            time.sleep(0.01)
        return answer

    def kill(self) -> None:
        processes.kill(self.process.pid)
        self.process.wait()


@dataclass
class Scene:
    """One case's part of the campaign."""

    folder: Path
    rng: random.Random
    stock: Stock
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def run(self) -> Path:
        return self.folder / "runs" / "run"

    @property
    def data(self) -> Path:
        return self.folder / "toy.npz"

    @property
    def whole(self) -> list[dict[str, Any]]:
        """The record of the run that nothing disturbed."""
        return self.stock.record

    def start(self, *words: object) -> Session:
        """A command of fedtune, in the case's folder."""
        return self._started(["-m", "fedtune", *map(str, words)])

    def python(self, code: str, *words: object) -> Session:
        """A program of a user's, in the case's folder."""
        return self._started(["-c", code, *map(str, words)])

    def _started(self, words: Sequence[str]) -> Session:
        number = len(list(self.folder.glob("*.err")))
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with out.open("wb") as printed, err.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=said,
                start_new_session=True,
                env={**os.environ, **self.stock.environment, **self.environment},
            )
        return Session(process, out, err)

    def search(self, *words: object) -> Session:
        """The search that all cases make, as `runs/run`."""
        asked = ("search", "fedavg", "--dataset", self.data, *SMALL, *BUDGET, "--name", "run")
        return self.start(*asked, *words)

    def resume(self, *words: object) -> Session:
        return self.start("resume", self.run, *words)

    def auto(self) -> Session:
        """A search over two methods, as `runs/run`: a trial and two fresh seeds of each, a seed of the leader."""
        asked = ("auto", "--dataset", self.data, *SMALL, "--methods", ",".join(METHODS), "--budget", "14rounds")
        few = ("--rounds", 2, "--fresh-seeds", 2, "--final-seeds", 1, "--least", 1, "--slots", 2)
        return self.start(*asked, *few, "--name", "run")

    def reproduce(self) -> Session:
        """A reproduction of two cells with a federation each, in `runs/`."""
        asked = ("reproduce", TABLE, "--small", "--dataset", self.data, "--rounds", 2, "--seeds", 1)
        return self.start(*asked, "--slots", 2)

    def final(self) -> Session:
        """A final run that keeps a global model, those of the clients and images, as `runs/run`."""
        small = ("--set", f"clients={CLIENTS}", "--set", "local_steps=2", "--set", "model=mlp", "--dataset", "moons")
        return self.start(
            "run", "fedbabu", *small, "--rounds", 2, "--seeds", 1, "--set", "keep_images=true", "--name", "run"
        )

    @property
    def table(self) -> Path:
        """The folder of the reproduction."""
        return self.folder / "runs" / f"{TABLE}-small-{self.data.stem}"

    def copied(self, kind: str) -> Path:
        """The folder that the command of this kind (`auto`, `reproduce`, `final`) had made, whole."""
        target = self.table if kind == "reproduce" else self.run
        shutil.copytree(getattr(self.stock, kind)[0], target, symlinks=True)
        return target

    def cut(self) -> Path:
        """A copy of the run whose driver was killed, which has trials that ended and trials that had begun."""
        shutil.copytree(self.stock.interrupted, self.run, symlinks=True)
        return self.run

    def anew(self) -> None:
        """Removes the run, so that a search can begin again."""
        self.stock.end()
        shutil.rmtree(self.run)

    def rows(self) -> int:
        """How many rows the trials have written."""
        found = 0
        for path in self.run.glob(f"{run_folder.TRIALS}/*/{run_folder.ROUNDS}"):
            with contextlib.suppress(OSError):
                found += path.read_bytes().count(b"\n")
        return found

    def at_rows(self, session: Session, low: float, high: float) -> None:
        """Waits for a random moment: until a part in [low, high] of all rows is written."""
        wanted = self.rows() + 1 + int(self.rng.uniform(low, high) * (self.stock.rows - self.rows()))
        session.until(lambda: self.rows() >= wanted)

    def resumed(self) -> str:
        """What comes of it when the fault is gone and the run goes on."""
        return outcome.equal(self.resume().wait(), self.run, self.whole)

    def after(self, done: Done) -> str:
        """What comes of a session that was to end with one sentence: that of the next one, without the fault."""
        other = outcome.told(done)
        return self.resumed() if other is None else other


class Stock:
    """What all cases share: the data set, a run that nothing disturbed, and one whose driver was killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed, self.mark = folder, seed, folder.name
        self.seconds = 0.0
        self.toy = write_toy(folder)
        temporary = folder / "t"
        temporary.mkdir()
        self.environment = {
            processes.MARK: self.mark,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(temporary),
            "FEDTUNE_CACHE": str(folder / "cache"),
        }

    @contextlib.contextmanager
    def scene(self, name: str) -> Iterator[Scene]:
        """A case's folder, removed in the end with what is left of its processes."""
        place = self.folder / "case"
        place.mkdir()
        shutil.copy2(self.toy, place)  # the times too: so it is the data set that was prepared before
        # Of the name and not of the case's place in the list: one case alone has the same moments as among all.
        made = Scene(place, random.Random(f"{self.seed} {name}"), self)
        try:
            yield made
        finally:
            self.end()
            shutil.rmtree(place)

    def prepare(self, needs: Sequence[str]) -> None:
        """Makes what cases share, the properties with these names, so that no case's time is spent on it."""
        for name in needs:
            getattr(self, name)

    def end(self) -> None:
        """Ends the processes of the case that is tried now."""
        processes.end_marked(self.mark)

    @cached_property
    def record(self) -> list[dict[str, Any]]:
        with self.scene("uninterrupted") as scene:
            began = time.monotonic()
            done = scene.search().wait()
            self.seconds = time.monotonic() - began
            assert done.code == 0, done.err
            found = outcome.record(scene.run)
        states = {trial["state"] for trial in found}
        assert states == {"COMPLETE", "PRUNED"}, f"a search that shows less than it should: {states}"
        return found

    @cached_property
    def auto(self) -> Made:
        return self._made("auto")

    @cached_property
    def reproduce(self) -> Made:
        return self._made("reproduce")

    @cached_property
    def final(self) -> Made:
        return self._made("final")

    def _made(self, kind: str) -> Made:
        """What the scene's command of this kind makes, and what that says."""
        place = self.folder / kind
        with self.scene(kind) as scene:
            done = getattr(scene, kind)().wait(4 * LIMIT)
            assert done.code == 0, done.err
            shutil.copytree(scene.table if kind == "reproduce" else scene.run, place, symlinks=True)
        return place, outcome.said(place)

    @property
    def rows(self) -> int:
        return sum(len(trial["rows"]) for trial in self.record)

    @cached_property
    def interrupted(self) -> Path:
        place = self.folder / "interrupted"
        for attempt in range(20):
            with self.scene(f"interrupted {attempt}") as scene:
                session = scene.search()
                scene.at_rows(session, 0.4, 0.6)
                session.kill()
                self.end()
                if begun(scene.run) and ended(scene.run):
                    shutil.copytree(scene.run, place, symlinks=True)
                    return place
        raise AssertionError("no moment was found at which one trial had ended and another one had a checkpoint")


def begun(run: Path) -> list[Path]:
    """Folders of the trials that had begun, have a checkpoint and have not ended."""
    return [folder for folder in _folders(run, "RUNNING") if (folder / run_folder.CHECKPOINT).exists()]


def ended(run: Path) -> list[Path]:
    """Folders of the trials that have ended."""
    return _folders(run, "COMPLETE", "PRUNED")


def _folders(run: Path, *states: str) -> list[Path]:
    numbers = [trial.number for trial in StudyFile(run).trials() if trial.state.name in states]
    return [run / run_folder.trial_folder(number) for number in numbers]
