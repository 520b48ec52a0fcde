"""Golden runs: what a revision records, compared bit for bit with what this checkout records.

    python scripts/golden.py record FOLDER [NAME ...] [--checkout CHECKOUT]    makes the runs, or some of them
    python scripts/golden.py compare BEFORE AFTER                              says what differs; then exits with 1
    make golden BASE=REVISION                                                  both, of that revision and of this one

Every command that trains is among them, every sampler, a search that ends with a confirmation, one by arrival (on one
slot, as on more the same seed may give other trials), a race, a federation of several conditions, a run that was killed
and resumed, and runs that were extended. Compared are each trial's configuration and rounds, and what `status`
and `export` say of each run, without what depends on the clock. Nothing is kept from one version of a library or one
kind of processor to the next: both sides are made on the machine that compares them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TINY = ("--set", "clients=4", "--set", "local_steps=2", "--slots", "2")
SEARCH = (*TINY, "--rounds", "4", "--trials", "6")

#: The folder that each run makes, and the command lines that make it.
RUNS: dict[str, list[tuple[str, ...]]] = {
    "race": [("search", "fedprox", *SEARCH, "--seeds", "2")],
    "ei": [("search", "fedprox", *SEARCH, "--no-race", "--sampler", "ei")],
    "confirmed": [("search", "fedprox", *TINY, "--rounds", "4", "--trials", "12")],
    "arrival": [("search", "fedprox", *SEARCH, "--no-race", "--order", "arrival", "--slots", "1")],
    "tpe": [("search", "dfrd", "--space", "alpha_lambda", *SEARCH, "--no-race", "--sampler", "tpe", "--rounds", "2")],
    "random": [("search", "fedprox", *SEARCH, "--no-race", "--sampler", "random", "--scheduler", "median")],
    "gp": [("search", "fedprox", *SEARCH, "--no-race", "--sampler", "gp")],
    "nsga2": [
        ("search", "fedprox", *SEARCH, "--no-race", "--sampler", "nsga2", "--metric", "val_amp", "--metric", "bytes_up")
    ],
    "grid": [("search", "fedmdcg", "--space", "lambda1_lambda2", *TINY, "--rounds", "2", "--sampler", "grid")],
    "conditions": [("search", "fedkf", "--space", "fairness", *SEARCH)],
    "killed": [
        ("search", "fedprox", *SEARCH, "--no-race", "--set", "local_steps=40", "--rounds", "8"),
        ("resume", "RUN"),
    ],
    "extended": [
        ("search", "fedprox", *SEARCH, "--no-race"),
        ("extend", "RUN", "--trials", "3"),
        ("extend", "RUN", "--rounds", "2"),
    ],
    "run": [("run", "dhf", *TINY, "--rounds", "3", "--seeds", "2")],
    "auto": [("auto", *TINY, "--budget", "48rounds", "--methods", "fedavg,fedprox,scaffold", "--rounds", "4")],
    "reproduce": [("reproduce", "fedkf-table6", "--small", "--rounds", "2", "--seeds", "2")],
}
#: What says when and where something was made, or how long it took, and not what came out.
CLOCK = re.compile(r"^(seconds\w*|created|git|versions|run)$")

#: Fields of `status` that only earlier revisions have, of options that are gone.
GONE = ("audit", "grace")


@dataclass(frozen=True)
class Checkout:
    """The revision whose command line is used."""

    root: Path

    def begin(self, folder: Path, *line: str) -> subprocess.Popen[bytes]:
        """The command, in a process group of its own; what it makes is in `runs` of this folder."""
        # -m finds the packages of the current directory before those of PYTHONPATH.
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        command = [sys.executable, "-m", "fedtune", *line]
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def run(self, folder: Path, *line: str) -> str:
        """Runs a command to its end; one that fails ends all."""
        with self.begin(folder, *line) as process:
            printed, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"fedtune {' '.join(line)} ended with exit code {process.returncode}.")
        return printed.decode()

    def kill(self, folder: Path, *line: str) -> None:
        """Kills a command as soon as a trial below the folder has a round."""
        with self.begin(folder, *line) as process:
            while not any(path.stat().st_size for path in folder.rglob("rounds.jsonl")):
                if process.poll() is not None:
                    raise SystemExit(f"fedtune {' '.join(line)} ended before it could be killed.")
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)

    def record(self, folder: Path, names: list[str]) -> None:
        """Makes the runs, each in a new folder of its own, and writes what is compared of them into `NAME.json`."""
        for name in names:
            begun = time.monotonic()
            own = folder / name
            own.mkdir(parents=True)
            runs = own / "runs"
            for number, line in enumerate(RUNS[name]):
                if "RUN" in line:
                    (made,) = (path for path in runs.iterdir() if path.is_dir())
                    self.run(own, *(str(made) if word == "RUN" else word for word in line))
                elif name == "killed" and number == 0:
                    self.kill(own, *line)
                else:
                    self.run(own, *line)
            facts = {"files": dict(files(runs)), "said": dict(self.said(runs))}
            (folder / f"{name}.json").write_text(json.dumps(facts, indent=1, sort_keys=True), encoding="utf-8")
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)

    def said(self, runs: Path) -> Iterator[tuple[str, Any]]:
        """What `status` says of each run, and `export` of each that has a best configuration."""
        for path in sorted(runs.rglob("experiment.yaml")):
            name = path.parent.relative_to(runs).as_posix()
            status = json.loads(self.run(runs, "status", str(path.parent), "--json"))
            yield f"status {name}", steady(status)
            if status["best"] is not None:
                yield f"export {name}", steady(json.loads(self.run(runs, "export", str(path.parent), "--json")))


def files(runs: Path) -> Iterator[tuple[str, Any]]:
    """Each trial's configuration and rounds, by their paths."""
    for path in sorted(runs.rglob("rounds.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        yield path.relative_to(runs).as_posix(), steady(lines)
        yield (
            path.with_name("config.yaml").relative_to(runs).as_posix(),
            steady(yaml.safe_load(path.with_name("config.yaml").read_text(encoding="utf-8"))),
        )


def steady(value: Any) -> Any:
    """The value without what depends on the clock."""
    if isinstance(value, dict):
        return {key: steady(part) for key, part in value.items() if not CLOCK.match(str(key)) and key not in GONE}
    if isinstance(value, list):
        return [steady(part) for part in value]
    return value


def compare(before: Path, after: Path) -> list[str]:
    """The places where the two differ; there are none only where both hold the same runs."""
    made = [{path.stem for path in folder.glob("*.json")} for folder in (before, after)]
    found = [f"{name} is only in one of the two" for name in sorted(made[0] ^ made[1])]
    if not any(made):
        found.append(f"there are no runs in {before}, and none in {after}")
    for name in sorted(made[0] & made[1]):
        one, other = (json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for folder in (before, after))
        found += [f"{name}: {where}" for where in differences(one, other)]
    return found


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two values differ, as paths with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if key not in one or key not in other:
                yield f"{where}/{key} is only in the {'first' if key in one else 'second'}"
            else:
                yield from differences(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (mine, yours) in enumerate(zip(one, other, strict=True)):
            yield from differences(mine, yours, f"{where}/{number}")
    elif one != other:
        yield f"{where}: {str(one)[:60]} is now {str(other)[:60]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RUNS))
    recording.add_argument("--checkout", type=Path, default=Path(__file__).parent.parent)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    asked = parser.parse_args()
    if asked.command == "record":
        if strangers := set(asked.names) - RUNS.keys():
            parser.error(f"there is no run {', '.join(sorted(strangers))}; there are {', '.join(RUNS)}")
        Checkout(asked.checkout.resolve()).record(asked.folder.resolve(), asked.names or list(RUNS))
    else:
        found = compare(asked.before, asked.after)
        print("\n".join(found[:200]) or "The golden runs are equal.")
        sys.exit(bool(found))


if __name__ == "__main__":
    main()
