"""What a run was begun with, as far as it decides what its trials measure: the content of its data set and the
libraries; and that a trial writes to the run's own directory.

A trial asks before its first round whether it still is so where the trial runs. If not, the search ends with a sentence
and the trial stays to be resumed: a score under other conditions would be compared with those before it.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_spaces import files
from search_spaces.errors import EnvironmentFault
from search_spaces.versions import installed

#: The libraries that compute inside a trial: another version of one of them may give other numbers.
COMPUTE = ("fedtune", "numpy", "torch")
#: The variable that a process has which is the fork of a loaded one (`fedtune.machine.fork_server`).
FORK = "FEDTUNE_FORK"
#: Seconds after which a shared disk shows one machine what another has written, and so many where nothing is lost if it
#: takes longer.
SHARED, SHARED_SOON = 5.0, 1.0


@dataclass(frozen=True)
class Token:
    """A file with random content that the driver has written into the run directory. Who can read it sees the same
    directory as the driver."""

    path: str
    content: str

    def is_seen(self, within: float) -> bool:
        """Whether this machine can read it, within so many seconds. A process finds that out once."""
        if self not in _SEEN:
            deadline = time.monotonic() + within
            while not (seen := self._is_there()) and time.monotonic() < deadline:
                time.sleep(0.2)
            _SEEN[self] = seen
        return _SEEN[self]

    def _is_there(self) -> bool:
        try:
            return files.read_text(Path(self.path)) == self.content
        except (OSError, UnicodeDecodeError):
            return False


#: Whether this process sees a run directory.
_SEEN: dict[Token, bool] = {}


@dataclass(frozen=True)
class Environment:
    """What trials are to find."""

    #: The hash of the data set's content; None where it was not recorded.
    dataset: str | None = None
    #: Versions by the name of a library.
    versions: Mapping[str, str] = field(default_factory=dict)
    #: None where nobody has written one.
    token: Token | None = None
    #: Hashes by name where the run has several data sets.
    datasets: Mapping[str, str] = field(default_factory=dict)
    #: The name of the actor that writes for machines which do not see the run directory (`trainables.worker.home`).
    home: str | None = None
    #: Whether Ray's processes are forks of a loaded one (`fedtune.machine.fork_server`).
    forks: bool = False

    @property
    def sees_folder(self) -> bool:
        """Whether this machine sees the run directory."""
        return self.token is None or self.token.is_seen(SHARED if self.home is None else SHARED_SOON)

    def check_folder(self) -> None:
        """Raises `EnvironmentFault` where this machine does not see the run directory, and nothing writes to it for
        this machine."""
        if self.token is not None and self.home is None and not self.sees_folder:
            raise EnvironmentFault(
                f"The machine {socket.gethostname()} does not see the run directory {Path(self.token.path).parent}, so "
                "what its trials write would be lost."
            )

    def check_versions(self) -> None:
        """Raises `EnvironmentFault` where this process has other versions than the driver.

        (With those of the run's record the driver's are compared before a run goes on, see
        `fedtune.planning.resumption`. The user may accept others there, and then they hold here.)"""
        here = installed(self.versions)
        differing = [name for name, version in self.versions.items() if here.get(name) != version]
        if differing:
            have = ", ".join(f"{name} {here.get(name, 'not installed')}" for name in differing)
            want = ", ".join(f"{name} {self.versions[name]}" for name in differing)
            raise EnvironmentFault(
                f"The machine {socket.gethostname()} has {have} and the search runs with {want}, so the same seed may "
                f"give other numbers there. Install the same versions on all machines."
            )

    def check_data(self, dataset: object, found: Mapping[str, Any]) -> None:
        """Raises `EnvironmentFault` where the content of the data set named `dataset` is another one. `found`: what the
        trial's `partition.json` is to hold."""
        then = self.datasets.get(str(dataset)) if self.datasets else self.dataset
        if then is not None and found.get("dataset") not in (None, then):
            raise EnvironmentFault(changed(dataset, then, found["dataset"]))


def changed(dataset: object, then: object, now: object) -> str:
    """The sentence for a data set whose content is another one than that which the run began with."""
    return (
        f"The data set {str(dataset)!r} must be as it was when the run began (hash {then}), got another content (hash "
        f"{now}). Put the old data back, or begin a new run."
    )


def disk(place: str, error: OSError) -> str:
    """The sentence for a file that cannot be read or written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{place}: {error.strerror or error}." + (" Free some space." if full else "")
