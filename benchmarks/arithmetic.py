"""Whether a faster arithmetic loses accuracy: the same configurations over the same seeds, compared in pairs.

A precision has passed where for every configuration the 95 % interval of the paired difference to fp32 lies above
-1 point (a test of non-inferiority). What has passed on a GPU may be entered in `trainables.models.precision.JUDGED`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.stats import Paired, paired
from benchmarks.measure import Arm, Processes
from benchmarks.results import Case

#: How much worse an accuracy may be, as a share: one point.
MARGIN = 0.01
#: Fewest seeds that are compared, and most.
FEWEST, MOST = 3, 10


def judge(
    case: Case,
    configurations: Sequence[tuple[str, dict[str, Any]]],
    precisions: Sequence[str],
    device: str,
    *,
    seconds: float = math.inf,
    fewest: int = FEWEST,
    most: int = MOST,
) -> set[str]:
    """Adds the table of the paired differences of `precisions` to fp32, and returns those that have passed.

    `configurations` are methods with values, their rounds among them. `most` seeds, or fewer that take about so many
    `seconds`, `fewest` at least."""
    rows: list[list[Any]] = []
    passed = set(precisions)
    ends = time.monotonic() + seconds
    for place, (method, values) in enumerate(configurations):
        number = most
        if seconds < math.inf:
            left = (ends - time.monotonic()) / (len(configurations) - place)
            started = time.monotonic()
            accuracies(method, values, device, range(fewest))  # a rehearsal, which also brings the data
            each = (time.monotonic() - started) / fewest
            number = int(max(fewest, min(most, (left - each * fewest) / (each * (1 + len(precisions))))))
        plain = accuracies(method, values, device, range(number))
        for precision in precisions:
            other = accuracies(method, values | {"precision": precision}, device, range(number))
            found = paired(plain, other)
            if not not_worse(found):
                passed.discard(precision)
            rows.append(
                [
                    f"{method}, {values.get('model', 'auto')}, {Path(values.get('dataset', 'digits')).stem}, "
                    f"{values['rounds']} rounds",
                    precision,
                    found.n,
                    100 * statistics.mean(plain.values()),
                    100 * found.difference,
                    f"{100 * found.low:.2f} to {100 * found.high:.2f}",
                    "yes" if not_worse(found) else "no",
                ]
            )
    case.table(
        f"Accuracy on the test set against fp32 on {device}, seed by seed",
        ("method", "precision", "seeds", "fp32, %", "difference, points", "95 % interval", "above -1 point"),
        rows,
    )
    case.notes.append(
        f"The paired test over seeds was passed by {', '.join(sorted(passed)) or 'no precision'} on {device}. (Passed "
        f"means that of every configuration the interval of the difference to fp32 lies above {-100 * MARGIN:g} point.)"
    )
    return passed


def not_worse(found: Paired) -> bool:
    """Whether the interval of the differences lies above the margin. One pair, or none, says nothing."""
    return found.n >= 2 and found.low > -MARGIN


def accuracies(method: str, values: dict[str, Any], device: str, seeds: Sequence[int]) -> dict[int, float]:
    """By seed the accuracy of the global model on the test set after the last round."""
    precision = values.get("precision", "fp32")
    with Processes(f"accuracy, {method}, {precision}") as processes:
        options = {"method": method, "values": values, "rounds": values["rounds"], "seeds": list(seeds)}
        processes.start(method, Arm("Rounds" if device == "cpu" else "GpuRounds", options | {"device": device}))
        processes.run([method])
        found = processes.describe(method)["accuracies"]
    return dict(zip(seeds, found, strict=True))
