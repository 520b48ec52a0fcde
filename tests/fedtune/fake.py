"""A simulation that costs nothing and has the engine's interface; rewards alpha near 0.3 and lambda near 0.7."""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search_spaces.errors import EnvironmentFault, UserError


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class Fake:
    """Misbehaves as values["trouble"] says. `behaviour` holds such values where the run is to go on later: the record
    would refuse them, as they are no parameters."""

    def __init__(
        self,
        method: str,
        values: Mapping[str, Any],
        seeds: Sequence[int],
        *,
        device: str = "cpu",
        data_dir: str | None = None,
        **behaviour: Any,
    ) -> None:
        self.values, self.seeds = {**values, **behaviour}, tuple(seeds)
        self.rounds, self.round = int(values["rounds"]), 0
        self.state = 0.0
        if self.values.get("trouble") == "setup":
            raise UserError("alpha and lambda must not be so.")

    def step(self) -> list[dict[str, Any]]:
        time.sleep(float(self.values.get("sleep", 0.0)))
        self.round += 1
        trouble = self.values.get("trouble")
        if trouble == "raise" and self.round == 2:
            raise RuntimeError("boom\nsecond line")
        if trouble == "die" and self.round == 3 and not Path(self.values["flag"]).exists():
            Path(self.values["flag"]).touch()
            os.kill(os.getpid(), 9)
        if trouble == "die always":
            os.kill(os.getpid(), 9)
        if trouble == "crash always":
            os.abort()
        if trouble == "die later" and (deaths := _size(Path(self.values["flag"]))) < 3 and self.round == deaths + 2:
            Path(self.values["flag"]).write_bytes(bytes(deaths + 1))  # three times, each time a round later
            os.kill(os.getpid(), 9)
        # A state that only a true checkpoint brings back.
        self.state = math.sin(self.state + self.round) * 0.01
        quality = 1 - (self.values["alpha"] - 0.3) ** 2 / 4 - (self.values.get("lambda", 0.7) - 0.7) ** 2
        rows = []
        for seed in self.seeds:
            value = quality * (1 - math.exp(-self.round / 3)) + self.state + 0.001 * (seed % 7)
            # What a seed does to one configuration alone; what it does to all alike decides nothing.
            value += float(self.values.get("own_noise", 0.0)) * math.sin(1000 * self.values["alpha"] * (1 + seed))
            loss = math.nan if trouble == "nan" and self.round == 2 else 1 - value
            row = {"round": self.round, "seed": seed, "train_loss": loss, "bytes_up": 100 * self.round, "seconds": 0.01}
            if (
                self.round % int(self.values.get("eval_every", 1)) == 0 or self.round == self.rounds
            ) and trouble != "unmeasured":
                row |= {
                    "val_global_accuracy": value,
                    "global_accuracy": value - 0.01,
                    "val_wlp": value / 2,
                    "wlp": value / 2.1,
                }
            rows.append(row)
        return rows

    def keep_in(self, folder: Path) -> None:
        """Nothing is kept."""

    def save(self, path: str | Path, *, merged: bool = False) -> tuple[str, ...]:
        Path(path).write_text(json.dumps([self.round, self.state.hex()]))
        return ()

    def load(self, path: str | Path) -> tuple[str, ...]:
        self.round, state = json.loads(Path(path).read_text())
        self.state = float.fromhex(state)
        return ()

    def partition(self) -> dict[str, Any]:
        return {str(seed): [[1, 2]] for seed in self.seeds} | {"hash": {str(seed): "0" for seed in self.seeds}}

    def keep_models(self) -> None:
        """There are none."""

    def confusion(self) -> dict[int, Any]:
        return {}

    def personal_models(self) -> dict[int, Any]:
        return {}

    def models(self) -> dict[int, Any]:
        return {}


class Troubled(Fake):
    """Misbehaves at some cells (alpha, lambda) of a grid, each time in another way; soundly at the others."""

    TROUBLES: Mapping[tuple[float, float], str] = {
        (0.0, 0.0): "setup",
        (0.0, 0.5): "raise",
        (1.0, 0.5): "nan",
        (2.0, 0.0): "unmeasured",
    }

    def __init__(self, method: str, values: Mapping[str, Any], seeds: Sequence[int], **rest: Any) -> None:
        trouble = self.TROUBLES.get((values["alpha"], values["lambda"]))
        super().__init__(method, {**values, "trouble": trouble}, seeds, **rest)


class Gone(Fake):
    """Its data, the file values["data"], vanish with the end of a trial."""

    def __init__(self, method: str, values: Mapping[str, Any], seeds: Sequence[int], **rest: Any) -> None:
        super().__init__(method, values, seeds, **rest)
        if not Path(self.values["data"]).exists():
            raise EnvironmentFault(f"{self.values['data']} is gone.")

    def step(self) -> list[dict[str, Any]]:
        rows = super().step()
        if self.round == self.rounds:
            Path(self.values["data"]).unlink()
        return rows


class Full(Fake):
    """Its disk is full from round 3 on while the file values["flag"] is there."""

    def step(self) -> list[dict[str, Any]]:
        if self.round == 2 and Path(self.values["flag"]).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().step()


class Hungry(Fake):
    """Runs out of memory in round 2 until Ray has set aside values["needs"] of values["resource"]; notes in
    values["diary"] who stepped when, with what share and on which GPU. The first values["together"] processes wait for
    each other. With values["wait"] those that are not hungry end when a hungry one has had enough, or in vain after
    two minutes."""

    def _wait_for_others(self) -> None:
        folder, deadline = Path(self.values["diary"] + ".processes"), time.monotonic() + 120
        folder.mkdir(exist_ok=True)
        (folder / str(os.getpid())).touch()
        while len(list(folder.iterdir())) < self.values.get("together", 1) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _had(self) -> float:
        import ray

        return float(ray.get_runtime_context().get_assigned_resources().get(self.values["resource"], 0.0))

    def _on(self) -> str:
        """The kind of the GPUs of this machine."""
        return ""

    def step(self) -> list[dict[str, Any]]:
        import ray
        import torch

        self._wait_for_others()
        had = self._had()
        with Path(self.values["diary"]).open("a") as file:
            note = {
                "alpha": self.values["alpha"],
                "round": self.round + 1,
                "share": had,
                "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "on": self._on(),
                "node": ray.get_runtime_context().get_node_id(),
                "process": os.getpid(),
                "begin": time.monotonic(),
            }
            if self.round == 1 and self.values["alpha"] < self.values["hungry_below"] and had < self.values["needs"]:
                file.write(json.dumps(note | {"end": time.monotonic()}) + "\n")
                if self.values.get("killed"):
                    file.flush()
                    with Path(self.values["diary"] + ".kills").open("a") as kills:
                        kills.write("x")
                    os.kill(os.getpid(), 9)
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
            fed = Path(self.values["diary"] + ".fed")
            if self.values["alpha"] < self.values["hungry_below"]:
                if self.round == 1:
                    fed.touch()
            elif self.values.get("wait") and self.round == self.rounds - 1:
                deadline = time.monotonic() + 120
                while not fed.exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
            rows = super().step()
            file.write(json.dumps(note | {"end": time.monotonic()}) + "\n")
        return rows


class SlowToStart(Fake):
    """Its process takes a second more to start than the one before it did, as one with a GPU does; the first steps
    wait until values["together"] processes are starting. Notes in values["diary"] which process begins a trial."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        with Path(self.values["diary"]).open("a") as file:
            file.write(f"{os.getpid()}\n")
        if self._begun().count(str(os.getpid())) == 1:
            time.sleep(len(set(self._begun())) - 1)

    def _begun(self) -> list[str]:
        return Path(self.values["diary"]).read_text().splitlines()

    def step(self) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 120
        while len(set(self._begun())) < self.values["together"] and time.monotonic() < deadline:
            time.sleep(0.01)
        return super().step()


class HungryForCard(Hungry):
    """Runs out of memory in round 2 on all machines but those whose GPUs are of the kind values["resource"]."""

    def _on(self) -> str:
        import ray

        here = ray.get_runtime_context().get_node_id()
        (node,) = (node for node in ray.nodes() if node["NodeID"] == here)
        return next((name.partition(":")[2] for name in node["Resources"] if name.startswith("accelerator_type:")), "")

    def _had(self) -> float:
        return float(self.values["resource"].endswith(f":{self._on() or None}"))


class OfMethod(Fake):
    """Takes the parameters of real methods: best at a learning rate of 0.03, with a peak and a noise of the method's
    own."""

    PEAKS: Mapping[str, float] = {"fedavg": 0.6, "fedprox": 0.9, "scaffold": 0.3}

    def __init__(self, method: str, values: Mapping[str, Any], seeds: Sequence[int], **rest: Any) -> None:
        given = {**values, "alpha": 0.3 + math.log10(float(values["lr"]) / 0.03), "lambda": 0.7}
        super().__init__(method, given, seeds, **rest)
        self.method = method

    def step(self) -> list[dict[str, Any]]:
        rows = super().step()
        for row in rows:
            noise = 0.05 * math.sin(row["seed"] % 1000 + 10 * self.PEAKS[self.method])
            for name in ("val_global_accuracy", "global_accuracy"):
                row[name] = self.PEAKS[self.method] * row[name] + noise
            row["bytes_down"] = row["bytes_up"]
        return rows


class OfEqualMethods(OfMethod):
    """Two methods that few seeds do not tell apart, as a seed does something else to each of them."""

    PEAKS: Mapping[str, float] = {"fedavg": 0.9, "fedprox": 0.9, "scaffold": 0.3}

    def step(self) -> list[dict[str, Any]]:
        rows = super().step()
        for row in rows:
            row["val_global_accuracy"] += 0.05 * math.sin(7 * len(self.method) * (1 + row["seed"] % 1000))
        return rows


class OfTable(OfMethod):
    """Measures what FedProx's space selects by, too."""

    def step(self) -> list[dict[str, Any]]:
        rows = super().step()
        return [row | {"amp": row["global_accuracy"], "val_amp": row["val_global_accuracy"]} for row in rows]
