"""What a record's declaration decides: what its file holds, how it is read again, and what is said of a wrong one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest

from analysis.runs.file_record import Count, FileRecord, Must, Text, is_record
from analysis.runs.shapes import Shape, each, is_number
from search_spaces.errors import UserError


@dataclass(frozen=True)
class Guest(FileRecord):
    name: Text
    years: Count


@dataclass(frozen=True)
class Party(FileRecord):
    gone: ClassVar[Shape] = {"cake": Must("a number", is_number())}
    unsaid: ClassVar[dict[str, Any]] = {"place": "home"}

    guests: Annotated[tuple[Guest, ...], Must("a list of guests", each(is_record(Guest), 1))]
    place: Text = "home"


WRITTEN: dict[str, Any] = {"version": 1, "guests": [{"name": "Ann", "years": 3}], "place": "park"}


def test_what_was_written_is_read_again() -> None:
    party = Party((Guest("Ann", 3),), "park")
    assert party.to_yaml() == WRITTEN
    assert Party.from_yaml(WRITTEN, "x") == party
    earlier = {"version": 1, "guests": WRITTEN["guests"], "cake": 2.5}
    assert Party.from_yaml(earlier, "x") == Party((Guest("Ann", 3),), "home")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"version": 2}, "version must be 1, the version this fedtune reads, got 2 (x). "),
        ({"guests": []}, "guests must be a list of guests, got [] (x). "),
        ({"guests": [{"name": "Ann", "years": -1}]}, "guests must be a list of guests, got "),
        ({"guests": [{"name": "Ann"}]}, "guests must be a list of guests, got "),
        ({"guests": [{"name": "Ann", "years": 3, "hat": "red"}]}, "guests must be a list of guests, got "),
        ({"place": 4}, "place must be text, got 4 (x). "),
        ({"cake": "big"}, "cake must be a number, got 'big' (x). "),
        ({"music": "loud"}, "x holds the unknown key 'music'; it was not written by fedtune, or was edited."),
    ],
)
def test_what_nobody_wrote_is_refused_in_a_sentence(edit: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        Party.from_yaml(WRITTEN | edit, "x")
    (problem,) = refused.value.problems
    assert problem.startswith(said)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(UserError, match=r"^x lacks 'guests'; it was not written by fedtune, or was edited\.$"):
        Party.from_yaml({"version": 1, "place": "park"}, "x")
