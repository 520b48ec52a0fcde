"""Records that a file of a run directory holds: declared once, field by field, with what a value must be.

A record is a frozen dataclass. A field is `name: Annotated[type, Must(words, fits)]`; what is checked as the file is
read, how a list becomes a tuple or a record in it, and what is written follow from that line. (`fits` must have a name:
a lambda written in a field would look for its names in the class.)
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, get_args, get_origin, get_type_hints

from analysis.runs.mappings import read_yaml
from analysis.runs.shapes import Shape, each, is_text, is_whole, mapping, none_or, problems, shaped
from search_spaces import files, metrics, run_folder
from search_spaces.errors import UserError, short

R = TypeVar("R", bound="FileRecord")


class Must(NamedTuple):
    """What a field's value must be, in words, and whether a value is that."""

    words: str
    fits: Callable[[Any], bool]


Text = Annotated[str, Must("text", is_text)]
TextOrNothing = Annotated[str | None, Must("text or null", none_or(is_text))]
Texts = Annotated[tuple[str, ...], Must("a list of texts", each(is_text))]
Flag = Annotated[bool, Must("true or false", lambda value: isinstance(value, bool))]
#: Whole numbers.
Count = Annotated[int, Must("a whole number of at least 0", is_whole(0))]
Positive = Annotated[int, Must("a whole number of at least 1", is_whole(1))]


@dataclass(frozen=True)
class FileRecord:
    """The base of all records. A subclass is a frozen dataclass."""

    #: Keys of options that are gone, which files of earlier versions may have.
    gone: ClassVar[Shape] = {}
    #: What files of an earlier version do not say, and mean.
    unsaid: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def shape(cls) -> Shape:
        """What each key of the file must be."""
        return {**_fields(cls), **cls.gone}

    @property
    def named_metrics(self) -> Sequence[str]:
        """The metrics that the record names, a user's own among them."""
        return ()

    def to_yaml(self) -> dict[str, Any]:
        """Plain data for the file."""
        own = metrics.declarations(self.named_metrics)
        return {"version": run_folder.VERSION, **({OWN: own} if own else {}), **_plain(self)}

    @classmethod
    def from_yaml(cls, data: Mapping[str, Any], where: str) -> Self:
        """The record that `to_yaml` wrote. Raises `UserError` where a field is missing, unknown or of another kind."""
        take_metrics(data, where)
        known = {key: value for key, value in data.items() if key not in ("version", OWN, *cls.gone)}
        rest = {**cls.unsaid, **known}
        wrong = problems(data, {"version": VERSION, **cls.shape()}, where)
        missing, strange = sorted(_fields(cls).keys() - rest.keys()), sorted(rest.keys() - _fields(cls).keys())
        wrong += [f"{where} lacks {key!r}; it was not written by fedtune, or was edited." for key in missing]
        wrong += [
            f"{where} holds the unknown key {key!r}; it was not written by fedtune, or was edited." for key in strange
        ]
        if wrong:
            raise UserError(*wrong)
        return _made(cls, rest)

    @classmethod
    def of_checked(cls, data: Mapping[str, Any]) -> Self:
        """The record of a mapping in a file that was read, and so has been checked."""
        return _made(cls, data)


class FolderRecord(FileRecord):
    """The record of a folder with several runs."""

    #: The file that holds it, and the command that makes such folders.
    file: ClassVar[str]
    command: ClassVar[str]

    @classmethod
    def is_in(cls, folder: str | os.PathLike[str]) -> bool:
        """Whether the command made the folder."""
        return (files.given(folder) / cls.file).is_file()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The record in `folder`. Raises `UserError` where there is none, or it is torn or was edited."""
        path = folder / cls.file
        if not cls.is_in(folder) or path.is_symlink():
            name = short(repr(str(folder)))
            raise UserError(f"{name} was not made by `fedtune {cls.command}`: {cls.file} is missing.")
        return cls.from_yaml(read_yaml(path), str(path))


#: Of the first key of every such file.
VERSION = Must(
    f"{run_folder.VERSION}, the version this fedtune reads", is_whole(run_folder.VERSION, run_folder.VERSION)
)


#: The key under which a record says how a user's own metrics are declared.
OWN = "own_metrics"
_DECLARATION: Shape = dict.fromkeys(("direction", "title", "unit"), Must("text", is_text))
_OWN: Shape = {
    OWN: Must("a mapping of metrics to direction, title and unit", mapping(shaped(_DECLARATION, *_DECLARATION)))
}


def take_metrics(data: Mapping[str, Any], where: str) -> None:
    """Declares the user's own metrics that a record names, before it is read whether what it names is one. Raises
    `UserError` where that is not what fedtune wrote."""
    if wrong := problems(data, _OWN, where):
        raise UserError(*wrong)
    metrics.take(data.get(OWN, {}), where)


def is_record(kind: type[FileRecord]) -> Callable[[Any], bool]:
    """Whether a value is a mapping with the fields of that record, and no others."""

    def fits(value: Any) -> bool:
        fields = _fields(kind)
        return (
            isinstance(value, dict)
            and {*kind.unsaid, *value} == fields.keys()
            and not problems({**kind.unsaid, **value}, fields, "")
        )

    return fits


_known: dict[Any, dict[str, Any]] = {}


def _hints(kind: Any) -> dict[str, Any]:
    """By field its type with what is said of it."""
    if kind not in _known:
        hints = get_type_hints(kind, include_extras=True)
        _known[kind] = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return _known[kind]


def _fields(kind: type[FileRecord]) -> Mapping[str, Must]:
    return {
        name: next(said for said in hint.__metadata__ if isinstance(said, Must)) for name, hint in _hints(kind).items()
    }


def _plain(value: Any) -> Any:
    """What a file holds of a record or of a field."""
    if isinstance(value, FileRecord):
        return {name: _plain(getattr(value, name)) for name in _hints(type(value))}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else value


def _made(kind: type[R], data: Mapping[str, Any]) -> R:
    """The record of a file's fields, which have been checked."""
    given = {**kind.unsaid, **data}
    return kind(**{name: _typed(get_args(_hints(kind)[name])[0], value) for name, value in given.items()})


def _typed(kind: Any, value: Any) -> Any:
    """A field's value as its type has it."""
    if isinstance(kind, type) and issubclass(kind, FileRecord):
        return _made(kind, value)
    if isinstance(kind, UnionType):  # `X | None`
        return None if value is None else _typed(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        listed = value if isinstance(value, list) else [value]
        return tuple(_typed(get_args(kind)[0], one) for one in listed)
    return value
