"""A package with entry points of all groups, as it would be installed: what it brings is known by name and can be
planned, and a run records its version and its file's hash."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULE = '''\
import dataclasses
import numpy as np
import torch
from trainables.data.readers.plane import SOURCES
from trainables.methods import fedavg

METHOD = dataclasses.replace(fedavg.METHOD, name="plugged", title="Plugged")
BLOBS = dataclasses.replace(next(one for one in SOURCES if one.name == "blobs"), name="plugged_blobs")


class Net(torch.nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.head = torch.nn.Linear(features, classes)

    def forward(self, x):
        return self.head(x.flatten(1))


def one_each(task, rng):
    """Class c belongs to client c modulo N."""
    counts = np.zeros((task.clients, len(task.sizes)), dtype=int)
    counts[np.arange(len(task.sizes)) % task.clients, np.arange(len(task.sizes))] = task.sizes
    return counts


def right(logits, labels):
    return (logits.argmax(1) == labels).double().mean()


def wrong(task, rng):
    return np.ones((task.clients, len(task.sizes)), dtype=int)
'''
POINTS = """\
[fedtune.methods]
plugged = plugged:METHOD
[fedtune.models]
plugged_net = plugged:Net
[fedtune.datasets]
plugged_blobs = plugged:BLOBS
[fedtune.partitions]
one_each = plugged:one_each
wrong_one = plugged:wrong
[fedtune.metrics]
right = plugged:right
"""
ASKED = """\
import json
from fedtune.options import SearchRequest
from fedtune.planning.plan import plan
from search_spaces.errors import UserError


settings = {"model": "plugged_net", "clients": 4, "rounds": 1}
asked = {"metric": "test_local_right", "dataset": "plugged_blobs"}
made = plan(SearchRequest("plugged", **asked, set={**settings, "partition": "one_each"}))
try:
    plan(SearchRequest("plugged", dataset="plugged_blobs", set={**settings, "partition": "wrong_one"}))
except UserError as error:
    said = str(error)
assert made.experiment.metric == ("local_right",), made.experiment.metric
facts = ("method_file", "model_file", "metric_file", "method_title")
print(json.dumps([{key: made.facts[key] for key in facts}, said]))
"""


def test_a_package_brings_methods_models_data_and_partitions(tmp_path: Path) -> None:
    (tmp_path / "plugged.py").write_text(MODULE)
    described = tmp_path / "plugged_things-1.2.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-things\nVersion: 1.2\n")
    (described / "entry_points.txt").write_text(POINTS)
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": paths, "FEDTUNE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    facts, said = json.loads(done.stdout)
    digest = hashlib.blake2b(MODULE.encode(), digest_size=8).hexdigest()
    package = {"file": "plugged-things 1.2", "hash": digest}
    assert facts == {
        "method_file": {"method": "plugged", **package},
        "model_file": {"model": "plugged_net", **package},
        "metric_file": {"metric": "right", **package},
        "method_title": "Plugged",
    }
    assert said.startswith("The partition wrong_one must be a table (clients, classes) of whole numbers"), said
    (described / "entry_points.txt").write_text("[fedtune.methods]\nbroken = plugged:NOTHING\n")
    done = subprocess.run(
        [sys.executable, "-m", "fedtune", "methods"], capture_output=True, text=True, check=False, env=environment
    )
    assert (
        done.returncode == 2
        and "The plug-in 'broken' (fedtune.methods, plugged:NOTHING) cannot be loaded" in done.stderr
    )
