"""Ray as a search starts it, in a process of its own: told on stdin whether it asks for a token, answers on stdout what
its start, calls of an actor and its end took."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping

CALLS = 200


def main() -> None:
    task = json.loads(sys.stdin.readline())
    answers, sys.stdout = sys.stdout, sys.stderr
    from fedtune.machine import cluster

    if task["unguarded"]:
        _without_token()
    started = time.perf_counter()
    with cluster.joined(None, trials=1, cpus=1, gpus=0):
        start = time.perf_counter() - started
        import ray

        @ray.remote(num_cpus=1)
        class Answers:
            def answer(self) -> int:
                return 1

        actor = Answers.remote()
        ray.get(actor.answer.remote())  # its process has imported PyTorch, which takes as long with a token as without
        started = time.perf_counter()
        for _ in range(CALLS):
            ray.get(actor.answer.remote())
        calls = time.perf_counter() - started
        started = time.perf_counter()
    end = time.perf_counter() - started
    answers.write(json.dumps({"start": start, "calls": calls, "end": end}) + "\n")
    answers.flush()


def _without_token() -> None:
    """From now on a Ray of our own asks nobody for a token: what that takes is measured."""
    from fedtune.machine import alone

    setting = alone._set

    def unguarded(changes: Mapping[str, str | None]) -> None:
        open_ = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": None}
        setting({**changes, **open_} if changes.get("RAY_AUTH_MODE") == "token" else changes)

    alone._set = unguarded


if __name__ == "__main__":
    main()
