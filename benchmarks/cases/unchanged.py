"""A global model that did not change, measured again or not."""

from __future__ import annotations

import statistics

from benchmarks.cases.methods import small
from benchmarks.images import npz
from benchmarks.measure import Arm, Processes, interleave, ratio
from benchmarks.results import Case

TITLE = "A model that did not change"
TEXT = """
DHF trains its global model in every tenth round and keeps it in between. Its paper profile (CIFAR-10's sizes: 50,000 and 10,000 images of 3 × 32 × 32, here
digits enlarged to that) in two processes, one of which forgets what it measured of a model, so that every round measures it again. The first
round, in which both measure it, is left out of the ratio.
"""
#: The parts of a round that the table shows.
PARTS = ("client", "evaluation")


def run(quick: bool) -> Case:
    case = Case("unchanged", TITLE, TEXT, quick=quick)
    values = small("dhf") if quick else paper() | {"dataset": str(npz(50_000, 10_000, 32, 3))}
    options = {"method": "dhf", "values": values}
    with Processes("unchanged, dhf") as processes:
        processes.start("measured again", Arm("ForgetfulRounds", options))
        processes.start("remembered", Arm("Rounds", options))
        arms = {name: [name] for name in ("measured again", "remembered")}
        found = interleave(processes, arms, repeats=2, drop=1)
        said = {name: processes.describe(name)["split"][1:] for name in arms}
    rows = [
        [name, statistics.median(seconds), *(statistics.mean(one[part] for one in said[name]) for part in PARTS)]
        + [ratio(found["measured again"], seconds)]
        for name, seconds in found.items()
    ]
    case.table("Seconds per round that keeps the model", ("arm", "s/round", *PARTS, "speed-up"), rows)
    case.faster(
        "dhf, paper profile, rounds that keep the global model, against measuring it again", 2.0, *found.values()
    )
    return case


def paper() -> dict[str, object]:
    """The values of DHF's paper profile."""
    from search_spaces import presets
    from trainables.registry import declared

    known = declared("dhf")
    space = presets.load("dhf", "default", known)
    return {**space.fix, **{key: value for key, value in space.profiles["paper"].items() if key in known}}
