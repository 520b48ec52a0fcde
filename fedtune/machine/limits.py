"""What the system lets a process have (`ulimit`): is it enough for torch and for Ray?

Where it is not, a library cannot be loaded or a server of Ray ends while it starts, and neither says why.
"""

from __future__ import annotations

import resource

from search_spaces.errors import Shown, UserError, sentence

#: Addresses of one process, in bytes. A trial's process takes some 6 GiB of them, whatever memory it uses, as libraries
#: are mapped and every thread has room for its stack.
ADDRESSES = 8 << 30
#: Open files of one process. Ray's servers have one for every process and for every stream of it.
FILES = 256


def check_limits() -> None:
    """Raises `UserError` with every limit that is too low for a search."""
    asked = (
        (resource.RLIMIT_AS, "The limit of a process's addresses (ulimit -v)", ADDRESSES, _gib),
        (resource.RLIMIT_NOFILE, "The limit of open files (ulimit -n)", FILES, str),
    )
    problems = []
    for which, name, needed, shown in asked:
        # Ray raises a soft limit as far as the hard one lets it; torch is loaded before.
        allowed = resource.getrlimit(which)[0 if which == resource.RLIMIT_AS else 1]
        if allowed != resource.RLIM_INFINITY and allowed < needed:
            fix = "Raise it in the shell or service that starts fedtune."
            problems.append(sentence(name, f"at least {shown(needed)}", Shown(shown(allowed)), fix=fix))
    if problems:
        raise UserError(*problems)


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.3g} GiB"
