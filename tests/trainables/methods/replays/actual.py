"""The method's own side of a replay: a tiny federation in double precision, its rounds, and the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables import registry
from trainables.federation import ClientData, Federation
from trainables.method import Method
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation
from trainables.wire import ClientResult, Upload

Params = dict[str, Tensor]

#: Largest difference allowed, as a share of the largest change that the replayed step makes to any entry. Rounding is
#: 1e-16 of what a gradient is summed from. A bias before normalisation has gradient 0, of which rounding leaves some
#: 1e-14; Adam divides that by its ε of 1e-8, so such a bias moves by up to 1e-6 of a full step. Wrong steps differ
#: by per cents.
TOLERANCE = 1e-5

#: Seed and concentration that give four clients 91, 60, 44 and 21 samples, no two of them of similar classes.
SEED = 4
QUICK: dict[str, Any] = {
    "clients": 4,
    "omega": 0.3,
    "min_samples": 12,
    "rounds": 4,
    "local_steps": 2,
    "batch_size": 10,
    "lr": 0.05,
    "momentum": 0.5,
    "weight_decay": 1e-3,
}
#: Who takes part: never all, and others in the second round than in the first, so that places and numbers differ.
COHORTS = ((0, 2, 3), (0, 1, 3))


@dataclass(frozen=True)
class DoubleData(ClientData):
    """A client's data whose batches are float64."""

    def batch(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """As in `ClientData`."""
        pixels = self.images[self.indices[chosen]].double() / 255
        mean, std = (values.double().view(1, -1, 1, 1) for values in (self.mean, self.std))
        return (pixels - mean) / std, self.y[chosen]


@dataclass(frozen=True)
class Round:
    """One round as the method ran it. `kept` is what clients had kept before it, `results` what they made of it."""

    number: int
    before: Any
    payloads: dict[int, dict[str, Tensor]]
    kept: dict[int, Any]
    results: dict[int, ClientResult]
    after: Any


@dataclass(frozen=True)
class World:
    """A method on a federation. `start` is the state before round 1."""

    method: Method
    config: Any
    fed: Federation
    clients: tuple[DoubleData, ...]
    start: Any

    def client_rng(self, number: int, client: int) -> Rng:
        """The stream handed to a client in round `number`."""
        return self.fed.rng.child("round", number, "client", client)

    def server_rng(self, number: int) -> Rng:
        """The stream handed to the server in round `number`."""
        return self.fed.rng.child("round", number, "server")

    def play(self, cohorts: Sequence[Sequence[int]] = COHORTS) -> list[Round]:
        """The method's rounds with these cohorts."""
        m, config, fed = self.method, self.config, self.fed
        state, kept, played = self.start, dict[int, Any](), list[Round]()
        for number, cohort in enumerate(cohorts, start=1):
            payloads = {i: m.download(config, fed, state, i) for i in cohort}
            results = {
                i: m.client(config, fed, payloads[i], kept.get(i), self.clients[i], self.client_rng(number, i))
                for i in cohort
            }
            after = m.server(
                config, fed, state, [Upload(i, results[i].upload) for i in cohort], self.server_rng(number)
            )
            played.append(Round(number, state, payloads, dict(kept), results, after))
            state, kept = after, kept | {i: client_state(r) for i, r in results.items() if client_state(r) is not None}
        return played


def client_state(result: ClientResult) -> Any:
    """What the client keeps until its next round."""
    return result.client_state


def world(name: str, data: Path, /, **values: Any) -> World:
    """The method `name` on the tiny federation, with these values beside `QUICK`."""
    known = registry.declared(name)
    chosen = {key: value for key, value in QUICK.items() if key in known} | values
    simulation = Simulation(name, chosen | {"dataset": str(data)}, SEED, torch.device("cpu"))
    clients = tuple(DoubleData(**{f.name: getattr(c, f.name) for f in fields(c)}) for c in simulation.data.clients)
    return World(simulation.method, simulation.config, simulation.fed, clients, simulation.progress.state)


def slowed(played: World, client: int, share: float) -> World:
    """The same, with one client that manages only a share of its steps."""
    clients = tuple(replace(c, step_share=share) if c.client == client else c for c in played.clients)
    return replace(played, clients=clients)


def unpacked(prefix: str, payload: Mapping[str, Tensor]) -> Params:
    """The entries `prefix/name` of a payload by name."""
    return {key[len(prefix) + 1 :]: tensor for key, tensor in payload.items() if key.startswith(prefix + "/")}


def assert_step(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], start: Mapping[str, Tensor], what: str
) -> None:
    """That `actual` is `expected`, up to `TOLERANCE` of the largest change from `start`, and that there is one."""
    reach = max(
        float((expected[name] - start[name]).abs().max()) for name in expected if expected[name].is_floating_point()
    )
    assert reach > 1e-5, f"{what}: the replay changes nothing, so it shows nothing"
    assert_equal(actual, expected, what, reach)


def assert_equal(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str, reach: float = 1.0) -> None:
    """That both hold the same names and values, up to `TOLERANCE · reach`; integers and truth values exactly."""
    assert actual.keys() == expected.keys(), f"{what}: {sorted(actual)} and not {sorted(expected)}"
    for name, value in expected.items():
        assert actual[name].shape == value.shape, f"{what}: {name}"
        if not value.is_floating_point():
            assert torch.equal(actual[name], value), f"{what}: {name}"
            continue
        apart = float((actual[name].double() - value.double()).abs().max()) if value.numel() else 0.0
        assert apart <= TOLERANCE * reach, f"{what}: {name} differs by {apart:.1e}, {apart / reach:.1e} of the step"


def assert_adam(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str) -> None:
    """That two states of Adam agree; each of its quantities is measured by its own largest entry."""
    for quantity in ("step", "exp_avg", "exp_avg_sq"):
        ours, theirs = (
            {name: value for name, value in state.items() if name.endswith(f"/{quantity}")}
            for state in (actual, expected)
        )
        assert_equal(
            ours,
            theirs,
            f"{what}, {quantity}",
            max((float(value.abs().max()) for value in theirs.values()), default=1.0),
        )
    assert actual.keys() == expected.keys(), what


def assert_close(actual: float, expected: float, what: str) -> None:
    """That two numbers agree to single precision, in which they are recorded."""
    assert abs(actual - expected) <= TOLERANCE * max(1.0, abs(expected)), f"{what}: {actual} and not {expected}"
