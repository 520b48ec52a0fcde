"""docs/cluster.md as far as it can be tried without a cluster: its files are what Slurm's shell, Ray and KubeRay take,
and every command in it is one of ours. (What runs on one machine, `test_docs.py` runs.)"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packaging.test_docs import ROOT, blocks
from tests.packaging.test_examples import parsed

PAGE = ROOT / "docs/cluster.md"
FILES = {block.note: block.text for block in blocks(PAGE) if block.note not in ("", "fails")}
#: Prints its own words, each on a line.
STANDS_IN = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


def test_what_slurm_starts(tmp_path: Path) -> None:
    """Ray reads the words of `symmetric-run` itself, and takes the rest for ours."""
    from ray.scripts.symmetric_run import curate_and_validate_ray_start_args

    for name, text in {"srun": STANDS_IN, "scontrol": "#!/bin/sh\necho gpu-a\necho gpu-b\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job").write_text(FILES["fedtune.sbatch"])
    job = {"JOB_NODELIST": "gpu-[a-b]", "NNODES": "2", "CPUS_PER_TASK": "32", "GPUS_ON_NODE": "4", "SUBMIT_DIR": "/a b"}
    settings = {**os.environ, **{f"SLURM_{name}": value for name, value in job.items()}}
    settings["PATH"] = f"{tmp_path}{os.pathsep}{settings['PATH']}"
    done = subprocess.run(
        ["bash", "-eu", "job"], cwd=tmp_path, env=settings, capture_output=True, text=True, check=True
    )
    words = done.stdout.splitlines()
    cut = words.index("--")
    assert words[:2] == ["ray", "symmetric-run"]
    assert curate_and_validate_ray_start_args(words[2:cut]) == ["--num-cpus", "32", "--num-gpus", "4"]
    assert words[cut + 1] == "fedtune"
    asked = parsed(words[cut + 2 :])
    assert (asked["address"], asked["name"]) == ("auto", "/a b/runs/wide")


def test_what_kuberay_starts() -> None:
    job = yaml.safe_load(FILES["rayjob.yaml"])
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    name, *words = shlex.split(spec["entrypoint"])
    assert name == "fedtune" and parsed(words)["name"].startswith("/shared/")
    cluster = spec["rayClusterSpec"]
    assert cluster["rayVersion"] == importlib.metadata.version("ray")
    groups: list[dict[str, Any]] = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert all(group["rayStartParams"] == {} for group in groups)
    for group in groups:
        pod = group["template"]["spec"]
        [container], [volume] = pod["containers"], pod["volumes"]
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/shared"}]
        assert container["env"] == [{"name": "FEDTUNE_CACHE", "value": "/shared/cache"}]


def test_what_ray_up_starts() -> None:
    from ray.autoscaler._private import util

    config = util.prepare_config(yaml.safe_load(FILES["machines.yaml"]))
    util.validate_config(config)
    assert config["head_start_ray_commands"] and config["worker_start_ray_commands"], "those that Ray fills in"
    with pytest.raises(Exception, match="worker_ips"):
        util.validate_config({**config, "worker_ips": []})


def test_every_command_in_the_text_is_one_of_ours() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"`[^`\n]*?(fedtune \w+[^`\n…]*--address auto[^`\n]*)`", text)
    assert len(found) == 3
    for span in found:
        parsed(shlex.split(span)[1:])
