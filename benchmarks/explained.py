"""The pictures of the pages that explain noise, races and early stopping: `python -m benchmarks explained`.

They are drawn from recorded tables (`benchmarks/tables/recorded`): what two configurations reached on every seed, and a
search and a race that are replayed on the recorded curves. So they show federations that were trained, and anyone can
draw them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from analysis import curve_table
from benchmarks import page
from benchmarks.page import DOCS, LEFT, frame
from benchmarks.replay.bench import tables
from benchmarks.replay.searcher import Setting
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.searchers.racing import Racing
from benchmarks.replay.simulator import Simulation
from benchmarks.replay.table import Episode, Table
from benchmarks.tables.lines import RECORDED

FOLDER = DOCS / "explained"
BLUE, ORANGE, GREY = "#3366cc", "#c2410c", "#767676"
#: Letters can be read where the picture is 420 pixels wide.
WIDTH, SIZE = 480, 14


class Line(NamedTuple):
    """What is drawn in one colour; lines of one colour have the same name."""

    points: Sequence[tuple[float, float]]
    colour: str
    name: str


def noise() -> str:
    """The two best configurations of DFRD's α and λ on every recorded seed."""
    table = curve_table.load(RECORDED / "dfrd_alpha_lambda.npz")
    last = 100 * table.validation[:, :, -1]
    lines = []
    for place, colour in zip(np.argsort(-last.mean(axis=1), kind="stable"), (BLUE, ORANGE), strict=False):
        values = table.configurations[place]
        name = f"α = {values['alpha']:g}, λ = {values['lambda']:g}: mean {last[place].mean():.1f} %"
        lines.append(Line([(float(seed), float(value)) for seed, value in enumerate(last[place], 1)], colour, name))
    told = {"title": "The two best configurations, seed by seed", "x": "seed", "y": "accuracy, %", "log": False}
    return drawn(told | {"from": 40.0}, lines, line=True, dots=True, legend=220)


def stopping() -> str:
    """The trials of a search with early stopping, replayed on the table of FedKF."""
    search, _ = replayed("fedkf", Present, 12, each=1)
    winner = search.winner()
    assert winner is not None
    lines = []
    for trial in search.queue.history.of(0):
        points = [(float(round_), 100 * value) for round_, value in sorted(trial.intermediate_values.items())]
        if trial.state.name == "COMPLETE":
            won = trial.params == dict(winner.values)
            lines.append(Line(points, ORANGE if won else BLUE, "the winner" if won else "ran to the end"))
        elif points:
            lines.append(Line(points, GREY, "stopped early"))
    told = {"title": "The trials of one search", "x": "round", "y": "accuracy, %", "log": False}
    return drawn(told, lines, line=True, legend=60)


def race() -> str:
    """How many seeds each configuration was given in a race, against its mean over all recorded seeds."""
    search, episode = replayed("fedkf", Racing, 40)
    trials = search.queue.history.of(0)
    given = Counter(int(trial.user_attrs.get("of", trial.number)) for trial in trials)
    winner = search.winner()
    assert winner is not None
    lines = []
    for number, seeds in sorted(given.items()):
        values = search.queue.trial(number).params
        won = values == dict(winner.values)
        mean = 100 * float(episode.truth_curve(values)[-1])
        lines.append(Line([(mean, float(seeds))], ORANGE if won else BLUE, "the winner" if won else "a configuration"))
    told = {"title": "The seeds of one race", "x": "mean accuracy over all seeds, %", "y": "seeds given"}
    return drawn(told | {"log": False}, lines, dots=True, legend=60)


def replayed(name: str, kind: type[Present], federations: int, **options: int) -> tuple[Present, Episode]:
    """A search that was replayed on that table until its budget was spent, and where it was."""
    table: Table = tables(RECORDED, [name])[name]
    episode = table.episode(0)
    searcher = kind(
        Setting(table.space, table.rounds, episode.seeds, 0, 1, episode.truth_curve, episode.fresh), **options
    )
    Simulation(episode, searcher, slots=1, budgets=[table.rounds * federations]).run()
    return searcher, episode


def drawn(
    told: Mapping[str, object], lines: Sequence[Line], *, line: bool = False, dots: bool = False, legend: int
) -> str:
    """A picture of these lines, or of their points; grey ones below. `legend`: how far below the top the names are."""
    out, at = frame(told, [point for one in lines for point in one.points], WIDTH, SIZE)
    colours = {}
    for one in sorted(lines, key=lambda one: (GREY, BLUE, ORANGE).index(one.colour)):
        drawing, *circles, _ = page.line("", [at(x, y) for x, y in one.points], one.colour, 0, 0)
        out += [drawing] * line + circles * dots
        colours[one.name] = one.colour
    for place, (name, colour) in enumerate(colours.items()):
        out.append(f'<text x="{LEFT + 14}" y="{legend + 18 * place}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


PICTURES = {"noise": noise, "stopping": stopping, "race": race}


def write(folder: Path = FOLDER) -> None:
    """All of them, as files of SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")
