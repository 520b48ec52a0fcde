"""A parameter is declared once, as a dataclass field.

    @dataclass(frozen=True)
    class Config:
        alpha: float = real(0.5, low=0.0, high=2.0, symbol="α", doc="Weight of …", source="Eq. 7")
        lambda_: float = real(0.5, low=0.0, high=0.99, symbol="λ", doc="Momentum of …", source="Eq. 6")

From that line come validation and its sentence, `--set lambda=0.7`, the listing of `fedtune methods`, the default
search space, the Optuna distribution, axis titles and scales, and the generated negative tests.

`low` and `high` are the bounds of what is *valid*, both included. `tune` says what a default search does with it:
`False` leaves it alone, `True` searches all of `[low, high]` (or all options), `(a, b)` searches that part.
`condition` says that it belongs to the experiment and not to the method: a space lists it under `vary`.

A Python keyword takes a trailing underscore (`lambda_`); users read and type it without (`lambda`), which is its `key`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from search_spaces.errors import UserError, closest, sentence, unknown

#: What a switch may be written as, on a command line or in a file.
SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

Kind = Literal["real", "integer", "choice", "flag", "text"]
Work = Literal["", "alternations", "steps", "samples"]
Value = float | int | str | bool

_METADATA = "fedtune.parameter"
#: A Python file, and what in it is meant.
_FILE = re.compile(r"[^\x00-\x1f]+\.py(:[A-Za-z_]\w*)?")


@dataclass(frozen=True)
class Parameter:
    """One declared hyper-parameter or setting; the text at the top of this file says what the fields mean."""

    name: str
    kind: Kind
    default: Value
    doc: str
    symbol: str = ""
    source: str = ""
    unit: str = ""
    low: float | int | None = None
    high: float | int | None = None
    log: bool = False
    step: float | int | None = None
    options: tuple[str, ...] = ()
    #: For a choice: whether it may be `FILE.py:NAME` as well, something of a user's own.
    files: bool = False
    #: For a choice: what readers of figures call an option whose own name does not tell, beside that name.
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: For a choice: the parameters that exist only while that option is chosen.
    children: Mapping[str, tuple[Parameter, ...]] = dataclasses.field(default_factory=dict)
    tune: bool | tuple[float, float] | tuple[str, ...] = False
    #: Whether it is a condition of the experiment (data, clients, their number), under which methods are compared, and
    #: nothing that a method could be tuned by.
    condition: bool = False
    #: Of a server's work: how many `steps` of a kind it takes, how many `samples` each of these has, or how many
    #: `alternations` there are of all kinds of steps. What a round costs is concluded from a server's work with fewer
    #: of each (`fedtune.planning.short_round`).
    work: Work = ""

    @property
    def key(self) -> str:
        """The name users read and type: `lambda` for the field `lambda_`."""
        return self.name.rstrip("_")

    @property
    def label(self) -> str:
        """For axes and tables: `λ (lambda)`, or just the key where there is no symbol."""
        return f"{self.symbol} ({self.key})" if self.symbol and self.symbol != self.key else self.key

    def must(self) -> str:
        """The middle of the standard sentence: `a number in [0, 2]`."""
        if self.kind == "flag":
            return "true or false"
        if self.kind == "choice":
            return "one of " + ", ".join((*self.options, *(["FILE.py:NAME"] if self.files else [])))
        if self.kind == "text":
            return "a name or a path"
        noun = "a number" if self.kind == "real" else "a whole number"
        if self.low is None and self.high is None:
            return noun
        if self.high is None:
            return f"{noun} of at least {self.low:g}"
        if self.low is None:
            return f"{noun} of at most {self.high:g}"
        return f"{noun} in [{self.low:g}, {self.high:g}]"

    def convert(self, raw: object, where: str = "") -> Value:
        """`raw` (from YAML, a command line or Python) as a valid value of this parameter.

        Raises `UserError` with the standard sentence."""
        if self.kind == "flag":
            value: Value = raw if isinstance(raw, bool) else SWITCH.get(str(raw).lower(), "")
            valid = isinstance(value, bool)
        elif self.kind == "choice":
            # YAML reads a bare `none` as a string but `null` as None; both name the option `none`.
            value = "none" if raw is None else str(raw)
            valid = value in self.options or (self.files and _FILE.fullmatch(value) is not None)
        elif self.kind == "text":
            value = str(raw)
            valid = isinstance(raw, (str, Path)) and bool(value.strip())
        else:
            number = math.nan
            if not isinstance(raw, bool):
                with contextlib.suppress(TypeError, ValueError, OverflowError):
                    number = float(raw)  # type: ignore[arg-type]
            valid = math.isfinite(number) and (self.kind == "real" or number.is_integer())
            value = int(number) if valid and self.kind == "integer" else number
            valid = valid and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        if not valid:
            hint = closest(str(raw), self.options) if self.kind == "choice" else ""
            raise UserError(sentence(self.key, self.must(), raw, where, hint))
        return value

    def contradictions(self, where: str = "") -> list[str]:
        """A sentence for each part of the declaration that no other part allows. A default that is no finite number,
        such as None or infinity, is a word for something."""
        found = [text for children in self.children.values() for one in children for text in one.contradictions(where)]
        if self.kind in ("flag", "text"):
            return found
        if self.low is not None and self.high is not None and self.low > self.high:
            return [sentence(f"low of {self.key}", f"at most its high, {self.high:g}", self.low, where)]
        named = [("tune", value) for value in self.tune] if isinstance(self.tune, tuple) else []
        if self.kind == "choice" or isinstance(self.default, (int, float)) and math.isfinite(self.default):
            named = [("default", self.default), *named]
        for what, value in named:
            try:
                self.convert(value)
            except UserError:
                found.append(sentence(f"{what} of {self.key}", self.must(), value, where))
        if self.kind == "choice" or self.tune is False or found:
            return found
        bounds = (self.low, self.high) if self.tune is True else self.tune
        if not isinstance(bounds, tuple) or len(bounds) != 2 or None in bounds or bounds[0] > bounds[1]:  # type: ignore[operator]
            must = "a pair (low, high), or False, or True where it has a low and a high"
            found.append(sentence(f"tune of {self.key}", must, self.tune, where))
        return found


def _declare(kind: Kind, default: Value, doc: str, **details: Any) -> Any:
    return dataclasses.field(default=default, metadata={_METADATA: Parameter("", kind, default, doc, **details)})


def real(
    default: float,
    *,
    low: float | None = None,
    high: float | None = None,
    log: bool = False,
    step: float | None = None,
    symbol: str = "",
    doc: str,
    source: str = "",
    unit: str = "",
    tune: bool | tuple[float, float] = False,
    condition: bool = False,
) -> Any:
    """A real-valued parameter."""
    return _declare(
        "real",
        default,
        doc,
        low=low,
        high=high,
        log=log,
        step=step,
        symbol=symbol,
        source=source,
        unit=unit,
        tune=tune,
        condition=condition,
    )


def integer(
    default: int,
    *,
    low: int | None = None,
    high: int | None = None,
    log: bool = False,
    step: int | None = None,
    symbol: str = "",
    doc: str,
    source: str = "",
    unit: str = "",
    tune: bool | tuple[int, int] = False,
    condition: bool = False,
    work: Work = "",
) -> Any:
    """A whole-numbered parameter."""
    return _declare(
        "integer",
        default,
        doc,
        low=low,
        high=high,
        log=log,
        step=step,
        symbol=symbol,
        source=source,
        unit=unit,
        tune=tune,
        condition=condition,
        work=work,
    )


def choice(
    default: str,
    options: Iterable[str] | Mapping[str, type | None],
    *,
    names: Mapping[str, str] | None = None,
    symbol: str = "",
    doc: str,
    source: str = "",
    tune: bool | tuple[str, ...] = False,
    condition: bool = False,
    files: bool = False,
) -> Any:
    """One of several named options. Given as a mapping, an option may own a dataclass of sub-parameters. `names`: what
    figures call an option, beside its own name."""
    owned = {k: v for k, v in options.items() if v is not None} if isinstance(options, Mapping) else {}
    children = {option: tuple(parameters(cls).values()) for option, cls in owned.items()}
    return _declare(
        "choice",
        default,
        doc,
        options=tuple(options),
        names=dict(names or {}),
        children=children,
        symbol=symbol,
        source=source,
        tune=tune,
        condition=condition,
        files=files,
    )


def flag(default: bool, *, symbol: str = "", doc: str, source: str = "", tune: bool = False) -> Any:
    """A yes-or-no parameter."""
    return _declare("flag", default, doc, symbol=symbol, source=source, tune=tune)


def text(default: str, *, symbol: str = "", doc: str, source: str = "", condition: bool = False) -> Any:
    """A name or a path, checked by whoever uses it; never searched."""
    return _declare("text", default, doc, symbol=symbol, source=source, condition=condition)


def other_default(declaring: type, name: str, default: Value, **changes: Any) -> Any:
    """The parameter that `declaring` has under this name, with another default; `changes`: what else is otherwise."""
    declared: Parameter = next(item for item in dataclasses.fields(declaring) if item.name == name).metadata[_METADATA]
    changed = dataclasses.replace(declared, default=default, **changes)
    return dataclasses.field(default=default, metadata={_METADATA: changed})


def pairs(
    given: Mapping[str, Any] | Iterable[str], option: str, problems: list[str], must: str = "name=value"
) -> list[tuple[str, Any]]:
    """The names and values, in order, of texts or of a mapping in their place. A text that is no pair is added to
    `problems`, as what `option` must be."""
    if isinstance(given, Mapping):
        return list(given.items())
    found = []
    for text in given:
        name, equals, value = text.partition("=")
        if equals and name.strip():
            found.append((name.strip(), value.strip()))
        else:
            problems.append(sentence(option, must, text))
    return found


def canonical(key: str) -> str:
    """What a user typed, as the key: `lambda_` and `lambda` are both `lambda`; dashes are underscores."""
    return key.strip().replace("-", "_").rstrip("_")


def parameters(*classes: type) -> dict[str, Parameter]:
    """The declared parameters of one or more dataclasses by key, in order of declaration.

    A name that two classes declare belongs to the last one (a method may give local training its own defaults). What is
    a condition for one of them is one."""
    found: dict[str, Parameter] = {}
    for cls in classes:
        for parameter in _of_class(cls):
            before = found.get(parameter.key)
            condition = parameter.condition or (before is not None and before.condition)
            same = condition == parameter.condition
            found[parameter.key] = parameter if same else dataclasses.replace(parameter, condition=condition)
    return found


@functools.lru_cache(maxsize=128)  # as each trial asks for all of them many times
def _of_class(cls: type) -> tuple[Parameter, ...]:
    """The declared parameters of one dataclass, with their names."""
    return tuple(
        dataclasses.replace(item.metadata[_METADATA], name=item.name)
        for item in dataclasses.fields(cls)
        if item.metadata.get(_METADATA) is not None
    )


def convert_all(declared: Mapping[str, Parameter], values: Mapping[str, object], where: str = "") -> dict[str, Value]:
    """`values` by canonical key, each valid. Raises one `UserError` that lists every problem."""
    problems: list[str] = []
    converted: dict[str, Value] = {}
    for raw_key, raw in values.items():
        key = canonical(raw_key)
        if key not in declared:
            problems.append(unknown("parameter", raw_key, declared, where))
            continue
        try:
            converted[key] = declared[key].convert(raw, where)
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(*problems)
    return converted


def defaults(*classes: type) -> dict[str, Value]:
    """Every declared default by key."""
    return {key: parameter.default for key, parameter in parameters(*classes).items()}
