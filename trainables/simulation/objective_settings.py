"""The settings that an objective is bound to, so that federations which differ in them are one program.

A method binds its objective to weights of losses, temperatures and choices: `partial(loss, config)`, or
`partial(loss, 0.1)`. Of K objectives that are alike but for these, `united` makes one, in which every setting that
differs is a `Setting`: a vector of K numbers, of which a vectorised program (`torch.func.vmap`) sees one at a time.

An objective may ask a setting more than to be multiplied: `if config.lambda_ == 0`, `config.kind == "mse"`. Where the
K values give one answer, that is it. Where they do not, there is no one program, and `Differs` says which of the K
belong together. So a method's loss is written as for one trial, and what it never reads may differ freely.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from trainables.federation import Federation

#: What a setting may be.
_PLAIN = (bool, int, float, str, type(None))


class Differs(Exception):
    """Objectives that are not one program: the answers, by which they fall into such that are."""

    def __init__(self, answers: Sequence[Any]) -> None:
        super().__init__(f"settings of stacked objectives differ: {answers}")
        self.answers = tuple(answers)


class Setting:
    """A setting whose value is another one in each of K objectives.

    values: all K. vector: of numbers (float), these as a tensor, within a vectorised program one of them, `()`; of
    whole numbers, names and switches there is none, and whatever is asked of them has to have one answer."""

    def __init__(self, values: tuple[Any, ...], vector: Tensor | None = None) -> None:
        self.values, self._vector = values, vector

    @property
    def _operand(self) -> Any:
        return self._agreed(self.values) if self._vector is None else self._vector

    def _agreed(self, answers: Sequence[Any]) -> Any:
        if any(answer != answers[0] for answer in answers):
            raise Differs(answers)
        return answers[0]

    def _asked(self, question: Callable[..., Any], other: Any) -> Any:
        if isinstance(other, Tensor):
            return question(self._operand, other)
        others = other.values if isinstance(other, Setting) else (other,) * len(self.values)
        return self._agreed([question(own, its) for own, its in zip(self.values, others, strict=True)])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*map(_operand, args), **{name: _operand(value) for name, value in (kwargs or {}).items()})

    def __eq__(self, other: object) -> Any:
        return self._asked(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._asked(operator.ne, other)

    def __lt__(self, other: Any) -> Any:
        return self._asked(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._asked(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._asked(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._asked(operator.ge, other)

    def __hash__(self) -> int:
        return hash(self._agreed(self.values))

    def __bool__(self) -> bool:
        return bool(self._agreed([bool(value) for value in self.values]))

    def __float__(self) -> float:
        return float(self._agreed(self.values))

    def __int__(self) -> int:
        return int(self._agreed(self.values))

    def __index__(self) -> int:
        return operator.index(self._agreed(self.values))

    def __str__(self) -> str:
        return str(self._agreed(self.values))

    def __neg__(self) -> Any:
        return -self._operand

    def __add__(self, other: Any) -> Any:
        return self._operand + _operand(other)

    def __radd__(self, other: Any) -> Any:
        return other + self._operand

    def __sub__(self, other: Any) -> Any:
        return self._operand - _operand(other)

    def __rsub__(self, other: Any) -> Any:
        return other - self._operand

    def __mul__(self, other: Any) -> Any:
        return self._operand * _operand(other)

    def __rmul__(self, other: Any) -> Any:
        return other * self._operand

    def __truediv__(self, other: Any) -> Any:
        return self._operand / _operand(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._operand

    def __pow__(self, other: Any) -> Any:
        return self._operand ** _operand(other)

    def __rpow__(self, other: Any) -> Any:
        return other**self._operand


def likeness(objective: Callable[..., Any], config: Any) -> object:
    """Equal for objectives that are alike but for settings, of clients with the configuration `config`.

    A function that keeps values of its own, instead of being bound to them, may keep anything: it is like those of an
    equal configuration alone."""
    if isinstance(objective, partial):
        bound = [*objective.args, *(value for _, value in sorted(objective.keywords.items()))]
        names = tuple(sorted(objective.keywords))
        return (likeness(objective.func, config), names, tuple(_likeness(value, config) for value in bound))
    if isinstance(objective, FunctionType) and not (
        objective.__closure__ or objective.__defaults__ or objective.__kwdefaults__
    ):
        return objective.__code__
    return getattr(objective, "__qualname__", type(objective)), config


def _likeness(value: Any, config: Any) -> object:
    if isinstance(value, _PLAIN):
        return "setting"
    if isinstance(value, nn.Module):
        return architecture(value)
    if isinstance(value, Federation):  # of which an objective uses modules, and no client's data
        return replace(value, seed=0, sizes=(), record=None)
    if is_dataclass(value):
        return type(value), tuple(_likeness(getattr(value, field.name), config) for field in fields(value))
    return likeness(value, config) if callable(value) else (type(value), config)


def architecture(module: nn.Module) -> tuple[object, ...]:
    """What two modules must share to be one program: the class, the width and the scaler's factor, and every tensor's
    shape."""
    tensors = tuple((name, tensor.shape) for name, tensor in module.state_dict().items())
    return type(module), getattr(module, "name", None), getattr(module, "factor", None), tensors


class United:
    """K like objectives as one."""

    def __init__(self, objectives: Sequence[Callable[..., Any]]) -> None:
        self._first = objectives[0]
        columns = list(zip(*(tuple(_settings(objective)) for objective in objectives), strict=True))
        #: By place those that are not the same in all.
        self._differing = {place: of for place, of in enumerate(columns) if any(value != of[0] for value in of)}
        self._numbers = [place for place, of in self._differing.items() if all(isinstance(v, float) for v in of)]

    def numbers(self, like: Tensor) -> tuple[Tensor, ...]:
        """The vectors `(K,)` that the program is given, with the type and on the device of `like`."""
        if not self._numbers:
            return ()
        return tuple(like.new_tensor([self._differing[place] for place in self._numbers]))

    def of(self, numbers: Sequence[Tensor]) -> Callable[..., Any]:
        """The objective with these in their places, each `()`, one client's."""
        if not self._differing:
            return self._first
        vectors = dict(zip(self._numbers, numbers, strict=True))
        place = itertools.count()

        def setting(value: Any) -> Any:
            at = next(place)
            return Setting(self._differing[at], vectors.get(at)) if at in self._differing else value

        return _with(self._first, setting)  # type: ignore[no-any-return]


def _settings(value: Any) -> Iterator[Any]:
    """The settings of an objective, in the order of `_with`."""
    found: list[Any] = []
    _with(value, lambda setting: found.append(setting) or setting)  # type: ignore[func-returns-value]
    return iter(found)


def _with(value: Any, put: Callable[[Any], Any]) -> Any:
    """The same value with `put` of every setting in its place."""
    if isinstance(value, _PLAIN):
        return put(value)
    if isinstance(value, partial):
        keywords = {name: _with(value.keywords[name], put) for name in sorted(value.keywords)}
        return partial(value.func, *[_with(item, put) for item in value.args], **keywords)
    if is_dataclass(value) and not isinstance(value, (type, Federation)):
        return replace(value, **{field.name: _with(getattr(value, field.name), put) for field in fields(value)})
    return value


def _operand(value: Any) -> Any:
    return value._operand if isinstance(value, Setting) else value
