"""What an option is: the description that stands beside a field of a request, and what follows from it.

A request is a frozen dataclass. A field that a user can set is declared `name: Annotated[type, Option(help, group)] =
default`; `fedtune.options` declares all of them. From these lines follow:

    the command line     `parameter`, which `fedtune.cli` hands to typer
    the Python function  `fields_of`: its signature, which an editor completes and mypy checks, and its docstring
    the checks           `problems`: a sentence for each field that is out of its bounds or none of its choices
    the documentation    its page of commands is made from what typer was given
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Number, Real
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from search_spaces.errors import UserError, sentence, unknown
from search_spaces.parameter import SWITCH, canonical

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: The groups of options, in the order in which `--help` shows them, with their headings there.
GROUPS = {
    "what": "What is trained, and what counts",
    "how long": "How long",
    "how": "How",
    "where": "Where, and what is shown",
}


@dataclass(frozen=True, kw_only=True)
class Option:
    """What is said of a field, whose name, type and default are the option's own."""

    help: str
    group: Literal["what", "how long", "how", "where"]
    #: What is taken where the option is left out, in words; for a default that depends on something else.
    default: str = ""
    #: Bounds of a number; both ends are allowed.
    low: float | None = None
    high: float | None = None
    #: What an unknown choice is called; the field's name where it is left out.
    kind: str = ""
    #: As the command line writes it, if not `--field-name`; `--race/--no-race` switches on and off.
    flags: tuple[str, ...] = ()
    #: What stands for its value in the help.
    value: str | None = None
    #: The function of `fedtune.commands._complete` that knows the words that a shell offers.
    complete: str = ""
    #: What its value gives numbers to: a mapping from some of these words, or its text `cpus=2,gpus=0.25`.
    amounts: tuple[str, ...] = ()
    #: The command line takes it as `--set NAME=VALUE`, and `set` of Python too. Of a switch that is made the field's
    #: value; of a text, whoever reads `set` decides whether it is a parameter's.
    by_set: bool = False
    #: With `by_set`, of a text: it is the field's value, whatever parameters there are.
    taken: bool = False
    #: Further texts that it may be, beside those of its type.
    more: Callable[[], Iterable[str]] | None = None


@dataclass(frozen=True, kw_only=True)
class Argument(Option):
    """A field that the command line takes without a name."""

    group: Literal["what", "how long", "how", "where"] = "what"
    #: Whether the command does something else where it is left out; it then gets no request.
    optional: bool = False


@dataclass(frozen=True)
class Declared:
    """A field of a request with what is said of it."""

    name: str
    type: Any
    #: `inspect.Parameter.empty` where a value must be given.
    default: Any
    option: Option

    @property
    def flag(self) -> str:
        """`--warm-start`, as problems name it."""
        return next((flag for flag in self.option.flags if flag.startswith("--")), f"--{self.words}").partition("/")[0]

    @property
    def words(self) -> str:
        """`warm-start`, as problems call it."""
        return self.name.replace("_", "-")

    @property
    def types(self) -> tuple[Any, ...]:
        """The types of which its value may be one."""
        return get_args(self.type) if get_origin(self.type) in (Union, types.UnionType) else (self.type,)

    def takes(self, value: object) -> bool:
        """Whether the value is of one of its types. What else it must be, others say."""
        if value is None:
            return types.NoneType in self.types or self.several and self.default is not inspect.Parameter.empty
        if Any in self.types or self.choices or self.option.amounts or self.option.by_set:
            return True
        if self.several:
            return isinstance(value, (Path, Iterable)) or callable(value)
        kinds = {int: Integral, float: Real}
        is_one = isinstance(value, tuple(kinds.get(kind, kind) for kind in self.types))
        return is_one and (bool in self.types or not isinstance(value, bool))

    @property
    def must(self) -> str:
        """What it must be, by its types."""
        option, words = self.option, {int: "a whole number", float: "a number", bool: "true or false"}
        if self.several:
            return "a list of texts"
        said = next((word for kind, word in words.items() if kind in self.types), "a text")
        return said if option.low is None or option.high is None else f"{said} in [{option.low:.0f}, {option.high:.0f}]"

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that it may be, where only these are allowed."""
        words = tuple(word for kind in self.types if get_origin(kind) is Literal for word in get_args(kind))
        return words + (() if self.option.more is None else tuple(self.option.more()))

    @property
    def help(self) -> str:
        """What it is for, with its choices where the sentence does not name them."""
        said, words = self.option.help, self.choices
        if not words or all(word in said for word in words):
            return said
        return f"{said.removesuffix('.')}: {', '.join(words[:-1])} or {words[-1]}."

    @property
    def several(self) -> bool:
        """Whether it may be given more than once."""
        return any(get_origin(kind) is Sequence for kind in self.types)


def declared(function: Callable[..., Any]) -> dict[str, Declared]:
    """The options of a request, or of a function, by the names of their fields; other fields are left out."""
    hints = get_type_hints(function, include_extras=True)
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind, *said = get_args(hints[name]) if get_origin(hints.get(name)) is Annotated else (None,)
        if option := next((one for one in said if isinstance(one, Option)), None):
            found[name] = Declared(name, kind, parameter.default, option)
    return found


_declared = functools.cache(declared)


@dataclass(frozen=True)
class Asked:
    """The base of all requests: how a value is written does not matter, whether one text or a list with one, a path or
    its text, none or an empty list."""

    #: Whether trials run for it.
    runs_trials: ClassVar[bool] = False

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, one in _declared(kind).items():
            if one.option.by_set and (one.option.taken or bool in one.types):
                self._take_from_set(name, bool in one.types)
        given = {name: (one, getattr(self, name)) for name, one in _declared(kind).items()}
        if wrong := [(one, value) for one, value in given.values() if not one.takes(value)]:
            raise UserError(*(sentence(one.words, one.must, value, one.flag) for one, value in wrong))
        for name, (one, value) in given.items():
            if isinstance(value, Path) and not one.several:
                value = str(value)
            elif isinstance(value, Number) and hasattr(value, "item"):  # NumPy's
                value = value.item()
            elif one.several and not isinstance(value, Mapping):
                value = several(value)
            elif one.option.amounts and isinstance(value, str):
                value = _amounts(value, one.option.amounts) or value
            object.__setattr__(self, name, value)

    def _take_from_set(self, name: str, switch: bool) -> None:
        """Makes what `set` says of a switch, or of a text that is taken from there, its value; the last one counts."""
        given: Any = self.set  # type: ignore[attr-defined]
        pairs = given.items() if isinstance(given, Mapping) else [text.partition("=")[::2] for text in several(given)]
        found = [value for key, value in pairs if canonical(str(key)) == name]
        if not found:
            return
        rest = {key: value for key, value in pairs if canonical(str(key)) != name}
        texts = tuple(text for text in several(given) if canonical(text.partition("=")[0]) != name)
        object.__setattr__(self, "set", rest if isinstance(given, Mapping) else texts)
        said = SWITCH.get(str(found[-1]).strip().lower(), found[-1]) if switch else found[-1]
        object.__setattr__(self, name, said)


def several(value: Any) -> tuple[Any, ...]:
    """All of them as texts, where a single one may stand without a list; functions are left as they are."""
    if value is None:
        return ()
    listed = (value,) if isinstance(value, (str, Path)) or callable(value) else tuple(value)
    return tuple(one if callable(one) else str(one) for one in listed)


def _amounts(text: str, words: Sequence[str]) -> dict[str, float] | None:
    """What `cpus=2,gpus=0.25` says; None where it is not written so, or says something else or twice."""
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        found = {name.strip(): float(number) for name, _, number in pairs}
    except ValueError:
        return None
    return found if len(found) == len(pairs) and found.keys() <= {*words} else None


def problems(request: Asked) -> Iterator[str]:
    """A sentence for each option of which the value cannot be used, whatever the others are."""
    kind: Any = type(request)
    for name, one in _declared(kind).items():
        value, option = getattr(request, name), one.option
        if value is None:
            continue
        if option.by_set and bool in one.types:
            if not isinstance(value, bool):
                yield sentence(name, "true or false", value, "--set")
        elif words := option.amounts:
            if not (isinstance(value, Mapping) and value.keys() <= {*words} and all(map(_is_number, value.values()))):
                must = f"{','.join(f'{word}=NUMBER' for word in words)} or a part of it"
                yield sentence(one.words, must, value, one.flag)
        elif one.choices and int in one.types:
            if value not in one.choices and (isinstance(value, bool) or not isinstance(value, int)):
                yield sentence(one.words, f"{' or '.join(one.choices)} or a whole number", value, one.flag)
        elif one.choices and value not in one.choices:
            where = one.flag if option.kind and one.flag not in option.kind else ""
            yield unknown(option.kind or name, str(value), one.choices, where)
        elif option.low is not None and option.high is not None and not option.low <= value <= option.high:
            yield sentence(one.words, one.must, value, one.flag)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fields_of(
    request: Callable[P, R], beside: Callable[[str | None], contextlib.AbstractContextManager[None]] | None = None
) -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Makes a function of a request one that takes the request's fields: `search("fedavg", trials=12)`. beside: what
    is at work meanwhile, of the `address` of a cluster or None.

    Raises `TypeError` where it is called with other names."""

    def with_fields(function: Callable[[R], T]) -> Callable[P, T]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            strangers = sorted(kwargs.keys() - inspect.signature(request).parameters.keys())
            if strangers:
                raise TypeError(f"{function.__name__}() got unknown options: {', '.join(strangers)}")
            asked = request(*args, **kwargs)
            with contextlib.nullcontext() if beside is None else beside(getattr(asked, "address", None)):
                return function(asked)

        called.__signature__ = _signature(request, function)  # type: ignore[attr-defined]
        called.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{_listing(request)}"
        return called

    return with_fields


def call(function: Callable[..., T], request: Asked) -> T:
    """The value of a function of `fields_of` for a request that is made already."""
    called: Callable[[Asked], T] = inspect.unwrap(function)
    return called(request)


def _signature(request: Callable[..., Any], function: Callable[..., Any]) -> inspect.Signature:
    """That of the request, with plain types and with what the function returns."""
    hints, known = get_type_hints(request), declared(request)
    groups = {name: list(GROUPS).index(one.option.group) for name, one in known.items()}
    fields = sorted(
        inspect.signature(request).parameters.values(),
        key=lambda field: (field.kind, groups.get(field.name, len(GROUPS))),
    )
    plain = [field.replace(annotation=hints[field.name]) for field in fields]
    return inspect.Signature(plain, return_annotation=inspect.signature(function).return_annotation)


def in_python(text: str) -> str:
    """What is said of an option, where it is an argument: `--no-race` is race=False, `--warm-start` warm_start."""
    text = re.sub(r"--no-([a-z]+)", r"\1=False", text)
    return re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), text)


def _listing(request: Callable[..., Any]) -> str:
    """A paragraph for each option, in the groups of the command line."""
    lines = []
    for group, heading in GROUPS.items():
        found = [one for one in declared(request).values() if one.option.group == group]
        if found:
            lines += ["", f"{heading}:"]
        for one in found:
            said = f"{one.name}: {one.help}" + (f" Default: {one.option.default}." if one.option.default else "")
            lines.append(textwrap.fill(in_python(said), 110, initial_indent="    ", subsequent_indent="        "))
    return "\n".join(lines).strip()
