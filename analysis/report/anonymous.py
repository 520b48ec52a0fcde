"""A run as a page may show it to people who shall not know whose it is: without the machine's name and system, the
command line, addresses, paths and the revision of its code. What decides numbers stays: processor, instructions, GPU,
versions."""

from __future__ import annotations

import dataclasses
import re
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.runs import Run
from analysis.runs.file_record import FileRecord
from analysis.runs.record import Record

#: Entries of a record that tell where it was made or by whom.
LEFT_OUT = frozenset({"host", "system", "command", "address", "data_dir", "git"})
#: A path from the root, a home or a drive, up to a quote, a space or punctuation; no address of the web.
_PATH = re.compile(r"(?:file:/+|(?<![\w./~-])(?:[A-Za-z]:\\|(?!(?<=:)//)~?/))[^\s'\"`,;:()<>]+")


class AnonymousRecord(Record):
    """A record whose folder has its name alone."""

    @property
    def shown(self) -> str:
        return self.name

    @property
    def resumed(self) -> str:
        return self.path.parent.parent.name if self.experiment.get("part") else self.name


class AnonymousRun(Run):
    """A run whose texts name neither machine nor place. Its files are read where they are."""

    def config(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = without_places(super().config(number))
        return found

    @cached_property
    def trials(self) -> pd.DataFrame:
        frame = super().trials
        return frame.assign(error=frame["error"].map(without_places))


def anonymous(run: Run) -> Run:
    """The same run without names of machines, commands, addresses and paths."""
    record = run.record
    experiment, space, provenance = map(without_places, (record.experiment, record.space, record.provenance))
    cleaned = AnonymousRecord(record.path, experiment, space, provenance, record.damaged)
    return AnonymousRun(cleaned, run.directions, run.metrics, run.frozen)


def without_places(value: Any) -> Any:
    """`value` without the entries `LEFT_OUT`, and of every path in its texts the last part alone."""
    if isinstance(value, dict):
        return {key: without_places(item) for key, item in value.items() if key not in LEFT_OUT}
    if isinstance(value, FileRecord):
        fields = dataclasses.fields(value)
        return dataclasses.replace(value, **{one.name: without_places(getattr(value, one.name)) for one in fields})
    if isinstance(value, (list, tuple)):
        return type(value)(without_places(item) for item in value)
    return _PATH.sub(_last_part, value) if isinstance(value, str) else value


def _last_part(found: re.Match[str]) -> str:
    return re.split(r"[/\\]", found[0].rstrip("/\\"))[-1]
