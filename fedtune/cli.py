"""The command line. A sub-command is a file in `fedtune/commands` with a function `command`, a text `EXAMPLES` and the
name of its page in `docs`, `GUIDE`, both of which its `--help` ends with; no list is edited to add one. The function's
parameters are options (`fedtune.option`), or a request, whose fields are (`fedtune.options`).

A command's file is imported when its name is given, so no other command's imports are paid for, and `fedtune --help`
imports only the commands' signatures.

Exit codes: 0 done, 1 failed, 2 something the user can mend, 3 the run can be resumed after something outside of it
failed (Ray's servers died or did not start, its mirror could not be completed), 130 interrupted and resumable.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import importlib
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TextIO, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from fedtune import commands, guard
from fedtune.commands import _complete
from fedtune.option import GROUPS, Argument, Declared, declared

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

#: First the commands in the order in which one usually needs them; others follow by name.
ORDER = (
    "search",
    "auto",
    "report",
    "figure",
    "export",
    "run",
    "compare",
    "reproduce",
    "methods",
    "spaces",
    "datasets",
    "metrics",
    "new",
    "runs",
    "resume",
    "extend",
    "status",
    "dashboard",
    "completion",
    "doctor",
)


#: So many lines are a list that needs no groups.
FEW = 12


class Explained(TyperCommand):
    """A command whose `--help` has its options in groups and ends with its examples, line by line as they are written,
    and whose line in the list of commands is a whole sentence."""

    #: The page of `docs` that shows how it is used.
    guide: str = ""
    #: What may be written as an option of its own in place of `--set`: `--label y` is `--set label=y`.
    by_set: frozenset[str] = frozenset()
    #: Likewise what switches on and off, with what it is: `--no-confirm` is `--set confirm=false`.
    switches: Mapping[str, str] = {}

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Reads what was typed, `--label y` as `--set label=y` and `--no-confirm` as `--set confirm=false`."""
        words: list[str] = []
        rest = iter(args)
        for word in rest:
            flag, equals, value = word.partition("=")
            if flag in self.by_set and (equals or (value := next(rest, ""))):
                words += ["--set", f"{flag.removeprefix('--')}={value}"]
            elif word in self.switches:
                words += ["--set", self.switches[word]]
            else:
                words.append(word)
        return super().parse_args(ctx, words)

    def sections(self, ctx: Context) -> dict[str, list[tuple[str, str]]]:
        """By heading, each argument and option with what is said of it."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *GROUPS.values(), "Options")}
        for parameter in self.get_params(ctx):
            section = getattr(parameter, "rich_help_panel", None) or "Options"
            if (line := parameter.get_help_record(ctx)) is not None:
                sections["Arguments" if parameter.param_type_name == "argument" else section].append(line)
        named = [name for name in GROUPS.values() if sections[name]]
        if sum(map(len, sections.values())) > FEW:
            sections[named[-1]] += sections.pop("Options")
        else:
            sections["Options"] = [line for name in (*named, "Options") for line in sections.pop(name)]
        return {name: lines for name, lines in sections.items() if lines}

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        for name, lines in self.sections(ctx).items():
            with formatter.section(name):
                formatter.write_dl(lines)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        # The epilog of typer would be filled like a paragraph, which breaks commands in two.
        with formatter.section("Examples"):
            for line in (self.epilog or "").splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        formatter.write(f"\nGuide: {_page(self.guide)}\n")

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence, whole: typer would cut it where the terminal ends, and a list goes on in the next line
        instead."""
        first = " ".join((self.help or "").split("\n\n")[0].split())
        return first.partition(". ")[0].removesuffix(".") + "."


def _page(guide: str) -> str:
    """Where a page of the documentation is: in the checkout, or where a wheel has put it."""
    if (Path(__file__).parents[1] / "docs" / f"{guide}.md").is_file():
        return f"docs/{guide}.md, on the site {guide}.html"
    installed = [file for file in metadata.files("fedtune") or () if file.match(f"share/doc/fedtune/{guide}.md")]
    return str(Path(installed[0].locate()).resolve()) if installed else f"{guide}.html on the site"


class Lazy(TyperGroup):
    """Imports a command when it is asked for."""

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        formatter.write("\n  `fedtune COMMAND --help` explains a command, with examples and its page.\n")
        formatter.write(f"  Where to begin: {_page('start')}\n")

    def list_commands(self, ctx: Context) -> list[str]:
        found = [info.name for info in pkgutil.iter_modules(commands.__path__) if not info.name.startswith("_")]
        return sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        known = self.list_commands(ctx)
        if cmd_name not in known:
            if cmd_name.startswith("-"):
                return None  # a misplaced option, which typer tells of
            from search_spaces.errors import UserError, unknown

            raise UserError(unknown("command", cmd_name, known))
        module = importlib.import_module(f"{commands.__name__}.{cmd_name}")
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        command = _typed(module.command)
        single.command(cmd_name, cls=Explained, epilog=module.EXAMPLES)(command)
        made = typer.main.get_command(single)
        assert isinstance(made, Explained)
        made.guide = module.GUIDE
        said = _said_by_set(module.command)
        made.by_set = frozenset(one.flag for one in said if str in one.types)
        made.switches = {
            flag: f"{one.name}={value}"
            for one in said
            for switch in one.option.flags
            for flag, value in zip(switch.split("/"), ("true", "false"), strict=True)
        }
        return made


def _said_by_set(function: Callable[..., None]) -> list[Declared]:
    """The fields of a command's request that `--set` takes, such as label=COLUMN."""
    hint = get_type_hints(function).get("request")
    request = next((kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)), None)
    found = declared(request).values() if request is not None else ()
    return [one for one in found if one.option.by_set]


def _typed(function: Callable[..., None]) -> Callable[..., None]:
    """`function` with the parameters that typer understands; of a request it gets one made of what was typed."""
    hint = get_type_hints(function).get("request")
    request = next((kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)), None)
    found = declared(request) if request is not None else {}
    fields = {name: one for name, one in found.items() if not one.option.by_set}

    @functools.wraps(function)
    def called(**typed: Any) -> None:
        if request is None:
            return function(**typed)
        asked = {name: typed.pop(name) for name in fields}
        if typed.get("as_json") and hasattr(request, "quiet"):
            asked["quiet"] = True
        if any(isinstance(one.option, Argument) and asked[name] is None for name, one in fields.items()):
            return function(None, **typed)
        missing = [name for name, one in fields.items() if one.several and asked[name] is None]
        made = request(**{name: value for name, value in asked.items() if name not in missing})
        if not made.runs_trials or typed.get("dry_run"):
            return function(made, **typed)
        from fedtune.machine import cluster

        with cluster.ahead(asked.get("address")):
            return function(made, **typed)

    shown = [_parameter(one) for one in {**fields, **declared(function)}.values()]
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return called


def _number_or_word(text: str) -> int | str:
    return int(text) if text.strip().isdecimal() else text


def _parameter(one: Declared) -> inspect.Parameter:
    """A parameter of a command as typer understands it."""
    option, empty = one.option, inspect.Parameter.empty
    optional = option.optional if isinstance(option, Argument) else one.several
    default: Any = None if optional else one.default
    kind: Any = list[str] if one.several else str if str in one.types else one.types[0]
    if get_origin(kind) is Literal:
        kind = str
    flags = option.flags or ((one.flag,) if kind is bool else ())
    if default is None:
        kind = kind | None
    if one.choices and int in one.types:
        kind, read = str | None, _number_or_word
    else:
        read = None
    told: dict[str, Any] = {
        "help": one.help + (f"  [default: {option.default}]" if option.default else ""),
        "show_default": not (default is None or default is False or default is empty),
        "metavar": option.value,
        "autocompletion": getattr(_complete, option.complete) if option.complete else None,
    }
    if read is not None:
        told["parser"] = read
    if isinstance(option, Argument):
        said: Any = typer.Argument(**told)
    else:
        said = typer.Option(*flags, **told, rich_help_panel=GROUPS[option.group])
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, said]
    )


app = typer.Typer(
    cls=Lazy,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        print(f"fedtune {version('fedtune')}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_version, help="Print the version and end."
    ),
) -> None:
    """Hyper-parameter search for federated learning: every trial is a whole simulated federation."""


#: What a file, a folder or a disk of the user may refuse with: no fault of ours, so it is told and not traced.
REFUSALS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EMFILE, errno.ENFILE),
    errno.EINVAL,  # what `search_spaces.files.open_plain` raises for a link, a pipe or a device
)


def main() -> None:
    """The console script `fedtune`."""
    from fedtune.console import completing, streams

    # What is imported stays, and to look through it again and again takes a tenth of the imports' time.
    gc.set_threshold(100_000, 50, 100)
    if completing.is_asked():
        completing.answer(app)
    hidden = streams.problem() or guard.problem()
    if hidden is not None:
        _refuse(hidden)
    try:
        code = _run()
        unwritten = streams.unwritable()
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has gone; writing the rest at exit would fail again.
        sys.stdout = None
        sys.exit(1)
    if unwritten is not None:
        _refuse(unwritten)
    gc.freeze()  # nor is it taken apart piece by piece at the end, which takes a second
    sys.exit(code)


def _run() -> int:
    """Carries out the command; its exit code, after every problem has been told."""
    from fedtune.console import streams
    from search_spaces.errors import UserError

    warnings.showwarning = _warn
    try:
        code = app(prog_name="fedtune", standalone_mode=False)
    except UserError as error:
        _refuse(*error.problems, code=error.exit_code)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except OSError as error:
        unwritten = streams.unwritable("\n") if error.filename is None else None
        if unwritten is not None:
            _refuse(unwritten)
        if error.errno not in REFUSALS:
            raise
        _refuse(f"{_cut(str(error.filename or 'A file'))} cannot be used: {error.strerror}.")
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("fedtune", *guard.SIBLINGS):
            raise
        said = _cut(str(error).rstrip("."))
        _refuse(f"A package that fedtune needs cannot be imported: {said}. `fedtune doctor` looks at them all.")
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # The command line itself is wrong: typer's own errors.
        if len(sys.argv) < 2:
            print(error.format_message(), file=sys.stderr)  # the help
            return 2
        named = getattr(getattr(error, "ctx", None), "command_path", "fedtune")
        said = _cut(" ".join(error.format_message().split()).rstrip("."))
        _refuse(f"{said}. {_by_set(error)}`{named} --help` shows what can be given.")
    return code if isinstance(code, int) else 0


def _by_set(error: Exception) -> str:
    """How a parameter is given that was written as an option of its own, such as --lr; nothing for any other error."""
    from fedtune.api import catalogue
    from search_spaces.errors import UserError

    key = str(getattr(error, "option_name", "")).removeprefix("--")
    command = getattr(getattr(error, "ctx", None), "command", None)
    if not key or "--set" not in (flag for one in getattr(command, "params", ()) for flag in one.opts):
        return ""
    for method in ("fedavg", *sys.argv[2:3]):
        with contextlib.suppress(UserError):  # the word need not be a method's name
            if any(row["key"] == key for row in catalogue.methods(method)):
                return f"It is a parameter: --set {key}=VALUE gives it. "
    return ""


def _cut(text: str) -> str:
    """`text`, which may repeat a word of the command line that is as long as it likes."""
    from search_spaces.errors import short

    return text if len(text) <= 1000 else short(text)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Tells of a damaged file in its sentence, of everything else as Python does, and shows what a terminal obeys."""
    from search_spaces.errors import DamagedFile, visible

    if issubclass(category, DamagedFile):
        print(visible(str(message)), file=sys.stderr)
    else:
        print(visible(warnings.formatwarning(message, category, filename, lineno, line)), file=sys.stderr, end="")


def _refuse(*problems: str, code: int = 2) -> NoReturn:
    """Ends with exit code `code` after telling `problems`, a line for each."""
    from search_spaces.errors import visible

    for problem in problems:
        print(visible(" ".join(problem.splitlines())), file=sys.stderr)
    sys.exit(code)
