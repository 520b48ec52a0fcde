"""What a search selects by, and what a configuration must keep to be selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedtune.options import SearchRequest
from fedtune.planning.settings import Settings
from search_spaces.metrics import METRICS
from search_spaces.parameter import canonical
from search_spaces.requirements import Requirement, asked


@dataclass(frozen=True)
class Selection:
    """The metrics that the search selects by, and on which data."""

    select_on: Literal["validation", "test"]
    metric: tuple[str, ...]
    require: tuple[Requirement, ...]


def selected_by(request: SearchRequest, settings: Settings, problems: list[str]) -> Selection:
    """The metrics to select by, under their recorded names. Adds a problem where these values do not measure one."""
    space = settings.space
    select_on: Any = request.select_on or ("test" if request.paper and space.select_on_test else "validation")
    metric = recorded(request.metric or space.metric, select_on)
    if (
        select_on == "validation"
        and not settings.value("validation_fraction")
        and any(name.startswith("val_") for name in metric)
    ):
        problems.append(
            "validation_fraction is 0, so there are no validation data to select on. Raise it with --set "
            "validation_fraction=0.1, or give --select-on test."
        )
    for name in metric:
        needed = METRICS[name].needs if name in METRICS else ""
        if needed and not settings.value(needed) and needed not in (*space.search, *space.vary):
            problems.append(
                f"{name} is measured only where {needed} is above 0, and it is 0. Raise it with --set {needed}=VALUE."
            )
    require = asked(request.require, select_on, problems)
    for needing in require:
        needed = METRICS[needing.metric].needs
        if needed and not settings.value(needed) and needed not in space.search:
            problems.append(
                f"{needing} needs {needing.metric}, which is measured only where {needed} is above 0. Raise it with "
                f"--set {needed}=VALUE."
            )
    return Selection(select_on, metric, require)


def recorded(names: Sequence[str], select_on: str) -> tuple[str, ...]:
    """The names under which metrics are recorded: on validation data (`val_…`) where such exist, or on test data."""
    plain = [canonical(name).removeprefix("val_") for name in names]
    return tuple(
        dict.fromkeys(
            f"val_{name}" if select_on == "validation" and f"val_{name}" in METRICS else name for name in plain
        )
    )
