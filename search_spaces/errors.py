"""What a user is told when something they gave cannot be used.

Every message is one sentence of the same shape: **what** must be **what**, **got** what, **where** it came from,
and **how** to correct it. A `UserError` is printed without a traceback and ends the command with exit code 2;
every other exception is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

#: Characters that a terminal obeys instead of showing them, that cannot be seen, that turn the direction of writing, or
#: that are no text: all control characters but tab and new line (Cc), format characters (Cf), separators of lines and
#: paragraphs, halves of surrogate pairs (Cs).
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)


def visible(text: str) -> str:
    """`text` as it may be printed: what a terminal would obey is written out, an escape as `\\u001b`. Names and texts
    from files that somebody else made can then neither hide nor forge what stands on the screen."""
    return _HIDDEN.sub(lambda found: _escaped(ord(found[0])), text)


def _escaped(code: int) -> str:
    """As JSON writes it: beyond the first plane as a pair of surrogates."""
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + ((code - 0x10000) >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


#: The exit code of a command that a signal ended.
INTERRUPTED = 130


class UserError(Exception):
    """One or more things that the user can correct. `str(error)` is what is printed, one problem per line."""

    #: Of a command that ends with it.
    exit_code = 2

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems

    def _render_traceback_(self) -> list[str]:
        """For a notebook, where IPython asks an error how it is to be shown: the sentences alone, as on the command
        line."""
        return [visible(problem) for problem in self.problems]


class DamagedFile(UserWarning):
    """A file that a command can do without is damaged; what it says is left out."""


class EnvironmentFault(UserError):
    """Something around a trial is not as it was when the run began: its data, its machine, its libraries. No
    configuration is to blame for it, so no trial is scored by it."""


def sentence(what: str, must: str, got: object, where: str = "", fix: str = "") -> str:
    """The standard sentence: `alpha must be a number in [0, 2], got 7 (best.yaml, line 3). Lower it.`"""
    shown = short(got if isinstance(got, Shown) else repr(got))
    text = f"{what} must be {must}, got {shown}" + (f" ({where})" if where else "") + "."
    return f"{text} {fix}" if fix else text


#: So many characters of what a user gave are repeated to them.
LONGEST = 200


def short(text: str) -> str:
    """`text`, its middle left out where it is long."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 4 :]}"


class Shown(str):
    """A `got` that is printed as it stands instead of as a Python literal."""


def closest(word: str, known: Iterable[str]) -> str:
    """`Did you mean 'alpha'?`, or nothing where nothing is close."""
    close = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """`Did you mean 'alpha'?`, or the whole list where nothing is close, in it names of several words in quotes."""
    names = sorted(known)
    listed = ", ".join(repr(name) if " " in name else name for name in names)
    return closest(word, names) or f"Known: {listed}."


def unknown(kind: str, word: str, known: Iterable[str], where: str = "") -> str:
    """`Unknown method 'dfdr' (--method). Did you mean 'dfrd'?`"""
    return f"Unknown {kind} {short(repr(word))}" + (f" ({where})" if where else "") + f". {nearest(word, known)}"
