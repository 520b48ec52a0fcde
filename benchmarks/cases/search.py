"""What a search costs over the same trials run bare."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from analysis.runs import load_run
from benchmarks import standin
from benchmarks.cases.client_round import federation
from benchmarks.images import kinds
from benchmarks.measure import LIMIT, ROOT, SILENCE, Arm, Processes, environment, ratio, say
from benchmarks.results import Case, Goal

TITLE = "Search overhead"
TEXT = """
The same trials, a fixed number of matrix products each on one thread, by two bare processes that hand each other nothing, and by `fedtune.search` with
two trials at once, proposed at random, none stopped early and none confirmed, so that both do the same. *Search* is the whole call: plan, run
directory, study, Ray's start, trials, Ray's end; *without Ray's start and end* is what grows with the search, together with what its processes import once. Half of the bare trials run before the search and half after it, so that a
machine which grows slower or faster does so for both. Even so it changes by more within minutes than a search costs, and an overhead can come out
below zero. Trials of LeNet-5 (ten clients, 20 steps of 64) do what a user's do: each reads its images, deals them to clients and writes checkpoints. A goal for these
is over the search's own rounds, by their own clocks, as a machine that grows slower then does so for both; what the search slows its rounds down by is
not in it, and stands beside, over bare. What a search costs is its start and its end for the most part, five to seven seconds whatever it does, so that
one of twelve such trials costs a tenth. *With no trial under way* is what a place for a trial waited, at the start, between trials and at the end, and hangs on nothing but that.
"""

#: Per cent that a search may take longer than its trials.
MUST = 8.0


def search(title: str, folder: Path, **task: Any) -> dict[str, Any]:
    """Runs a search in a process of its own; see `benchmarks.search_process`."""
    options = {"sampler": "random", "scheduler": "none", "space": "default"} | task.pop("options")
    options["name"] = str(folder / options["name"])
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.search_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=environment(1, malloc=False),
        )
        started = time.monotonic()
        sent: str | None = json.dumps(task | {"options": options}) + "\n"
        while True:
            try:
                answer, _ = process.communicate(sent, timeout=SILENCE)
                break
            except subprocess.TimeoutExpired:
                sent = None
                say(f"  {title} ... {time.monotonic() - started:.0f} s")
                if time.monotonic() - started > LIMIT:
                    process.kill()
                    raise RuntimeError(f"{title} took more than {LIMIT:.0f} s") from None
        if process.returncode != 0:
            errors.seek(0)
            raise RuntimeError(f"{title} failed:\n{errors.read()[-3000:]}")
    found: dict[str, Any] = json.loads(answer.strip().splitlines()[-1])
    if set(found["counts"]) != {"COMPLETE"}:
        raise RuntimeError(f"{title}: trials ended as {found['counts']}")
    return found


def overhead(
    case: Case, folder: Path, *, trials: int, rounds: int, seconds: float, turns: int, must: float, at: str
) -> None:
    """Trials of about `seconds` each, bare and by a search, in turn."""
    products = standin.products(seconds / rounds)
    bare: list[float] = []
    whole: list[float] = []
    inner: list[float] = []
    starts: list[float] = []
    idle: list[float] = []
    with Processes(f"search, {at}") as processes:
        for name in "ab":
            processes.start(name, Arm("BareTrials", {"trials": trials // 4, "rounds": rounds, "products": products}))
        for turn in range(turns):
            name = f"{at.split()[0]}-{turn}"
            before = processes.run(["a", "b"])[0]
            found = search(
                f"search, {at}: {trials} trials",
                folder,
                products=products,
                diary=str(folder / name) + ".jsonl",
                options={"trials": trials, "rounds": rounds, "slots": 2, "name": name},
            )
            bare.append(before + processes.run(["a", "b"])[0])
            whole.append(found["seconds"])
            inner.append(found["seconds"] - found["init"] - found["shutdown"])
            starts.append(found["init"] + found["shutdown"])
            idle.append(found["seconds"] - under_way(folder / f"{name}.jsonl") / 2)
            say(
                f"  search, {at}: {turn + 1}/{turns}: bare {bare[-1]:.1f} s, search {whole[-1]:.1f} s, of it "
                f"Ray's start and end {starts[-1]:.1f} s, "
                f"with no trial under way {idle[-1]:.1f} s"
            )
    case.table(
        f"{trials} trials of {2 * statistics.median(bare) / trials:.3g} s, two at once",
        ("how", "s", "over bare, %"),
        [
            ["bare, two processes", statistics.median(bare), None],
            ["fedtune.search", statistics.median(whole), 100 / ratio(bare, whole) - 100],
            ["without Ray's start and end", statistics.median(inner), 100 / ratio(bare, inner) - 100],
            ["Ray's start and end", statistics.median(starts), None],
            ["with no trial under way", statistics.median(idle), None],
        ],
    )
    for what, taken in (("whole call", whole), ("without Ray's start and end", inner)):
        more = 100 / ratio(bare, taken) - 100
        title = f"Search over the same trials run bare, {at}, {what}"
        case.goals.append(Goal(title, must, more, least=False, unit=" %"))


def trained(case: Case, folder: Path, of: str, *, trials: int, rounds: int, turns: int) -> None:
    """Federations of LeNet-5, bare and by a search, in turn."""
    values, _ = federation("lenet5", 28, 1, 2 if case.quick else 10, 2 if case.quick else 20, of=of)
    fixed = {key: value for key, value in values.items() if key not in ("rounds", "dataset", "lr")} | {"momentum": 0.0}
    asked = {"trials": trials, "rounds": rounds, "slots": 2, "dataset": values["dataset"], "set": fixed}
    each = {"trials": trials // 4, "rounds": rounds, "values": values | fixed | {"rounds": rounds}}
    bare: list[float] = []
    whole: list[float] = []
    own: list[float] = []
    with Processes(f"search, {of}") as processes:
        for name in "ab":
            processes.start(name, Arm("BareFederations", each))
        for turn in range(turns):
            before = processes.run(["a", "b"])[0]
            options = asked | {"metric": "test_global_accuracy", "name": f"{of}-{turn}"}
            whole.append(search(f"search, {of}: {trials} trials", folder, real=True, options=options)["seconds"])
            own.append(float(load_run(folder / f"{of}-{turn}").rounds["seconds"].sum()) / 2)
            bare.append(before + processes.run(["a", "b"])[0])
            told = f"bare {bare[-1]:.1f} s, search {whole[-1]:.1f} s, its rounds {own[-1]:.1f} s"
            say(f"  search, {of}: {turn + 1}/{turns}: {told}")
    case.table(
        f"{trials} trials of LeNet-5, {of}, {rounds} rounds each, two at once",
        ("how", "s", "over bare, %", "over its rounds, %"),
        [
            ["bare, two processes", statistics.median(bare), None, None],
            ["fedtune.search", statistics.median(whole), 100 / ratio(bare, whole) - 100, 100 / ratio(own, whole) - 100],
            ["its rounds, on each of two slots", statistics.median(own), None, None],
        ],
    )
    title, more = f"Search of LeNet-5 over its own rounds, {of}", 100 / ratio(own, whole) - 100
    case.goals.append(Goal(title, MUST, more, least=False, unit=" %"))


def under_way(diary: Path) -> float:
    """Seconds of all trials together, from a stand-in's diary. One that began and did not end, as where Ray's servers
    were lost on a busy machine, was begun again: it does not count."""
    events: list[tuple[str, float, str]] = [json.loads(text) for text in diary.read_text().splitlines()]
    began = {trial: when for what, when, trial in events if what == "begin"}
    return sum(when - began[trial] for what, when, trial in events if what == "end")


def run(quick: bool) -> Case:
    case = Case("search", TITLE, TEXT, quick=quick)
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made:
        folder = Path(made)
        if quick:
            overhead(case, folder, trials=4, rounds=2, seconds=0.2, turns=1, must=MUST, at="0.2 s a trial")
        else:
            overhead(case, folder, trials=20, rounds=10, seconds=10.0, turns=3, must=MUST, at="10 s a trial")
        for of in kinds(case):
            trained(case, folder, of, trials=4 if quick else 20, rounds=2 if quick else 8, turns=1)
    return case
