"""`--slots auto` on a cluster of three nodes of Ray on this machine: federations are timed on the node of each kind of
GPU (GPUs are declared only, so what times them there is a stand-in), trials then are on each card as many as was best
for its kind; and on cores real federations are timed on another node."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from pathlib import Path

SEARCHES = """
import dataclasses
import json
import sys
from pathlib import Path
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster
from fedtune.api.search import carry_out
from fedtune.options import Progress, SearchRequest
from fedtune.planning import pack_cluster
from fedtune.planning.plan import Plan, plan
from fedtune.planning.timed_federations import Footprint
from search_spaces.errors import UserError
from tests.fedtune import fake
from tests.fedtune.conftest import experiment, space

class Declared:
    "Federations of which so many gain from one another on a GPU of the kind of this node."
    surcharge, footprint = 1.0, Footprint(2, 1)

    def __init__(self, method, values, seeds, *, device, data_dir):
        assert (device, method, values["model"]) == ("cuda", "fedavg", "lenet5")
        has = ray.get_runtime_context().get_assigned_resources()
        node = next(n for n in ray.nodes() if n["NodeID"] == ray.get_runtime_context().get_node_id())
        self.best = 4 if "accelerator_type:H100" in node["Resources"] else 2
        assert (has["GPU"], has["CPU"]) == (1.0, node["Resources"]["CPU"] // node["Resources"]["GPU"]), has

    def time(self, count, threads):
        return float(min(count, self.best))

    def __exit__(self, *error):
        pass

class Timer(pack_cluster.Timer):
    federations = Declared

cloudpickle.register_pickle_by_value(fake)
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
cluster.add_node(num_cpus=8, num_gpus=1, resources={"accelerator_type:H100": 1})
cluster.add_node(num_cpus=4, num_gpus=1, resources={"accelerator_type:T4": 1})
asked = SearchRequest(
    "fedavg", dataset=sys.argv[1], name=Path("asked"), slots="auto", address=cluster.address, trials=30, plain=True,
    set=("clients=3", "partition=iid", "local_steps=2", "model=lenet5"),
)
measures = pack_cluster.Timer
pack_cluster.Timer = Timer
planned = plan(asked)
assert not ray.is_initialized() and not Path("asked").exists()
e = planned.experiment
folder = Path("cards").absolute()
values = {"resource": "GPU", "needs": 0, "hungry_below": 0, "diary": f"{folder}.diary", "together": 6}
kept = {key: getattr(e, key) for key in ("concurrency", "cpus_per_trial", "gpus_per_trial", "gpus_by_kind", "threads")}
made = experiment(
    folder, trials=9, rounds=2, scheduler="none", sampler="random", order="arrival", address=cluster.address,
    values=values, **kept,
)
result = carry_out(Plan(folder, made, space(), planned.facts, (), {}), Progress(plain=True, simulate=fake.Hungry))
assert result.finished, result

pack_cluster.Timer = measures
on_cores = plan(dataclasses.replace(asked, trials=2, per_trial={"gpus": 0, "cpus": 1}))
ray.init(address=cluster.address, log_to_driver=False)
class Held:
    pass
held = ray.remote(num_cpus=1, resources={"accelerator_type:T4": 0.001})(Held).remote()
pack_cluster.WAIT = 2.0
try:
    plan(asked)
except UserError as error:
    refused = str(error)
print(json.dumps({"kept": kept, "notes": planned.notes, "refused": refused, "cores": on_cores.facts["packing"]}))
"""


def test_one_machine_of_each_kind_is_measured(toy: Path, tmp_path: Path) -> None:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_worker_niceness": "0"}
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", SEARCHES, str(toy)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=settings,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kept"] == {
        "concurrency": 4 + 2,
        "cpus_per_trial": 1.0,
        "gpus_per_trial": 0.5,
        "gpus_by_kind": {"H100": 0.25, "T4": 0.5},
        "threads": 1,
    }
    assert "Slots: 6 × (1 core, 0.5 T4 or 0.25 H100, 1 thread)." in found["notes"]
    said = [line for line in done.stderr.splitlines() if line.startswith("There is room for")]
    assert len(said) == 1 and said[0].startswith("There is room for 6 trials at once: "), done.stderr
    assert "(GPU 0, 4 trials on it, H100)" in said[0] and "(GPU 0, 2 trials on it, T4)" in said[0]
    notes = [json.loads(line) for line in (tmp_path / "cards.diary").read_text().splitlines()]
    first = {note["process"]: note for note in reversed(notes)}.values()
    per = Counter((note["node"], note["gpu"], note["share"]) for note in first)
    assert sorted((share, count) for (_, _, share), count in per.items()) == [(0.25, 4), (0.5, 2)], per
    record = json.loads((tmp_path / "cards/provenance.json").read_text())
    kinds = [(kind["gpu"], kind["gpus_per_trial"], len(kind["table"])) for kind in record["packing"]["kinds"]]
    assert kinds == [("T4", 0.5, 5), ("H100", 0.25, 4)], "threads are those of the first"
    assert sorted((one["gpu"], one["slots"]) for one in record["slots"]) == [("", 0), ("H100", 4), ("T4", 2)]

    (cores,) = found["cores"]["kinds"]
    assert (cores["cores"], cores["gpus_per_trial"]) == (8, 0.0) and cores["peak_mib"] > cores["private_mib"] > 50
    assert all(row["trials_per_hour"] > 0 for row in cores["table"])
    assert "--slots auto has waited 0 minutes for " in found["refused"] and "4 cores and a GPU" in found["refused"]
