"""One trial: one configuration simulated over several paired seeds, round by round.

Seed k fixes partition, initialisation, cohort and batches alike for every configuration, so trials are compared
pairwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from search_spaces import own_files
from search_spaces.parameter import Value
from trainables import registry
from trainables.models import Model
from trainables.simulation import checkpoint
from trainables.simulation.client_files import ClientFiles, Key
from trainables.simulation.kept_images import Arrays
from trainables.simulation.rounds import Row, Simulation, trained_together
from trainables.wire import Params
from trainables.zoo import Card, card_of_client

#: Of the format of checkpoints: raised when what is saved changes.
_VERSION = 4


class Replicates:
    """One configuration of a method simulated over `seeds` in lock-step."""

    def __init__(
        self,
        method: str,
        values: Mapping[str, Value] | registry.Configuration,
        seeds: Sequence[int],
        *,
        device: str = "cpu",
        data_dir: str | None = None,
    ) -> None:
        """values: by key, each valid by itself. Raises `UserError` where the configuration, the data set or the
        federation is impossible."""
        self.seeds = tuple(seeds)
        self._client_files = ClientFiles()
        made = values if isinstance(values, registry.Configuration) else registry.possible(method, values)
        self.simulations = [Simulation(method, made, seed, torch.device(device), data_dir) for seed in self.seeds]

    @property
    def round(self) -> int:
        """Completed rounds."""
        return self.simulations[0].progress.round

    @property
    def rounds(self) -> int:
        """Planned rounds."""
        return self.simulations[0].settings.rounds

    def step(self) -> list[Row]:
        """Runs one round for every seed; one row per seed, as in rounds.jsonl."""
        trained = trained_together(self.simulations)
        return [s.run_round(trained.pop(s, None)) for s in self.simulations]

    def keep_in(self, folder: Path) -> None:
        """From now on what clients keep goes into files in `folder`, where checkpoints are too, as soon as more of it
        is in memory than `client_files.IN_MEMORY`."""
        self._client_files.keep_in(folder)
        for s in self.simulations:
            s.keeps = self._keeps

    def _keeps(self, held: Any) -> None:
        if self._client_files.overflow(held) and (found := self._client_files.move_out(self._of_clients())):
            self._take(found)

    def save(self, path: str | Path, *, merged: bool = False) -> list[str]:
        """Writes everything that the next round depends on, atomically. What clients keep goes into files beside
        `path`, whose names are returned; those that are not among them are needed no longer. `merged`: there is then
        one such file, which holds nothing else."""
        now = self._of_clients()
        listed, mapped = self._client_files.save(Path(path).parent, now, merged=merged)
        states = [s.save() for s in self.simulations]
        checkpoint.save(
            Path(path), {"version": _VERSION, "seeds": self.seeds, "simulations": states, "clients": listed}
        )
        if mapped:
            self._take(mapped)
        return self._client_files.names

    def _of_clients(self) -> dict[Key, Any]:
        each = enumerate(self.simulations)
        return {(place, field, c): held for place, s in each for (field, c), held in s.of_clients().items()}

    def _take(self, found: Mapping[Key, Any]) -> None:
        for place, simulation in enumerate(self.simulations):
            simulation.take({(field, c): tree for (of, field, c), tree in found.items() if of == place})
        held = self._of_clients()
        self._client_files.holds({key: held[key] for key in found})

    def load(self, path: str | Path) -> list[str]:
        """Continues from a file that `save` wrote for the same configuration and seeds, and returns what that did."""
        tree = checkpoint.load(Path(path), self.simulations[0].fed.device)
        if tree["version"] != _VERSION:
            raise ValueError(f"{path} has version {tree['version']} and this fedtune reads version {_VERSION}")
        if tuple(tree["seeds"]) != self.seeds:
            raise ValueError(f"{path} is a checkpoint of the seeds {tree['seeds']}")
        for simulation, saved in zip(self.simulations, tree["simulations"], strict=True):
            simulation.load(saved)
        self._take(self._client_files.load(Path(path).parent, tree["clients"], self.simulations[0].fed.device))
        return self._client_files.names

    def partition(self) -> dict[str, Any]:
        """Training samples by client and class for every seed, with the partition's hash and the data set's, and the
        names of classes and, where clients are those of the data, of clients."""
        return {str(s.fed.seed): s.data.counts.tolist() for s in self.simulations} | {
            "hash": {str(s.fed.seed): s.data.fingerprint for s in self.simulations},
            "dataset": self.simulations[0].data.dataset_hash,
            "classes": list(self.simulations[0].data.class_names),
            "clients": list(self.simulations[0].data.client_names),
        }

    def keep_models(self) -> None:
        """From now on clients' own models are kept, for `personal_models`."""
        for s in self.simulations:
            s.keeps_personal = s.method.has_personal_models(s.config)

    def may_end(self, after: Callable[[int], bool]) -> None:
        """From now on rounds after which the trial may end early are measured as a last round is."""
        for s in self.simulations:
            s.may_end = after

    def planned(self, rows: Sequence[Row]) -> list[Row]:
        """Rows of earlier sessions as they are where so many rounds are planned as now (`Simulation.planned`)."""
        by_seed = {s.fed.seed: s for s in self.simulations}
        return [by_seed[row["seed"]].planned(row) for row in rows]

    def keep_images(self) -> dict[int, Arrays]:
        """From now on `images` has those of every evaluated round. Returns what is kept of the data, by seed."""
        for simulation in self.simulations:
            simulation.keeps_images = True
        return {s.fed.seed: s.images_of_data() for s in self.simulations}

    def images(self) -> dict[int, Arrays]:
        """By seed: what is kept of the round that has just ended (see `search_spaces.kept_images`). Empty where it was
        not evaluated, or there is nothing to keep of it."""
        return {s.fed.seed: s.kept_images for s in self.simulations if s.kept_images}

    def models(self) -> dict[int, tuple[Params, Card]]:
        """By seed: the global model's weights and its card. Empty where the method has no global model."""
        found: dict[int, tuple[Params, Card]] = {}
        for s in self.simulations:
            params = s.global_model()
            if params is not None:
                network = s.method.global_network(s.config, s.fed)
                card = Card(
                    network.name if isinstance(network, Model) else s.fed.model,
                    s.fed.shape,
                    s.fed.classes,
                    s.fed.mean,
                    s.fed.std,
                    {"method": s.method.name, **_about(s), "round": s.progress.round},
                    s.fed.batch_norm,
                    s.fed.kind,
                    s.fed.offset,
                    s.fed.scale,
                    s.fed.vocabulary,
                )
                found[s.fed.seed] = {k: v.contiguous().cpu() for k, v in params.items()}, card
        return found

    def confusion(self) -> dict[int, dict[str, Any]]:
        """By seed: the round that has ended last, and what its global model takes the samples of each class for
        (`evaluation.confusion`). Empty where the method has no global model."""
        found: dict[int, dict[str, Any]] = {}
        for s in self.simulations:
            if (counts := s.confusion()) is not None:
                found[s.fed.seed] = {"round": s.progress.round} | {name: c.tolist() for name, c in counts.items()}
        return found

    def personal_models(self) -> dict[int, dict[int, tuple[Params, Card]]]:
        """By seed and client: the client's own model as it was measured last, and its card. Empty where clients have no
        models of their own, and before `keep_models`."""
        found: dict[int, dict[int, tuple[Params, Card]]] = {}
        for s in self.simulations:
            for client, params in s.progress.personal.items():
                network = s.method.client_network(s.config, s.fed, client)
                details = {**_about(s), "client": client, "round": s.progress.measured_in[client]}
                card = card_of_client(s.method, s.fed, network, details)
                found.setdefault(s.fed.seed, {})[client] = params, card
        return found


def step_together(trials: Sequence[Replicates]) -> list[list[Row] | BaseException]:
    """One round of every trial: its rows as from `Replicates.step`, or what that raises, which stops no other trial.

    Trials may have any configurations. Clients that are stacked (executor `vmap`) and of equal shape are trained as one
    program across trials and seeds; what a trial gets is to rounding what it gets by itself."""
    trained = trained_together([s for trial in trials for s in trial.simulations])
    found: list[list[Row] | BaseException] = []
    for trial in trials:
        try:
            found.append([s.run_round(trained.pop(s, None)) for s in trial.simulations])
        except own_files.RAISED as error:
            found.append(error)
    return found


def _about(s: Simulation) -> dict[str, Any]:
    """What every card of a simulation's models says."""
    return {"dataset": s.settings.dataset, "class_names": s.data.class_names, "seed": s.fed.seed}
