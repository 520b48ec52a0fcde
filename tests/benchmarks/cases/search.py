"""What a search costs over the same trials run bare, per trial and per report, and what its processes hold in memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks import standin
from tests.benchmarks.cases.client_round import federation
from tests.benchmarks.measure import LIMIT, ROOT, SILENCE, Arm, Processes, environment, ratio, say
from tests.benchmarks.results import Case, Goal

TITLE = "Search overhead"
TEXT = """
The same trials, a fixed number of matrix products each on one thread, by two bare processes that hand each other nothing, and by `fedtune.search` with
two trials at once. *Search* is the whole call: plan, run directory, study, Ray's start, trials, Ray's end; *without Ray's start and end* is
what grows with the search, together with what its processes import once. Per further trial and per report are what one more takes within a search
that computes nothing, one trial at a time.
"""


def search(title: str, folder: Path, *, quiet_for: str = "", **task: Any) -> dict[str, Any]:
    """Runs a search in a process of its own; see `tests.benchmarks.search_process`."""
    options = {"runs_dir": str(folder), "sampler": "random", "scheduler": "none", "space": "default"} | task.pop("options")
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.search_process"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                   text=True, cwd=ROOT, env=environment(1, malloc=False))
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


def overhead(case: Case, folder: Path, *, trials: int, rounds: int, seconds: float, turns: int, must: float, at: str) -> None:
    """Trials of about `seconds` each, bare and by a search, in turn."""
    work = standin.products(seconds / rounds)
    bare: list[float] = []
    whole: list[float] = []
    inner: list[float] = []
    starts: list[float] = []
    with Processes(f"search, {at}") as processes:
        for name in "ab":
            processes.start(name, Arm("bare_trials", {"trials": trials // 2, "rounds": rounds, "work": work}))
        for turn in range(turns):
            bare.append(processes.run(["a", "b"])[0])
            found = search(f"search, {at}: {trials} trials", folder, work=work,
                           options={"trials": trials, "rounds": rounds, "concurrency": 2, "name": f"{at.split()[0]}-{turn}"})
            whole.append(found["seconds"])
            inner.append(found["seconds"] - found["init"] - found["shutdown"])
            starts.append(found["init"] + found["shutdown"])
            say(f"  search, {at}: {turn + 1}/{turns}: bare {bare[-1]:.1f} s, search {whole[-1]:.1f} s, of it Ray's start and end {starts[-1]:.1f} s")
    case.table(f"{trials} trials of {2 * statistics.median(bare) / trials:.3g} s, two at once", ("how", "s", "over bare, %"), [
        ["bare, two processes", statistics.median(bare), None],
        ["fedtune.search", statistics.median(whole), 100 / ratio(bare, whole) - 100],
        ["without Ray's start and end", statistics.median(inner), 100 / ratio(bare, inner) - 100],
        ["Ray's start and end", statistics.median(starts), None],
    ])
    case.goals.append(Goal(f"Search over the same trials run bare, {at}, whole call", must, 100 / ratio(bare, whole) - 100, least=False, unit=" %"))
    case.goals.append(Goal(f"Search over the same trials run bare, {at}, without Ray's start and end", must, 100 / ratio(bare, inner) - 100, least=False,
                           unit=" %"))


def slopes(case: Case, folder: Path, quick: bool) -> None:
    """Seconds per further trial and per report, each within one search that computes nothing."""
    first, trials, rounds = (2, 6, 55) if quick else (10, 60, 510)

    def apart(title: str, n: int, rounds: int) -> tuple[float, dict[str, Any]]:
        diary = folder / f"{title}.jsonl"
        found = search(f"search, {title}", folder, diary=str(diary), options={"trials": n, "rounds": rounds, "concurrency": 1, "name": title})
        ends = [when for what, when in map(json.loads, diary.read_text().splitlines()) if what == "end" or (n == 1 and what == "round")]
        return (ends[-1] - ends[first - 1]) / (len(ends) - first), found

    per_trial, many = apart(f"{trials}-trials", trials, 1)
    per_report, long = apart(f"{rounds}-reports", 1, rounds)
    case.table("Searches that compute nothing, one trial at a time", ("what", "ms"), [
        ["per further trial", 1000 * per_trial], ["per report", 1000 * per_report],
        ["Ray's start", 1000 * statistics.median(f["init"] for f in (many, long))],
        ["Ray's end", 1000 * statistics.median(f["shutdown"] for f in (many, long))],
    ])
    case.goals += [Goal("Per further trial", 0.3, per_trial, least=False, unit=" s"), Goal("Per report", 5.0, 1000 * per_report, least=False, unit=" ms")]


def memory(case: Case, folder: Path, quick: bool) -> None:
    """Memory of a search of real federations with LeNet-5."""
    values, _ = federation("lenet5", 28, 1, 2 if quick else 10, 2 if quick else 20)
    fixed = {key: value for key, value in values.items() if key not in ("rounds", "dataset", "local_steps", "batch_size", "lr")}
    found = search("search, memory", folder, real=True, memory=True, options={
        "trials": 2, "rounds": 1 if quick else 4, "concurrency": 2, "dataset": values["dataset"], "set": fixed | {"local_steps": values["local_steps"]},
        "select_on": "test", "name": "memory"})
    sizes = found["memory"]
    case.table("Memory of a search with LeNet-5, two trials at once (largest proportional set size)", ("process", "MiB"), [
        ["a worker with its trial", sizes["worker"]], ["driver", sizes["driver"]], ["Ray's servers and idle workers", sizes["ray"]], ["all", sizes["all"]]])
    case.goals.append(Goal("One worker with LeNet-5", 450.0, sizes["worker"], least=False, unit=" MiB"))


def run(quick: bool, long: bool = False) -> Case:
    case = Case("search", TITLE, TEXT, quick=quick)
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made:
        folder = Path(made)
        if quick:
            overhead(case, folder, trials=2, rounds=2, seconds=0.2, turns=1, must=15.0, at="0.2 s a trial")
        else:
            overhead(case, folder, trials=20, rounds=10, seconds=10.0, turns=2, must=15.0, at="10 s a trial")
        if long:
            overhead(case, folder, trials=20, rounds=20, seconds=60.0, turns=1, must=5.0, at="60 s a trial")
        else:
            case.notes.append("Trials of 60 s are measured by `make bench CASES=search LONG=--long`, which takes 20 minutes more.")
        slopes(case, folder, quick)
        memory(case, folder, quick)
    return case
