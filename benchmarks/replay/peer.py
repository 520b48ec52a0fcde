"""A searcher in another process: a line of JSON for every question, a line for the answer.

    {"do": "start", "searcher", "dimensions", "rounds", "seeds", "seed", "slots", "metrics"}    {} or {"error": why not}
    {"do": "ask"}                                                                    {"job": {"trial", "values", "seeds", "until"}} or {"job": null}
    {"do": "tell", "trial", "values", "seeds", "until", "curves"}                    {}
    {"do": "winner"}                                                                 {"winner": {"values", "estimate", "low", "high"}} or {"winner": null}

A dimension is {"name", "kind", "low", "high", "log", "step", "options", "when", "paper"}; `when` names the choice and the
option that it belongs to, or is null; `paper` is the paper's value, or null where the dimension does not hold it. Values are flat and by these names; those of options that were not chosen are left out
here. With several objectives ("metrics" names them) a curve's values are lists, and a winner is {"configurations"}.
Larger is better; null in a curve is a federation that diverged. One process serves one search after the other.
"""  # noqa: E501

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, environment
from benchmarks.replay.searcher import Front, Impossible, Job, Result, Setting, Verdict
from search_spaces.dimension import Dimension
from search_spaces.parameter import Value
from search_spaces.space import Space

#: Where `scripts/bench_search_peers.sh` installs them.
ENVIRONMENTS = ROOT / ".venv-peers"
NOT_INSTALLED = "its environment is not installed; `make bench-search-peers` does it"


class Process:
    """An arm that runs, as long as this process does."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=environment(1, malloc=False),
        )

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer. Raises RuntimeError with the last words of a process that has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its last words say why
            self._process.stdin.write(json.dumps(question, allow_nan=False) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"The searcher's process ended:\n{self._errors.read()[-3000:]}")
        found: dict[str, Any] = json.loads(line)
        return found


_RUNNING: dict[tuple[str, ...], Process] = {}


class Peer:
    """One search by the searcher `name` of the arm that `command` starts."""

    def __init__(self, setting: Setting, *, command: tuple[str, ...], name: str) -> None:
        """Raises `Impossible` where the arm is not installed, or says so."""
        if not Path(command[0]).exists():
            raise Impossible(NOT_INSTALLED)
        # A process serves one search after the other, as starting one takes seconds.
        if command not in _RUNNING:
            _RUNNING[command] = Process(command)
        self._process = _RUNNING[command]
        self._space = setting.space
        answer = self._process.ask(
            {
                "do": "start",
                "searcher": name,
                "dimensions": [*described(setting.space)],
                "rounds": setting.rounds,
                "seeds": min(setting.seeds, 1000),
                "seed": setting.seed,
                "slots": setting.slots,
                "metrics": setting.metrics,
            }
        )
        if "error" in answer:
            raise Impossible(answer["error"])
        self._flat: dict[int, Mapping[str, Value]] = {}

    def ask(self) -> Job | None:
        job = self._answer({"do": "ask"})["job"]
        if job is None:
            return None
        self._flat[job["trial"]] = job["values"]
        return Job(job["trial"], chosen(self._space, job["values"]), tuple(job["seeds"]), job["until"])

    def tell(self, result: Result) -> None:
        job = result.job
        question = {"do": "tell", "trial": job.trial, "values": self._flat[job.trial], "until": job.until}
        self._answer(question | {"seeds": job.seeds, "curves": _plain(result.curves.tolist())})

    def winner(self) -> Verdict | Front | None:
        found = self._answer({"do": "winner"})["winner"]
        if found is not None and "configurations" in found:
            return Front(tuple(chosen(self._space, values) for values in found["configurations"]))
        return None if found is None else Verdict(**found | {"values": chosen(self._space, found["values"])})

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._process.ask(question)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def _plain(value: Any) -> Any:
    """Curves as JSON has them: None for what is not finite."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if math.isfinite(value) else None


def described(space: Space) -> Iterator[dict[str, Any]]:
    """The space's dimensions, a choice before what belongs to its options."""

    def walk(dimensions: Iterable[Dimension], prefix: str, when: list[str] | None) -> Iterator[dict[str, Any]]:
        for d in dimensions:
            name = prefix + d.key
            yield {
                "name": name,
                "kind": d.parameter.kind,
                "low": d.low,
                "high": d.high,
                "log": d.log,
                "step": d.step,
                "options": list(d.options),
                "when": when,
                "paper": d.parameter.default if d.contains(d.parameter.default) else None,
            }
            for option, children in d.children.items():
                yield from walk(children, f"{prefix}{option}.", [name, option])

    yield from walk(space.search.values(), "", None)


def chosen(space: Space, flat: Mapping[str, Any]) -> dict[str, Value]:
    """A configuration by key, of the parameters whose options were chosen."""

    def walk(dimensions: Iterable[Dimension], prefix: str) -> Iterator[tuple[str, Value]]:
        for d in dimensions:
            value = flat[prefix + d.key]
            yield d.key, value
            yield from walk(d.children.get(str(value), ()), f"{prefix}{value}.")

    return dict(walk(space.search.values(), ""))
