"""What a search selects by, and what a configuration must keep to be selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedtune.options import SearchRequest
from fedtune.planning.settings import Settings
from search_spaces.metrics import METRICS
from search_spaces.parameter import canonical
from search_spaces.requirements import Requirement, asked

Data = Literal["validation", "test"]

#: How a metric's name begins where it says on which data.
STARTS: dict[str, Data] = {"val_": "validation", "test_": "test"}


@dataclass(frozen=True)
class Selection:
    """The metrics that the search selects by, and on which data."""

    select_on: Data
    metric: tuple[str, ...]
    require: tuple[Requirement, ...]


def selected_by(request: SearchRequest, settings: Settings, problems: list[str]) -> Selection:
    """The metrics to select by, under their recorded names. Adds a problem where these values do not measure one."""
    space = settings.space
    usual: Data = "test" if request.paper and space.select_on_test else "validation"
    metric = recorded(request.metric or [name.removeprefix("val_") for name in space.metric], usual)
    used = {data_of(name) for name in metric} - {None}
    if len(used) > 1:
        problems.append(
            f"A search selects on validation data or on test data, and --metric asks for both: {', '.join(metric)}. "
            f"Give all of them with val_, or all with test_."
        )
    select_on = used.pop() or usual if used else usual
    if (
        select_on == "validation"
        and not settings.value("validation_fraction")
        and any(name.startswith("val_") for name in metric)
    ):
        problems.append(
            "validation_fraction is 0, so there are no validation data to select on. Raise it with --set "
            f"validation_fraction=0.1, or select on test data with --metric test_{metric[0].removeprefix('val_')}."
        )
    tested = [name for name in metric if data_of(name) == "test"]
    if tested and settings.value("eval_test") == "end":
        problems.append(
            f"A search by {tested[0]} needs test data after every evaluated round, and eval_test is end. Leave "
            f"--set eval_test=end out, or select by --metric val_{tested[0]}."
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


#: Figures of curves on the test set, where a space names them for its report.
OF_CURVES = ("curves", "rounds", "traffic")


def is_measured_at_end(request: SearchRequest, settings: Settings, selection: Selection) -> bool:
    """Whether the test set is measured only where a trial may end (`eval_test` end): where nobody has set that, the
    profile is the small one, and nothing reads what every round would measure on the test set: no metric that is
    selected by, no target, no tracker and no figure of the space."""
    space = settings.space
    free = {**space.search, **space.vary}
    asked = request.paper or "eval_test" in {**space.fix, **free}
    by_test = any(data_of(name) == "test" for name in selection.metric)
    watched = settings.value("target") or "target" in free or request.log or set(space.figures) & set(OF_CURVES)
    # Without validation data every evaluation is one on the test set.
    lacking = not settings.value("validation_fraction") or "validation_fraction" in free
    return not (asked or by_test or watched or lacking)


def recorded(names: Sequence[str], usual: Data) -> tuple[str, ...]:
    """The names under which metrics are recorded. `val_wlp` is measured on validation data and `test_wlp` on test data,
    where it is recorded as `wlp`; that name by itself stands for the one on the `usual` data. Of metrics that are
    measured once, such as `bytes_up`, there is only one."""
    found = []
    for name in map(canonical, names):
        data, plain = usual, name
        for start, of in STARTS.items():
            if name.startswith(start):
                data, plain = of, name.removeprefix(start)
        found.append(f"val_{plain}" if data == "validation" and f"val_{plain}" in METRICS else plain)
    return tuple(dict.fromkeys(found))


def data_of(name: str) -> Data | None:
    """The data on which a metric with this recorded name is measured; None where it is not one of two."""
    if name.startswith("val_"):
        return "validation"
    return "test" if f"val_{name}" in METRICS else None


def selectable() -> list[str]:
    """The names that `--metric` of a search takes."""
    return [*METRICS, *(f"test_{name}" for name in METRICS if data_of(name) == "test")]
