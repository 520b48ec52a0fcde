"""The loop of an arm: reads a question per line from stdin and answers each with a line on stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from benchmarks.replay.searcher import Front, Job, Result, Verdict

#: What is asked for a search: searcher, dimensions, rounds, seeds, seed, slots, metrics.
Start = Mapping[str, Any]


class Search(Protocol):
    """A searcher whose values are flat: every dimension by its name, those of options that were not chosen too."""

    def ask(self) -> Job | None: ...

    def tell(self, result: Result) -> None: ...

    def winner(self) -> Verdict | Front | None: ...


def serve(begin: Callable[[Start], Search]) -> None:
    """Until stdin ends. What `begin` raises as ValueError says why a search is impossible."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a package prints is no answer
    search: Any = None
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if question["do"] == "start":
                search = begin(question)
                answer: dict[str, Any] = {}
            else:
                answer = _answered(search, question)
        except ValueError as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer, default=_plain) + "\n")
        answers.flush()


def _answered(search: Search, question: Mapping[str, Any]) -> dict[str, Any]:
    if question["do"] == "ask":
        job = search.ask()
        return {"job": None if job is None else vars(job)}
    if question["do"] == "tell":
        job = Job(question["trial"], question["values"], tuple(question["seeds"]), question["until"])
        search.tell(Result(job, np.array(question["curves"], dtype=np.float64)))
        return {}
    verdict = search.winner()
    return {"winner": None if verdict is None else vars(verdict)}


def on_step(d: Mapping[str, Any], value: Any) -> Any:
    """The dimension's value next to `value`, for packages that know no steps of real numbers."""
    if d["step"] is None or d["kind"] != "real":
        return value
    return d["low"] + round((value - d["low"]) / d["step"]) * d["step"]


def _plain(value: Any) -> Any:
    """Numbers and texts of numpy as Python's."""
    return value.item()
