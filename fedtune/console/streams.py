"""Standard streams and the current directory, before a command begins and when its output cannot be written."""

from __future__ import annotations

import os
import sys


def problem() -> str | None:
    """One sentence where a command could not say what it finds, or not tell where it is; else None.

    Descriptors that are closed are opened on the null device: the next file that is opened would get their number, and
    what a library prints would be written into it. What a stream's encoding lacks is written out, `×` as `\\xd7`."""
    closed = sys.stdout is None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if closed:
        return "Standard output is closed, so no result can be printed. Send it to a file, or to /dev/null."
    try:
        os.getcwd()
    except OSError as error:
        return f"The current directory cannot be used: {error.strerror}. Change to another one."
    return None


def unwritable(probe: str = "") -> str | None:
    """One sentence where what was printed cannot be written, as on a full disk; else None. Standard output is gone
    then, so that Python does not try again when it ends. Raises `BrokenPipeError` where its reader has gone.

    `probe` is written to find out, where a failed write has left nothing to be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.write(probe)
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = None
        return f"The result cannot be printed: {error.strerror}. Send it to another file."
    return None
