"""Python files of a user's own that hold a method, a model or a metric.

Which files may be run: those that the user has named, on a command line, in a call, or in the environment variables
FEDTUNE_METHODS and FEDTUNE_MODELS (paths separated as in PATH). What was named is noted in the cache folder by its
path, so that a later command finds a run's method or model again. A path that stands in a run directory, an exported
file or a model's card is looked up among these and nowhere else: nobody's code runs because somebody opens what they
were sent.

A search hands the text of its files to the trials (`Code`), which run that text and not what the disk holds by then.

Plug-ins of installed packages are in `search_spaces.plugins`.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from search_spaces import files, own_files
from search_spaces.errors import Shown, UserError, sentence
from trainables.data import cache

#: The environment variables that name files.
VARIABLES = ("FEDTUNE_METHODS", "FEDTUNE_MODELS")
#: How the modules of such files begin.
_MODULE = "fedtune_own_"


@dataclass(frozen=True)
class Code:
    """A file as it was read: what is sent to a trial."""

    path: str
    text: str

    @property
    def hash(self) -> str:
        """Of the content."""
        return own_files.digest(self.text.encode())

    def facts(self) -> dict[str, str]:
        """What a run records: the file's name and the content's hash."""
        return {"file": Path(self.path).name, "hash": self.hash}


#: What this process has run: by path the text and the module.
_run: dict[str, tuple[Code, ModuleType]] = {}
#: The files that are being run now.
_running: list[str] = []
#: What this process was told to run, by path: named by the user, or (in a trial) sent by the driver.
_named: dict[str, Code | None] = {}


def is_file(text: str) -> bool:
    """Whether this is the path of a Python file and no name."""
    return text.endswith(".py")


def split(text: str) -> tuple[str, str] | None:
    """`mynet.py:Net` and `mynet.py` as a path and a name, which may be empty; None of what is no such reference."""
    path, colon, name = text.rpartition(":")
    if colon and is_file(path):
        return path, name
    return (text, "") if is_file(text) else None


def named(path: str | Path, what: str) -> Path:
    """Notes that the user has named this file for `what` (`a method`), and returns its whole path. Raises `UserError`
    where there is none."""
    whole = files.given(path).resolve()
    if not whole.is_file():
        raise UserError(sentence(what, "the path of an existing Python file", str(path), fix="Check the path."))
    if str(whole) not in _named:
        _named[str(whole)] = None
        note = _note(whole)
        with cache.writable():  # written again, as its time says when the file was named last
            note.parent.mkdir(parents=True, exist_ok=True)
            files.replace(note, json.dumps({"path": str(whole)}))
    return whole


def run_named() -> None:
    """Runs the files that this process was told of and has not run: in a trial those of its run, and no file of the
    same name in another folder."""
    for path in [path for path in _named if path not in _run and path not in _running]:
        module(path)


def noted() -> list[Path]:
    """The files that were named on this machine before, and are there: those below the current folder first, then the
    ones that were named last."""
    found = []
    for note in sorted((cache.home() / "own").glob("*.json"), key=_named_at, reverse=True):
        try:
            path = Path(json.loads(note.read_text(encoding="utf-8"))["path"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if _note(path) == note and path.is_file():
            found.append(path)
    here = Path.cwd().resolve()
    return sorted(found, key=lambda path: not path.is_relative_to(here))


def _named_at(note: Path) -> tuple[float, str]:
    """When a file was named last, and something that decides between equal times."""
    try:
        return note.stat().st_mtime, note.name
    except OSError:  # removed by somebody meanwhile
        return 0.0, note.name


def given(codes: Iterable[Code]) -> None:
    """In a trial: the files of its run, as the driver has read them."""
    for code in codes:
        _named[code.path] = code


def module(path: str | Path) -> ModuleType:
    """The module of a file that the user has named, run once, and again where its text has changed. Raises `UserError`
    where nobody has named it, it cannot be read, or it fails."""
    whole = str(path)
    if whole not in _run and not _may_run(whole):
        raise UserError(
            f"{whole} is Python code that nobody has named on this machine, so it is not run. If you trust it, name it "
            f"once in a command, a metric by --metric {whole}:FUNCTION, or a method in FEDTUNE_METHODS and a model in "
            f"FEDTUNE_MODELS, and repeat this command."
        )
    code = _named.get(whole)
    if code is None:
        gone = whole in _run and not Path(whole).is_file()
        code = _run[whole][0] if gone else _read(whole)
    if whole not in _run or _run[whole][0] != code:
        _run[whole] = code, _execute(code)
    return _run[whole][1]


def defined(code: ModuleType, fits: Callable[[object], bool]) -> list[str]:
    """The names of what the file itself defines and has not imported, of that kind."""
    return [
        name for name, value in vars(code).items() if fits(value) and getattr(value, "__module__", "") == code.__name__
    ]


def code_of(path: str | Path) -> Code:
    """The text that was run of a file."""
    module(path)
    return _run[str(path)][0]


def loaded() -> list[str]:
    """The files that this process has run."""
    return list(_run)


def listed(variable: str) -> list[Path]:
    """The files that the environment variable names. Raises `UserError` where one of them is none."""
    found = [files.given(path).resolve() for path in own_files.listed(variable)]
    for path in found:
        if not path.is_file():
            raise UserError(sentence(variable, "paths of Python files", str(path)))
    return found


def forget() -> None:
    """As in a new process."""
    for _, found in _run.values():
        sys.modules.pop(found.__name__, None)
    _run.clear()
    _named.clear()


def check_not_running() -> None:
    """Raises `UserError` where a file of a user's own asks for a run while it is run itself."""
    if _running:
        raise UserError(
            f"{_running[-1]} asks fedtune for a run whenever its text is read, as trials do. Put that call below "
            f'`if __name__ == "__main__":`.'
        )


def file_of(value: Any) -> Path | None:
    """The file in which a class, a function or a module that a program has at hand is written; None where there is
    none, as in a notebook's cell."""
    owner = value if isinstance(value, ModuleType) else sys.modules.get(getattr(value, "__module__", ""))
    found = getattr(owner, "__file__", None)
    return Path(found).resolve() if found and Path(found).is_file() else None


def object_reference(given: Any, what: str, kind: str) -> str:
    """`mynet.py:Net` of a class or a function that a program has at hand, which is thereby named by the user for `what`
    (`model`). Raises `UserError` where it stands in no file."""
    path, name = file_of(given), getattr(given, "__qualname__", "")
    if path is None or not name.isidentifier():
        must = f"a name, FILE.py:{kind.upper()}, or a {kind} that stands at the top of a file"
        raise UserError(sentence(what, must, Shown(name or repr(given)), fix="Write it into a file of its own."))
    return f"{named(path, what)}:{name}"


def file_that_has(value: Any) -> Path | None:
    """The file whose module has this value under some name; None where there is none."""
    for owner in list(sys.modules.values()):
        if isinstance(owner, ModuleType) and any(found is value for found in list(vars(owner).values())):
            return file_of(owner)
    return None


def _note(path: Path) -> Path:
    return cache.home() / "own" / f"{cache.key(str(path))}.json"


def _may_run(path: str) -> bool:
    if path in _named or _note(Path(path)).exists():
        return True
    return any(str(listed_one) == path for variable in VARIABLES for listed_one in listed(variable))


def _read(path: str) -> Code:
    try:
        return Code(path, files.read_text(Path(path)))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(sentence("A Python file of your own", "readable", Shown(why), path)) from error


def _execute(code: Code) -> ModuleType:
    name = f"{_MODULE}{Path(code.path).stem}_{cache.key(code.path)}"
    spec = importlib.util.spec_from_loader(name, None, origin=code.path)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    made.__file__ = code.path
    sys.modules[name] = made
    _running.append(code.path)
    try:
        exec(compile(code.text, code.path, "exec"), made.__dict__)
    except own_files.RAISED as error:  # whatever somebody's file raises
        del sys.modules[name]
        line = _line(error, code.path)
        raise UserError(
            f"{code.path} cannot be run{f' (line {line})' if line else ''}: {type(error).__name__}: {error}."
            f"{own_files.beside(error, Path(code.path))}"
        ) from error
    finally:
        _running.pop()
    return made


def told(error: BaseException) -> str:
    """An error that code of such a file may have raised, with the last place there that it went through:
    `KeyError: 'w' (mymethod.py, line 12)`."""
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    last = ""
    for step, line in traceback.walk_tb(error.__traceback__):
        if step.f_code.co_filename in _run:
            last = f" ({Path(step.f_code.co_filename).name}, line {line})"
    return said + last


def _line(error: BaseException, path: str) -> int | None:
    """The last line of the file that an error went through."""
    found = error.lineno if isinstance(error, SyntaxError) else None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == path:
            found = step.tb_lineno
        step = step.tb_next
    return found
