"""The models that clients fine-tune for a measurement (`Method.personal`).

They are trained where the cohort's models are: one after the other, or with executor `vmap` as one program. A client's
batches come from a stream of its own that names the round, so they depend neither on the executor nor on what was
measured before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainables.federation import ClientData, Federation
from trainables.local import client_of
from trainables.method import Method
from trainables.simulation.executors import Task, train_stacked
from trainables.wire import Params


def measured(
    method: Method,
    config: Any,
    fed: Federation,
    round_: int,
    state: Any,
    client_states: Mapping[int, Any],
    clients: Sequence[ClientData],
    executor: str,
) -> dict[int, Params] | None:
    """By client the model of which local accuracy is measured after round `round_`; None where that is the model the
    client has trained.

    `state` and `client_states` are those after the round. Slow clients are not hurried here: they do all steps."""
    own = method.personal
    training = own.training(config) if own is not None else None
    if own is None or training is None:
        return None
    calls = [
        (
            training,
            fed,
            method.download(config, fed, state, data.client),
            client_states.get(data.client),
            data,
            fed.rng.child("round", round_, "personal", data.client),
        )
        for data in clients
    ]
    if executor == "vmap":
        jobs = [own.job(*call) for call in calls]
        tasks = [Task(job, job.data or call[4], call[5]) for job, call in zip(jobs, calls, strict=True)]
        results = train_stacked(training, tasks)
    else:
        train = client_of(own.job)
        results = [train(*call) for call in calls]
    return {
        data.client: result.model for data, result in zip(clients, results, strict=True) if result.model is not None
    }
