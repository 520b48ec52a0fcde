"""Trials over several nodes of Ray on this machine, whose GPUs are declared only: no GPU has more trials than its parts
allow, a search without GPUs uses every node's cores, the map of slots is printed and recorded, `fedtune doctor` knows
every node, and a trial for which a whole GPU is too small goes on on one of a kind with more memory."""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import subprocess
import sys
from collections import Counter
from pathlib import Path

#: Three nodes: one without a GPU, one with two, one with one GPU of a kind that Ray knows.
SEARCHES = """
import json
import os
from dataclasses import asdict
from pathlib import Path
from ray import cloudpickle
from ray.cluster_utils import Cluster
from fedtune.api.doctor import doctor
from fedtune.api.search import carry_out
from fedtune.options import Progress
from fedtune.planning.plan import Plan
from tests.fedtune import fake
from tests.fedtune.conftest import experiment, space

cloudpickle.register_pickle_by_value(fake)
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0})
def add_node(kind, cpus=2, gpus=1):
    env = {"PATH": f"{Path(kind).absolute()}:{os.environ['PATH']}"}
    known = {} if kind == "own" else {f"accelerator_type:{kind}": 1}
    cluster.add_node(num_cpus=cpus, num_gpus=gpus, resources=known, env_vars=env)
add_node("own", 4, 2)
add_node("T4")
cluster.connect()
for name, gpus, at_once in (("gpus", 0.5, 6), ("cores", 0.0, 8)):
    values = {"resource": "CPU", "needs": 0, "hungry_below": 0, "diary": f"{name}.diary", "together": at_once}
    folder = Path(name).absolute()
    asked = experiment(
        folder, trials=12, rounds=2, scheduler="none", sampler="random", lag=16, concurrency=at_once,
        cpus_per_trial=1.0, gpus_per_trial=gpus, values=values | {"diary": str(folder) + ".diary"},
    )
    result = carry_out(Plan(folder, asked, space(), {}, (), {}), Progress(plain=True, simulate=fake.Hungry))
    assert result.finished, result
print(json.dumps([asdict(check) for check in doctor("auto")[-3:]]))
for kind in ("H100", "A10G"):
    add_node(kind)
values = {"resource": "accelerator_type:H100", "needs": 1, "hungry_below": 3, "diary": "cards.diary", "together": 1}
folder = Path("cards").absolute()
asked = experiment(
    folder, trials=5, rounds=3, scheduler="none", sampler="random", lag=16, concurrency=5, cpus_per_trial=1.0,
    gpus_per_trial=1.0, values=values | {"diary": str(folder) + ".diary"},
)
result = carry_out(Plan(folder, asked, space(), {}, (), {}), Progress(plain=True, simulate=fake.HungryForCard))
assert result.finished, result
"""
#: What the driver of each kind's GPUs says. ("own" is of no kind that Ray knows.)
DRIVERS = {
    "own": "Own 1, 8192 MiB",
    "T4": "Tesla T4, 15360 MiB",
    "A10G": "NVIDIA A10G, 23028 MiB",
    "H100": "NVIDIA H100, 81559 MiB",
}


def test_parts_of_gpus_on_several_nodes(tmp_path: Path) -> None:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_worker_niceness": "0"}
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    for kind, line in DRIVERS.items():
        tool = tmp_path / kind / "nvidia-smi"
        tool.parent.mkdir()
        tool.write_text(f"#!/bin/sh\necho '{line}'\n")
        tool.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", SEARCHES], capture_output=True, text=True, cwd=tmp_path, env=settings, timeout=500
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("There is room for")]
    assert len(said) == 3, done.stderr
    assert said[0].startswith("There is room for 6 trials at once: ") and "(GPUs 0-1, 2 trials on each)" in said[0]
    assert "0 on " in said[0] and "(no GPU)" in said[0] and "(GPU 0, 2 trials on it, T4)" in said[0]
    assert said[1].startswith("There is room for 8 trials at once: ")

    notes = {name: read(tmp_path / f"{name}.diary") for name in ("gpus", "cores")}
    for name, most, nodes in (("gpus", 2, 3), ("cores", 4, 3)):
        per = Counter((note["node"], note["gpu"]) for note in first(notes[name]))
        assert max(per.values()) <= most and len(per) == nodes, per
    recorded = json.loads((tmp_path / "gpus/provenance.json").read_text())["slots"]
    assert sorted((one["cores"], one["gpus"], one["gpu"], one["slots"]) for one in recorded) == [
        (2, 0, "", 0),
        (2, 1, "T4", 2),
        (4, 2, "", 4),
    ]
    moved = re.findall(r"Trial \d+ stopped after round 1, as memory did not suffice; .* with 1 (\w+)\.", done.stderr)
    notes["cards"] = read(tmp_path / "cards.diary")
    by_trial = {
        note["alpha"]: [one["on"] for one in notes["cards"] if one["alpha"] == note["alpha"]] for note in notes["cards"]
    }
    # Each ends on the largest card; a smaller one than that is left for the next larger one.
    assert len(by_trial) == 5 and all(on[-1] == "H100" for on in by_trial.values()), by_trial
    left = {"": "T4", "T4": "A10G", "A10G": "H100"}
    for on in by_trial.values():
        assert all(now in (before, left[before]) for before, now in itertools.pairwise(on) if before != "H100"), on
    assert "H100" in moved and {*moved} <= {*left.values()}, moved
    checks = json.loads(done.stdout.splitlines()[-1])
    assert {check["state"] for check in checks} == {"ok"}, checks
    for words in ("of memory free", "as here fedtune ", "its clock is as here", "sees the data in", "sees the runs in"):
        assert all(words in check["text"] for check in checks), (words, checks)
    assert sorted(re.findall(r"\d cores, \d GPUs?(?: \([^)]*\))?", str(checks))) == [
        "2 cores, 0 GPUs",
        "2 cores, 1 GPU (Tesla T4, 15360 MiB)",
        "4 cores, 2 GPUs (Own 1, 8192 MiB)",
    ]


def read(diary: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in diary.read_text().splitlines()]


def first(notes: list[dict[str, object]]) -> list[dict[str, object]]:
    """One note of each process: they all wait for each other in their first round."""
    return list({note["process"]: note for note in reversed(notes)}.values())
