"""Words of commands as they are printed, so that a copied command means what it says."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from search_spaces.errors import visible

#: What is no single line, beside what `visible` writes out.
_BREAKS = ("\t", "\n")
#: What ends or escapes in the shell's `$'…'`.
_OWN = ("'", "\\")


def quote(word: str) -> str:
    """`word` as a shell reads it, in characters that can be printed. `visible` would write an escape as `\\u001b`,
    which between ordinary quotes names something else: here it stands as `$'\\033'`, which Bash and the Z shell read as
    what it was."""
    if visible(word) == word and not any(character in word for character in _BREAKS):
        return shlex.quote(word)
    return "$'" + "".join(map(_within, word)) + "'"


def join(words: Iterable[str]) -> str:
    """The words as one command."""
    return " ".join(map(quote, words))


def _within(character: str) -> str:
    """One character between `$'` and `'`. Three octal digits per byte: of hexadecimal ones it would depend on the next
    character where they end, and of a character's number on the locale what its bytes are."""
    if character in _OWN:
        return f"\\{character}"
    if visible(character) == character and character not in _BREAKS:
        return character
    # Bytes of a file's name that are no text, as Python keeps them; other halves of pairs no name can have.
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", errors))
