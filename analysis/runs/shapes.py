"""What the files of a run directory may hold, for every command that reads a run.

What `experiment.yaml` may hold is declared in `experiment.py`, field by field. Only the fields that are there are
checked; who needs more says so itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from search_spaces.errors import sentence
from search_spaces.metrics import METRICS
from search_spaces.run_folder import BEGAN, BESIDE, BESIDE_ROUNDS, CONFIRMS, ENDED, OF, PLACE, STOP_REASONS, WENT_ON

#: A field's name, what it must be, and whether a value is that.
Shape = Mapping[str, tuple[str, Callable[[Any], bool]]]
#: Trials that a search may have.
MOST_TRIALS = 1_000_000


def problems(data: Mapping[str, Any], shape: Shape, where: str) -> list[str]:
    """A sentence for every field of `data` that is not of its shape."""
    return [
        sentence(name, must, data[name], where, "Copy the run directory again or repair the file.")
        for name, (must, fits) in shape.items()
        if name in data and not fits(data[name])
    ]


def is_whole(low: int, high: int = 2**62) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(low: float = -math.inf, high: float = math.inf) -> Callable[[Any], bool]:
    """A finite number in [low, high]."""
    return lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300 and low <= value <= high
    )


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_plain(value: Any) -> bool:
    """Whether this can be a parameter's value."""
    return isinstance(value, (str, bool)) or is_number()(value)


def none_or(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def each(fits: Callable[[Any], bool], least: int = 0) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) >= least and all(map(fits, value))


def mapping(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(isinstance(k, str) and fits(v) for k, v in value.items())


def one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in words


def shaped(shape: Shape, *needed: str) -> Callable[[Any], bool]:
    """A mapping whose fields have their shapes and which has those `needed`."""
    return lambda value: (
        isinstance(value, dict) and all(name in value for name in needed) and not problems(value, shape, "")
    )


def _anything(value: Any) -> bool:
    return True


def is_metric(value: Any) -> bool:
    return isinstance(value, str) and value in METRICS


_VALUES = ("a mapping of names to values", mapping(is_plain))
_TEXT = ("text", is_text)
_TEXT_OR_NOTHING = ("text or null", none_or(is_text))

_NUMBER_OR_NOTHING = ("a number or null", none_or(is_number()))
_TEXTS = ("a list of texts", each(is_text))


def _dimension(value: Any) -> bool:
    return shaped(_DIMENSION, "key")(value)


_DIMENSION: Shape = {
    **dict.fromkeys(("key", "kind", "label", "symbol", "doc", "source", "unit"), _TEXT),
    **dict.fromkeys(("low", "high", "step"), _NUMBER_OR_NOTHING),
    "log": ("true or false", lambda value: isinstance(value, bool)),
    "options": _TEXTS,
    "grid": ("a list of numbers or null", none_or(each(is_number()))),
    "only": ("true or false", lambda value: isinstance(value, bool)),
    "cost": ("a number in [0, 1] or null", none_or(is_number(0, 1))),
    "children": ("a mapping of lists", mapping(each(_dimension))),
    "declared": ("a mapping", mapping(_anything)),
}
SPACE: Shape = {
    **dict.fromkeys(("name", "method", "title", "source"), _TEXT),
    **dict.fromkeys(("search", "vary"), ("a list of parameters", each(_dimension))),
    "fixed": _VALUES,
    "profiles": ("a mapping of mappings", mapping(mapping(is_plain))),
    "figures": _TEXTS,
    "metric": ("a list of metrics", lambda value: is_text(value) or each(is_metric)(value)),
    **dict.fromkeys(("select_on_test", "one_at_a_time"), ("true or false", lambda value: isinstance(value, bool))),
}

_COUNT = ("a whole number of at least 0", is_whole(0))
_MADE: Shape = {
    "created": _TEXT_OR_NOTHING,
    "versions": ("a mapping of names to versions", mapping(is_text)),
    "machine": ("a mapping", mapping(none_or(is_plain))),
    "git": _TEXT_OR_NOTHING,
    **{
        f"{kind}_file": (
            f"a mapping of {kind}, file and hash, or null",
            none_or(shaped(dict.fromkeys((kind, "file", "hash"), _TEXT), kind, "file", "hash")),
        )
        for kind in ("method", "model", "sampler", "metric")
    },
}
PROVENANCE: Shape = {
    **_MADE,
    "command": _TEXTS,
    "device": _TEXT,
    "method_title": _TEXT,
    "dataset": ("a mapping of names to texts", mapping(is_text)),
    "datasets": ("a mapping of names to hashes", mapping(is_text)),
    "partition": ("a mapping of seeds to hashes", mapping(is_text)),
    "continued": ("a list of mappings", each(shaped(_MADE))),
    "extended": ("a list of mappings", each(shaped({"created": _TEXT, "command": _TEXTS}))),
    "taken": (
        "a list of mappings",
        each(shaped({**_MADE, "run": _TEXT, "trials": ("a list of numbers", each(is_whole(0)))}, "run", "trials")),
    ),
    "packing": ("a mapping", mapping(_anything)),
    "slots": (
        "a list of machines",
        each(
            shaped(
                {
                    **dict.fromkeys(("host", "address", "gpu"), _TEXT),
                    **dict.fromkeys(("cores", "gpus", "slots"), _COUNT),
                }
            )
        ),
    ),
}


def _is_share(value: Any) -> bool:
    """Cores and GPUs, and the kind of these where they must be of one."""
    if not isinstance(value, list) or len(value) not in (2, 3):
        return False
    return each(is_number(0))(value[:2]) and each(is_text)(value[2:])


#: User attributes of a study's trial. (`curve` depends on the objectives: `analysis.runs.study_checks`.)
ATTRIBUTES: Shape = {
    **dict.fromkeys(("rounds", "seed", OF, PLACE, WENT_ON), _COUNT),
    **dict.fromkeys(("seconds", BEGAN, ENDED), ("a number of at least 0", is_number(0))),
    "stop_reason": (f"one of {', '.join(STOP_REASONS)}", one_of(*STOP_REASONS)),
    "share": ("cores and GPUs, two numbers of at least 0, and perhaps a kind of GPU", _is_share),
    **dict.fromkeys(("error", "from"), _TEXT),
    **dict.fromkeys((BESIDE, BESIDE_ROUNDS), ("a list of numbers", each(is_whole(0)))),
    CONFIRMS: ("true or false", lambda value: isinstance(value, bool)),
}
