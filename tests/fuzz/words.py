"""Inputs that are hostile command lines: any command, any of its options, values that nobody expects."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.fuzz import hostile
from tests.fuzz.case import OUTPUTS, Case
from tests.fuzz.scene import FILES, SMALL

RUNS = ("run", "cut", "final")
_METHODS = ("fedavg", "fedprox", "dfrd", "fedper", "auto")
#: What is right, by the parameter's name; hostile values are laid among these.
_GOOD: dict[str, tuple[str, ...]] = {
    "method": _METHODS,
    "name": ("new", "there/new", "fedprox", "digits"),
    "run": RUNS,
    "runs": RUNS,
    "best": ("best.yaml", *_METHODS),
    "target": ("best.yaml", "run", "final", "fedavg"),
    "space": ("default", "space.yaml"),
    "dataset": ("digits", "data.npz", "images", "rotated_digits"),
    "trials": ("1", "3"),
    "rounds": ("1", "2"),
    "time": ("1s", "90", "2h", "1.5d"),
    "seeds": ("1", "2", "1000"),
    "seed": ("0", "7"),
    "warm_start": ("run", "cut"),
    "metric": ("global_accuracy", "val_local_accuracy", "bytes_up", "wlp", "seconds", "test_wlp"),
    "sampler": ("ei", "tpe", "random", "grid", "gp", "nsga2"),
    "scheduler": ("asha", "median", "none"),
    "lag": ("1", "4"),
    "set": ("local_steps=1", "keep_images=true", "lr=0.1", "clients=5", "omega=0.1", "model=mlp", "batch_norm=running"),
    "slots": ("1", "2"),
    "per_trial": ("cpus=1", "cpus=0.5,gpus=0", "gpus=0.5"),
    "output": ("out.yaml", "out.json", "out.html", "out.npz", "out.png"),
    "figure": ("figure.html",),
    "readout": ("last", "best"),
    "images": ("1", "2"),
    "steps": ("1",),
    "private": ("random", "searched"),
    "trial": ("0", "2"),
    "port": ("8080",),
}
#: The same where one command means something else by the name; without any, all values are hostile.
_GOOD_OF: dict[tuple[str, str], tuple[str, ...]] = {
    ("figure", "name"): ("curves", "rounds", "trials", "pivot"),
    ("figure", "output"): ("out.html", "out.md", "out.csv"),
    **{(command, "images"): () for command in ("report", "compare", "search")},
}
#: Left out: it measures real federations, or draws pictures in a browser; others name values that would do so.
_NEVER = {
    ("search", "slots"): ("auto",),
    **dict.fromkeys((("report", "images"), ("figure", "kind")), ("png", "svg", "pdf")),
}
#: Left out, as it never ends by itself.
_ENDLESS = {("report", "watch")}
#: Keys of parameters, for `--set KEY=hostile`.
_SETTINGS = """
clients local_steps local_epochs batch_size lr omega rho model dataset partition rounds eval_every precision executor
validation_fraction mu active_clients seed x lambda base
"""
_KEYS = _SETTINGS.split()


def _commands() -> dict[str, list[Any]]:
    """The parameters of every command, as the command line declares them."""
    from typer.main import get_command

    from fedtune.cli import app

    group: Any = get_command(app)
    found = {name: group.get_command(None, name) for name in group.list_commands(None)}
    return {
        name: [p for p in command.params if p.name != "help" and (name, p.name) not in _ENDLESS]
        for name, command in found.items()
    }


@st.composite
def _value(draw: st.DrawFn, command: str, parameter: Any, likely: float) -> str:
    """A value of an option or argument: right with the probability `likely`."""
    good = _GOOD_OF.get((command, parameter.name), _GOOD.get(parameter.name, ()))
    if good and draw(st.floats(0, 1)) < likely:
        return str(draw(st.sampled_from(good)))
    if parameter.name == "set" and draw(st.booleans()):
        bad = draw(st.sampled_from(hostile.NUMBERS + list(hostile.TEXTS)))
        return f"{draw(st.sampled_from(_KEYS))}={bad}"
    found = str(
        draw(
            st.one_of(
                st.sampled_from(hostile.NUMBERS),
                st.sampled_from(hostile.TEXTS),
                st.text(max_size=20).filter(lambda text: "\0" not in text and not text.startswith("/")),
            )
        )
    )
    return "x" if found in _NEVER.get((command, parameter.name), ()) else found


@st.composite
def lines(draw: st.DrawFn) -> Case:
    """A command line: a command, its arguments, up to five of its options."""
    commands = _commands()
    names = sorted(commands) + ["search", "search", "run", "run", "resume", "extend"]
    name = draw(st.sampled_from(names))
    words = [name]
    for parameter in commands[name]:
        if parameter.param_type_name == "argument":
            many = draw(st.integers(1, 2)) if parameter.nargs == -1 else int(parameter.required or draw(st.booleans()))
            words += [draw(_value(name, parameter, 0.8)) for _ in range(many)]
    options = [p for p in commands[name] if p.param_type_name == "option"]
    for option in draw(st.lists(st.sampled_from(options), max_size=5)) if options else ():
        # `search --dry-run` trains for real; that is tried in `documents`, with a small space.
        if option.name == "dry_run":
            continue
        words.append(max(option.opts, key=len))
        if not option.is_flag:
            words.append(draw(_value(name, option, 0.4)))
    if name == "extend" and not {"--trials", "--rounds"} & set(words):
        words += [draw(st.sampled_from(["--trials", "--rounds"])), draw(st.sampled_from(["1", *hostile.NUMBERS]))]
    if draw(st.integers(0, 30)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(hostile.TEXTS)))
    if name in ("search", "run") and draw(st.booleans()):
        words += SMALL
    output = draw(st.sampled_from(["file"] * 8 + list(OUTPUTS)))
    return Case("command lines", tuple(words), (*RUNS, *FILES), output=output)
