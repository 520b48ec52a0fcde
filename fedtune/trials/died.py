"""Trials whose processes died: after which round, of what, and who is to blame.

A trial whose process died goes on from its checkpoint, `RETRIES` times. When it dies once more, the configuration is to
blame only where the process died after the same round each time, and each time for lack of memory or by a crash in
native code: what a configuration does, it does again, as the same seed gives the same rounds. One that died elsewhere,
or of which nothing says why (`fedtune.machine.deaths`), was ended from outside: by a person, or for the memory that
something else took. No trial is scored by that, and the search ends with a sentence.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from fedtune.machine import deaths
from fedtune.machine.deaths import Death
from search_spaces import run_folder
from search_spaces.errors import UserError

#: How often a trial whose process died goes on.
RETRIES = 2


class EndedFromOutside(UserError):
    """The process of a trial was ended again and again by something outside of the search. Exit code 3."""

    exit_code = 3


class _Died(NamedTuple):
    #: How many rounds were written.
    round: int
    of: Death


class Died:
    """The deaths of one session, by the numbers of the trials."""

    def __init__(self) -> None:
        self._found: dict[int, list[_Died]] = defaultdict(list)
        #: What was counted when a trial's process began: crashes that its log tells of, and processes that the system
        #: ended for lack of memory.
        self._before: dict[int, tuple[int, int]] = {}

    def begin(self, number: int, folder: Path) -> None:
        """A process begins with a trial, whose folder this is."""
        self._before[number] = self._counts(folder)

    def note(self, number: int, folder: Path, seeds: int, said: str) -> int:
        """Its process has died, of which Ray said this. Returns how many rounds of so many `seeds` it had written."""
        from trainables.worker.rounds_jsonl import complete_rounds

        crashes, kills = self._before[number]
        crashes_now, kills_now = self._counts(folder)
        of = deaths.death(said, crashed=crashes_now > crashes, memory_kill=kills_now > kills)
        round_ = complete_rounds(folder / run_folder.ROUNDS, seeds)
        self._found[number].append(_Died(round_, of))
        return round_

    def _counts(self, folder: Path) -> tuple[int, int]:
        return deaths.crashes(folder / run_folder.LOG), deaths.memory_kills()

    def too_often(self, number: int) -> bool:
        """Whether a trial goes on no more."""
        return len(self._found[number]) > RETRIES

    def is_own_doing(self, number: int) -> bool:
        """Whether a trial brought its deaths about."""
        found = self._found[number]
        return len({died.round for died in found}) == 1 and all(died.of != Death.OUTSIDE for died in found)

    def error(self, number: int) -> str:
        """Why a trial failed that did."""
        found = self._found[number]
        ways = " or ".join(dict.fromkeys(died.of.value for died in found))
        return f"Its process died {len(found)} times {ways}, each time after round {found[-1].round}."

    def from_outside(self, number: int, again: str) -> EndedFromOutside:
        """What ends the search where a trial did not. again: the command that goes on."""
        *earlier, last = (died.round for died in self._found[number])
        if set(earlier) == {last}:
            when = f"each time after round {last}, and nothing says that memory ran out or that it crashed"
        else:
            when = f"after the rounds {', '.join(map(str, earlier))} and {last}"
        return EndedFromOutside(
            f"The process of trial {number} died {len(earlier) + 1} times, {when}, so it was ended from outside, or "
            f"for memory that something else took. The search stopped and keeps what was written; no trial was scored "
            f"by this. Then go on with `{again}`."
        )
