"""`--slots auto` on a cluster of three nodes of Ray on this machine: federations are timed on the node of each kind of
GPU (GPUs are declared only, so what times them there is a stand-in), trials then are on each card as many as was best
for its kind; on cores real federations are timed on another node; and trials of a kind of GPU that is lost go on on
another one, or wait for one to come."""

from __future__ import annotations

import json
import os
import re
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
from fedtune.machine import cluster as cluster_
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
usual = plan(dataclasses.replace(asked, slots=None)).experiment
assert (usual.gpus_per_trial, usual.concurrency, usual.order) == (0.25, 30, "arrival"), usual
assert not ray.is_initialized() and [machine.gpus for machine in cluster_.machines(cluster.address)] == [0, 1, 1]
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


#: The first search loses its T4 in round 2, the second one its H100, which is all that is left; then another joins.
LOSSES = """
import sys
import threading
import time
from pathlib import Path
from ray import cloudpickle
from ray.cluster_utils import Cluster
from fedtune.api.search import carry_out, driven
from fedtune.decisions.history import Part
from fedtune.execution import ray_session, shares
from fedtune.options import Progress
from fedtune.planning.plan import Plan
from search_spaces.errors import UserError
from tests.fedtune import fake
from tests.fedtune.conftest import experiment, space

cloudpickle.register_pickle_by_value(fake)
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
def add_node(kind):
    return cluster.add_node(num_cpus=2, num_gpus=1, resources={f"accelerator_type:{kind}": 1})
nodes = {kind: add_node(kind) for kind in ("H100", "T4")}

def asked(name, trials, together, lost):
    folder = Path(name).absolute()
    values = {"resource": "GPU", "needs": 0, "hungry_below": 0, "diary": f"{folder}.diary", "together": together}
    def lose():
        diary = Path(f"{folder}.diary")
        while not diary.exists() or diary.read_text().count('"round": 2') < together:
            time.sleep(0.05)
        cluster.remove_node(nodes[lost], allow_graceful=False)
    threading.Thread(target=lose, daemon=True).start()
    made = experiment(
        folder, trials=trials, rounds=5, scheduler="none", sampler="random", order="arrival", address=cluster.address,
        values=values | {"sleep": 1.0, "rounds": 5}, concurrency=4, cpus_per_trial=1.0, gpus_per_trial=1.0,
        gpus_by_kind={"H100": 0.5, "T4": 1.0},
    )
    return Plan(folder, made, space(), {}, (), {})

shown = Progress(plain=True, simulate=fake.Hungry)
result = carry_out(asked("kind", 4, 3, "T4"), shown)
assert result.counts == {"COMPLETE": 4}, result
ray_session.PATIENCE = shares.PATIENCE = 3.0
left = asked("all", 2, 2, "H100")
try:
    carry_out(left, shown)
except UserError as error:
    print(error.exit_code, error)
add_node("A10G")
result = driven(Part(left.folder, left.experiment, left.space), (), shown)
assert result.counts == {"COMPLETE": 2}, result
"""


def searches(script: str, folder: Path, *given: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """What a process printed that ran such a script of a cluster of its own, without an error."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_worker_niceness": "0", **settings}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", script, *given]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=500)
    assert done.returncode == 0, done.stderr
    return done


def test_one_machine_of_each_kind_is_measured(toy: Path, tmp_path: Path) -> None:
    done = searches(SEARCHES, tmp_path, str(toy))
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


def test_trials_of_a_lost_kind_go_on_on_another(tmp_path: Path) -> None:
    """They are asked for on the lost machine again, as Ray notices its death seconds later; that is taken back."""
    done = searches(LOSSES, tmp_path, RAY_health_check_period_ms="1000")
    said = re.findall(r"Trial (\d) (stopped after round|waited for a machine that is gone)", done.stderr)
    assert [what.split()[0] for _, what in said] == ["stopped", "waited", "stopped", "stopped"], done.stderr
    assert said[0][0] == said[1][0]
    notes = [json.loads(line) for line in (tmp_path / "kind.diary").read_text().splitlines()]
    on = {note["alpha"]: [other for other in notes if other["alpha"] == note["alpha"]] for note in notes}
    shares = sorted([note["share"] for note in of_trial] for of_trial in on.values())
    assert len(on) == 4 and [set(of_trial) for of_trial in shares] == 3 * [{0.5}] + [{0.5, 1.0}], shares
    assert sorted(shares[3], reverse=True) == shares[3], "from the T4 to the H100"
    assert "There is room for 0 trials at once: " in done.stderr
    assert "The search waits 0.05 minutes for a machine with room for a trial." in done.stderr
    assert "3 No machine of the cluster has had room for a trial for 0.05 minutes. The search stopped" in done.stdout
    assert f"no trial was scored by this. Then go on with `fedtune resume {tmp_path}/all`." in done.stdout
    notes = [json.loads(line) for line in (tmp_path / "all.diary").read_text().splitlines()]
    assert sorted(note["round"] for note in notes if note["share"] == 1.0)[-1] == 5, "on the machine that joined"
