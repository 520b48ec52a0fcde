"""Counts the functions that a parameter's value passes from the command line to the loss.

    python scripts/trip.py            # the counts
    python scripts/trip.py --list     # every function besides, in the order in which the value first reaches it
    python scripts/trip.py --tree OTHER    # the same of another checkout, for comparison

The trip is that of `fedtune search dfrd --set alpha=0.7431 …`: one trial, one round, up to the first loss of DFRD's
server that alpha weighs, which is counted too. The command runs in this process: the job of the trial is pickled and
unpickled as Ray would do it, and neither Ray nor its fork server is started.

What is counted are functions of the four packages, without lambdas and comprehensions. Something *holds* the value if
it is the number, a text with its digits, or a list, mapping, object of ours or method of one that holds it in turn.

    handed     One of the arguments holds it as the function is called; the object that a method belongs to is none.
    through    It was handed the value, or its object held it, or it returns it; and it did pass it on: it returned it,
               or put it where it was not before, or the loss was reached within. Its caller must have passed it on too.
               So what only reads the value, records it or checks something with it is not among these.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, MethodType, SimpleNamespace
from typing import Any

PACKAGES = ("fedtune", "search_spaces", "trainables", "analysis")
#: A value that nothing else has.
TEXT = "0.7431"
ARGUMENTS = (
    f"search dfrd --set alpha={TEXT} --trials 1 --rounds 1 --slots 1 --set active_clients=1 "
    "--set local_steps=1 --set server_iters=1 --set gen_steps=1 --set distill_steps=1"
).split()
#: The function at which the trip ends.
LOSS = "student_loss"
#: Nothing of ours is nested deeper.
DEEPEST = 12


class Arrived(BaseException):
    """The loss is reached."""


@dataclass(eq=False)
class Call:
    """One call of a function that has to do with the value."""

    name: str
    parent: Call | None
    handed: bool
    #: Its arguments that did not hold the value at first.
    without: list[Any]
    handled: bool
    passed: bool = False

    @property
    def through(self) -> bool:
        """Whether the value went through this call."""
        caller = self.parent
        while caller is not None and not caller.handled:
            if not caller.passed:
                return False
            caller = caller.parent
        return self.handled and self.passed and (caller is None or caller.through)


@dataclass
class Tracer:
    """For `sys.setprofile`: notes the calls of functions below `root` until the loss."""

    root: Path
    calls: list[Call] = field(default_factory=list)
    _stack: list[tuple[FrameType, Call]] = field(default_factory=list)
    #: By frame, so that a generator that goes on is no further call.
    _of: dict[FrameType, Call] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, given: Any) -> None:
        name = self._name(frame.f_code)
        if name is None:
            return
        if event == "call":
            self._enter(name, frame)
        elif event == "return" and self._stack and self._stack[-1][0] is frame:
            self._leave(self._stack.pop()[1], given)

    def _name(self, code: CodeType) -> str | None:
        path = Path(code.co_filename)
        if code.co_name.startswith("<") or not path.is_relative_to(self.root):
            return None
        inside = path.relative_to(self.root)
        return f"{inside}:{code.co_qualname}" if inside.parts[0] in PACKAGES else None

    def _enter(self, name: str, frame: FrameType) -> None:
        call = self._of.get(frame)
        if call is None:
            given = _arguments(frame)
            holding = {key for key, value in given.items() if holds(value)}
            call = Call(
                name,
                self._stack[-1][1] if self._stack else None,
                bool(holding - {"self"}),
                [value for key, value in given.items() if key not in holding],
                bool(holding),
            )
            self._of[frame] = call
            self.calls.append(call)
        self._stack.append((frame, call))
        if frame.f_code.co_name == LOSS and call.handled:
            sys.setprofile(None)
            for _, open_call in self._stack:
                open_call.passed = True
            raise Arrived

    def _leave(self, call: Call, returned: Any) -> None:
        if holds(returned) or any(holds(value) for value in call.without):
            call.handled = call.passed = True


def _arguments(frame: FrameType) -> dict[str, Any]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return {name: frame.f_locals[name] for name in code.co_varnames[:count] if name in frame.f_locals}


def holds(value: Any, depth: int = 0, seen: set[int] | None = None) -> bool:
    """Whether the value is in there."""
    if isinstance(value, float):
        return value == float(TEXT)
    if isinstance(value, str):
        return TEXT in value
    seen = set() if seen is None else seen
    if depth > DEEPEST or id(value) in seen:
        return False
    seen.add(id(value))
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = list(value.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = list(value)
    elif isinstance(value, MethodType):
        inside = [value.__self__]
    elif type(value).__module__.partition(".")[0] in PACKAGES:
        inside = list(getattr(value, "__dict__", {}).values())
    return any(holds(item, depth + 1, seen) for item in inside)


def trip(root: Path) -> list[Call]:
    """The calls of the functions in the checkout `root`, which is first on `sys.path`, in their order."""
    import ray
    from ray import cloudpickle, tune

    from fedtune import cli
    from fedtune.machine import fork_server
    from trainables import tune as ours

    class Played(ours.Trial):
        __module__ = ours.__name__  # as its objects are ours
        logdir = ""  # Ray Tune makes none

    class Tuner:
        """Runs the first trial that is proposed here, instead of in a process of Ray's."""

        def __init__(self, trainable: object, tune_config: tune.TuneConfig, run_config: tune.RunConfig) -> None:
            self._ask = tune_config.search_alg

        def fit(self) -> None:
            config = self._ask.suggest("trial")
            ours.resources(config)
            trial = object.__new__(Played)
            trial.setup(cloudpickle.loads(cloudpickle.dumps(config)))
            trial.step()

    servers = socket.create_server(("127.0.0.1", 0))  # takes connections, as Ray's servers would
    port = servers.getsockname()[1]
    node = {"NodeID": "one", "Alive": True, "Resources": {"CPU": 1.0}}
    node |= {"NodeManagerAddress": "127.0.0.1", "NodeManagerPort": port, "NodeManagerHostname": "one"}
    stand_ins: dict[str, Any] = {
        "init": lambda **settings: None,
        "shutdown": lambda: None,
        "nodes": lambda: [node],
        "get_runtime_context": lambda: SimpleNamespace(get_node_id=lambda: "one", gcs_address=f"127.0.0.1:{port}"),
        "get_gpu_ids": list,
    }
    for name, stand_in in stand_ins.items():
        setattr(ray, name, stand_in)
    fork_server.started = lambda folder: contextlib.nullcontext()
    tune.Tuner = Tuner
    tune.with_resources = lambda trainable, resources: trainable
    tracer = Tracer(root)
    with tempfile.TemporaryDirectory(prefix="fedtune-trip-") as runs, contextlib.suppress(Arrived):
        sys.argv = ["fedtune", *ARGUMENTS, "--name", f"{runs}/trip"]
        sys.setprofile(tracer)
        try:
            cli.main()
        finally:
            sys.setprofile(None)
    return tracer.calls


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description="Functions that --set alpha=… passes up to the loss.")
    parser.add_argument("--list", action="store_true", help="every function, too")
    parser.add_argument("--tree", default=str(Path(__file__).parent.parent), help="the checkout that is run")
    asked = parser.parse_args()
    root = Path(asked.tree).resolve()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    sys.path.insert(0, str(root))
    calls = trip(root)
    if asked.list:
        for name in dict.fromkeys(call.name for call in calls if call.handed or call.through):
            of = [call for call in calls if call.name == name]
            print(f"{sum(call.handed for call in of):4} {sum(call.through for call in of):4}  {name}")
    for word in ("handed", "through"):
        chosen = [call.name for call in calls if getattr(call, word)]
        print(f"{word}: {len(set(chosen))} functions, {len(chosen)} calls")


if __name__ == "__main__":
    main()
