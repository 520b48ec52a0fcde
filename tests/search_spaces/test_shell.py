"""What a shell makes of the words that were quoted for it."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from search_spaces.errors import visible
from search_spaces.shell import join, quote

#: A line that is turned round, an escape, a bell, quotes, what a shell would run, and digits behind what is escaped.
HOSTILE = "a\x1b[31m\x0719'\"\\ $(touch x) `y` $'z'\u202e7\n\t\r"
PLAIN = ["runs/a", "it's", "", "-x", "α × λ", "\\u001b"]
WORDS = [*PLAIN, HOSTILE, "\x1b1", "\u202ef", "tag \U000e0041", os.fsdecode(b"\xff\xfe9")]


def by_bash(command: str, locale: str) -> list[bytes]:
    """The words of a command as Bash reads it."""
    script = f"words() {{ printf '%s\\0' \"$@\"; }}; words {command}"
    done = subprocess.run(["bash", "-c", script], env={**os.environ, "LC_ALL": locale}, capture_output=True, check=True)
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bash_reads_the_words_that_were_meant(locale: str) -> None:
    assert by_bash(join(WORDS), locale) == [os.fsencode(word) for word in WORDS]


def test_a_command_is_one_line_that_can_be_printed() -> None:
    command = join(WORDS)
    assert visible(command) == command and not any(character in command for character in "\n\t")
    assert quote("\ud800") == "$'\\355\\240\\200'", "no name has it, yet a file may say so"


def test_words_without_such_characters_are_quoted_as_everybody_does() -> None:
    assert [quote(word) for word in PLAIN] == [shlex.quote(word) for word in PLAIN]


def test_the_printed_command_reaches_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "")
    folder.mkdir()
    subprocess.run(["bash", "-c", f"touch {quote(str(folder))}/reached"], check=True)
    assert [path.name for path in folder.iterdir()] == ["reached"]
