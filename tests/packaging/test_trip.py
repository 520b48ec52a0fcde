"""scripts/trip.py: which functions a parameter's value passes from the command line to the loss."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import trip

ROOT = Path(__file__).resolve().parents[2]


def function(tmp_path: Path, text: str) -> list[trip.Call]:
    """The calls that a tracer notes while `text`, a module of a package of that name, runs its `go(value)`."""
    module = tmp_path / "fedtune" / "module.py"
    module.parent.mkdir()
    module.write_text(text)
    names: dict[str, object] = {"__name__": "fedtune.module"}
    exec(compile(text, str(module), "exec"), names)
    tracer = trip.Tracer(tmp_path)
    go = names["go"]
    assert callable(go)
    sys.setprofile(tracer)
    try:
        go(float(trip.TEXT))
    finally:
        sys.setprofile(None)
    return tracer.calls


def test_what_holds_the_value() -> None:
    value = float(trip.TEXT)
    for held in (value, f"alpha={trip.TEXT}", {"a": [(value,)]}, {1: {2: value}}):
        assert trip.holds(held)
    for other in (0.5, "alpha", {"alpha": 1.0}, None, SimpleNamespace(alpha=value)):  # the last is not of ours
        assert not trip.holds(other)


def test_what_reads_the_value_is_not_passed_through(tmp_path: Path) -> None:
    calls = function(
        tmp_path,
        "def go(value):\n"
        "    look({'alpha': value})\n"
        "    return hand_on(value)\n"
        "def look(values): inner(values)\n"
        "def inner(values): return values\n"
        "def hand_on(value): return [value]\n"
        "def no_part(): return 1\n",
    )
    found = {call.name.partition(":")[2]: (call.handed, call.through) for call in calls}
    # `inner` returns it, to a function that makes nothing of it.
    assert found == {"go": (True, True), "look": (True, False), "inner": (True, False), "hand_on": (True, True)}


def test_an_object_that_keeps_the_value_has_it_passed_through(tmp_path: Path) -> None:
    calls = function(
        tmp_path,
        "class Box:\n"
        "    def __init__(self, value): self.value = value\n"
        "    def read(self): return self.value\n"
        "    def other(self): return 1\n"
        "def go(value):\n"
        "    box = Box(value)\n"
        "    box.other()\n"
        "    return box.read()\n",
    )
    found = {call.name.partition(":")[2]: (call.handed, call.through) for call in calls}
    expected = {
        "go": (True, True),
        "Box.__init__": (True, True),
        "Box.other": (False, False),
        "Box.read": (False, True),
    }
    assert found == expected


def test_the_trip_ends_at_the_loss_and_is_no_longer_than_it_was() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "trip.py"), "--list"], capture_output=True, text=True, check=True
    )
    *functions, handed, through = done.stdout.splitlines()
    assert functions[0].endswith("fedtune/commands/search.py:command") and functions[-1].endswith(".student_loss")
    counts = [int(n) for n in re.findall(r"\d+", f"{handed} {through}")]
    # Who needs another function on the way raises these, and says in the commit why.
    assert all(count <= most for count, most in zip(counts, (97, 140, 55, 71), strict=True)), done.stdout
