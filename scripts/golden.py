"""Golden runs: what a revision records, compared bit for bit with what this checkout records.

    python scripts/golden.py record FOLDER [NAME ...]    makes the runs with this checkout, or some of them
    python scripts/golden.py compare BEFORE AFTER        says what differs; exits with 1 where something does
    make golden BASE=REVISION                            both: of that revision, and of this checkout

Every command that trains is among them, every sampler, a race, a federation of several conditions, a run that was killed
and resumed, and runs that were extended. Compared are each trial's configuration and rounds, and what `status`, `export`,
`auto` and `reproduce` say of them, without what depends on the clock. Nothing is kept between two versions of a library or
two kinds of processors: both sides are made on the machine that compares them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TINY = ("--set", "clients=4", "--set", "local_steps=2", "--concurrency", "2", "--quiet")
SEARCH = (*TINY, "--rounds", "4", "--trials", "6")

#: The folder that each run makes, and the command lines that make it.
RUNS: dict[str, list[tuple[str, ...]]] = {
    "race": [("search", "fedprox", *SEARCH, "--seeds", "2")],
    "ei": [("search", "fedprox", *SEARCH, "--no-race", "--sampler", "ei")],
    "tpe": [("search", "dfrd", "--space", "alpha_lambda", *SEARCH, "--no-race", "--sampler", "tpe", "--rounds", "2")],
    "random": [("search", "fedprox", *SEARCH, "--no-race", "--sampler", "random", "--scheduler", "median")],
    "cmaes": [("search", "fedprox", *SEARCH, "--no-race", "--sampler", "cmaes")],
    "gp": [("search", "fedprox", *SEARCH, "--no-race", "--sampler", "gp")],
    "nsga2": [
        ("search", "fedprox", *SEARCH, "--no-race", "--sampler", "nsga2", "--metric", "val_amp", "--metric", "bytes_up")
    ],
    "grid": [("search", "fedmdcg", "--space", "lambda1_lambda2", *TINY, "--rounds", "2", "--sampler", "grid")],
    "conditions": [("search", "fedkf", "--space", "fairness", *SEARCH)],
    "killed": [
        ("search", "fedprox", *SEARCH, "--no-race", "--set", "local_steps=40", "--rounds", "8"),
        ("resume", "RUN", "--quiet"),
    ],
    "extended": [
        ("search", "fedprox", *SEARCH, "--no-race"),
        ("extend", "RUN", "--trials", "3", "--quiet"),
        ("extend", "RUN", "--rounds", "2", "--quiet"),
    ],
    "run": [("run", "dhf", *TINY, "--rounds", "3", "--seeds", "2")],
    "auto": [("auto", *TINY, "--budget", "48rounds", "--methods", "fedavg,fedprox,scaffold", "--rounds", "4")],
    "reproduce": [("reproduce", "fedkf-table6", "--small", "--rounds", "2", "--seeds", "2", "--quiet")],
}
#: What says when or where something was, and not what came out.
CLOCK = re.compile(r"^(seconds\w*|created|git|versions|run|name|host|time|took|command|folder|next|started|ended)$")


def record(folder: Path, names: list[str]) -> None:
    """Makes the runs, each in a new folder of its own, and writes what is compared of them into `NAME.json`."""
    for name in names:
        begun = time.monotonic()
        runs = folder / name
        runs.mkdir(parents=True)
        for number, line in enumerate(RUNS[name]):
            if line[0] in ("resume", "extend"):
                (made,) = (path for path in runs.iterdir() if path.is_dir())
                fedtune(*(str(made) if word == "RUN" else word for word in line))
            else:
                kill = name == "killed" and number == 0
                fedtune(*line, "--runs-dir", str(runs), kill=runs if kill else None)
        facts = {"files": dict(files(runs)), "said": dict(said(runs))}
        (folder / f"{name}.json").write_text(json.dumps(facts, indent=1, sort_keys=True), encoding="utf-8")
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)


def fedtune(*line: str, kill: Path | None = None) -> str:
    """What the command prints. With `kill`, the process is killed as soon as a trial below that folder has a round."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "fedtune", *line]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        if kill:
            while process.poll() is None and not any(path.stat().st_size for path in kill.rglob("rounds.jsonl")):
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return ""
        printed, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}.")
    return printed


def files(runs: Path) -> Iterator[tuple[str, Any]]:
    """Each trial's configuration and rounds, by their paths."""
    for path in sorted(runs.rglob("rounds.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        yield path.relative_to(runs).as_posix(), steady(lines)
        yield (
            path.with_name("config.yaml").relative_to(runs).as_posix(),
            steady(yaml.safe_load(path.with_name("config.yaml").read_text(encoding="utf-8"))),
        )


def said(runs: Path) -> Iterator[tuple[str, Any]]:
    """What the commands say of a run and of its best configuration."""
    for path in sorted(runs.rglob("experiment.yaml")):
        name = path.parent.relative_to(runs).as_posix()
        yield f"status {name}", steady(json.loads(fedtune("status", str(path.parent), "--json")))
        searched = subprocess.run(
            [sys.executable, "-m", "fedtune", "export", str(path.parent), "--json"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        yield f"export {name}", steady(json.loads(searched.stdout)) if searched.returncode == 0 else searched.returncode


def steady(value: Any) -> Any:
    """The value without what depends on the clock."""
    if isinstance(value, dict):
        return {key: steady(part) for key, part in value.items() if not CLOCK.match(str(key))}
    if isinstance(value, list):
        return [steady(part) for part in value]
    return value


def compare(before: Path, after: Path) -> list[str]:
    """The places where the two differ."""
    found = []
    for name in sorted(path.stem for path in before.glob("*.json")):
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


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", folder, *names]:
            record(Path(folder).resolve(), names or list(RUNS))
        case ["compare", before, after]:
            found = compare(Path(before), Path(after))
            print("\n".join(found[:200]) or "The golden runs are equal.")
            sys.exit(bool(found))
        case _:
            sys.exit(__doc__)
