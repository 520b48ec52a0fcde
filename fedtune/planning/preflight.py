"""What only building a federation can tell of a request: whether it is possible, what its data is, which metrics it yields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.errors import UserError
from search_spaces.metrics import METRICS, READOUTS, TRAFFIC
from search_spaces.parameter import Value


def preflight(
    method: str, values: Mapping[str, Value], seeds: Sequence[int], data_dir: str | None, problems: list[str], metrics: Sequence[str] = (),
    device: str | None = "cpu",
) -> dict[str, Any]:
    """Builds the federation of `values` once, so that a data set that is missing, a federation that is impossible, or one of
    `metrics` that is not measured there is known before anything is created. It is built on the CPU wherever it is to run
    (`device`; None is a cluster's). Adds to `problems`; returns what is to be recorded about the data."""
    if problems:
        # Building needs values that are right; what can be checked without is checked.
        from trainables import registry

        try:
            registry.resolve(method, values)
        except UserError as error:
            problems.extend(error.problems)
        return {}
    import torch

    from trainables import data, registry
    from trainables.models import precision
    from trainables.simulation import executors
    from trainables.simulation.replicates import Replicates

    try:
        registry.resolve(method, values)
        if device is not None:
            precision.check(str(values.get("precision", "fp32")), torch.device(device))
            executors.check(str(values.get("executor", "auto")), torch.device(device))
        values = {**values, "precision": "fp32", "executor": "loop"}
        built = Replicates(method, values, seeds[:1], data_dir=data_dir)
        partition = built.partition()
        dataset = data.load(str(values.get("dataset", "digits")), data_dir)
    except UserError as error:
        problems.extend(error.problems)
        return {}
    problems.extend(_unmeasured(method, values, seeds, data_dir, metrics, bool(built.models())))
    return {"method_title": registry.method(method).title, "dataset": {"name": dataset.name, "hash": dataset.hash}, "partition": partition["hash"]}


def _unmeasured(
    method: str, values: Mapping[str, Value], seeds: Sequence[int], data_dir: str | None, metrics: Sequence[str], has_global: bool,
) -> list[str]:
    """A sentence for each of `metrics` that this method does not measure with these values."""
    from trainables import registry
    from trainables.simulation.replicates import Replicates

    declared = registry.method(method)
    found, doubtful = [], []
    for name in metrics:
        metric, plain = METRICS[name], name.removeprefix("val_")
        part = plain.rpartition("_")[2]
        if metric.of_global_model and not has_global:
            found.append(f"{name} is measured of a global model, and {method} has none here. Select by --metric local_accuracy"
                         + " or g_acc_virtual." * declared.virtual + "." * (not declared.virtual))
        elif part in TRAFFIC and part not in declared.traffic:
            whole = plain.removesuffix(f"_{part}")
            found.append(f"{name} counts the traffic for {TRAFFIC[part]}, which {method} does not count apart. Select by --metric {whole}.")
        elif plain == "g_acc_virtual" and not declared.virtual:
            found.append(f"{name} is not measured for {method}. Select by --metric local_accuracy or global_accuracy.")
        elif plain == "gd_loss" or plain.partition("_")[0] in READOUTS:
            doubtful.append(name)
    if doubtful:
        # Only what a round yields tells. One step per client is enough of one.
        short = {**values, "rounds": 1, "local_steps": 1, "local_epochs": 0}
        row = Replicates(method, short, seeds[:1], data_dir=data_dir).step()[0]
        found += [f"{name} is not measured for {method} with these values. Select by another --metric, or change what it depends on with --set."
                  for name in doubtful if row.get(name) is None]
    return found
