"""What follows from a declared option: the command line, the Python function, the checks."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_type_hints

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import fedtune
from fedtune import cli, option
from fedtune.machine import cluster, fork_server
from fedtune.option import Argument, Asked, Option, call, declared, fields_of
from search_spaces.errors import UserError


@dataclass(frozen=True)
class Bread(Asked):
    """What a bakery is asked for."""

    grain: Annotated[str | Path, Argument(help="The grain.")]
    _: KW_ONLY
    loaves: Annotated[int, Option(help="How many loaves.", group="how long", low=1, high=9)] = 1
    salt: Annotated[float, Option(help="How much salt.", group="how", low=0, high=1)] = 0.5
    crust: Annotated[Literal["thin", "thick"] | None, Option(help="The crust.", group="how", default="thin")] = None
    seeds: Annotated[Sequence[str], Option(help="Seeds on top.", group="what")] = ()
    set: Annotated[Mapping[str, object] | Sequence[str], Option(help="Else, see --no-dark.", group="what")] = ()
    dark: Annotated[bool | None, Option(help="Dark.", group="where", flags=("--dark/--no-dark",))] = None
    sliced: Annotated[bool, Option(help="Sliced.", group="what", by_set=True)] = False
    oven: Any = None
    quiet: bool = False


@fields_of(Bread)
def bake(request: Bread) -> Bread:
    """Bakes."""
    return request


@dataclass(frozen=True)
class Dough(Asked):
    """An option that is a few numbers."""

    parts: Annotated[
        Mapping[str, float] | str | None, Option(help="Its parts.", group="what", amounts=("flour", "water"))
    ] = None


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("flour=2,water=0.5", {"flour": 2.0, "water": 0.5}),
        (" water = 1e-1 ", {"water": 0.1}),
        ({"flour": 3}, {"flour": 3}),
        (None, None),
        *(
            (wrong, None)
            for wrong in ("", "flour", "flour=x", "flour=1,flour=2", "salt=1", {"flour": "1"}, {"salt": 1})
        ),
    ],
)
def test_amounts_are_read_or_refused(given: Any, read: Any) -> None:
    """However they are given: from Python as a mapping or a text, from the command line as a text."""
    made = Dough(given)
    found = [
        text.startswith("parts must be flour=NUMBER,water=NUMBER or a part of it") for text in option.problems(made)
    ]
    assert found == ([True] if read is None and given is not None else [])
    assert read is None or made.parts == read


def command(
    request: Bread,
    *,
    twice: Annotated[bool, Option(help="Twice.", group="how")] = False,
    as_json: Annotated[bool, Option(help="JSON.", group="where", flags=("--json",))] = False,
) -> None:
    """Bakes."""
    got.append((request, twice))


got: list[Any] = []


def test_a_function_takes_the_fields() -> None:
    made = bake(Path("rye"), loaves=2, seeds="flax", set={"a": 1}, oven=7)
    assert made == Bread("rye", loaves=2, seeds=("flax",), set={"a": 1}, oven=7)
    assert call(bake, made) is made
    assert bake("rye", seeds=["flax", "poppy"]).seeds == ("flax", "poppy")
    nothing: Any = None
    assert bake("rye", seeds=nothing).seeds == (), "a program may hand on that there are none"
    wrong: dict[str, Any] = {"sald": 1, "lofs": 2}
    with pytest.raises(TypeError, match=r"bake\(\) got unknown options: lofs, sald"):
        bake("rye", **wrong)


def test_an_editor_and_help_show_every_option() -> None:
    found = inspect.signature(bake)
    assert list(found.parameters) == ["grain", "seeds", "set", "sliced", "loaves", "salt", "crust", "dark"] + [
        "oven",
        "quiet",
    ]
    assert str(found.parameters["loaves"]) == "loaves: int = 1"
    text = inspect.getdoc(bake)
    assert text is not None and text.startswith("Bakes.\n\nWhat is trained, and what counts:\n    grain: The grain.\n")
    assert "    crust: The crust: thin or thick. Default: thin.\n" in text and "Else, see dark=False." in text


def test_every_problem_is_a_sentence() -> None:
    wrong: dict[str, Any] = {"loaves": 0, "salt": 2, "crust": "thic"}
    assert list(option.problems(Bread("rye", **wrong))) == [
        "loaves must be a whole number in [1, 9], got 0 (--loaves).",
        "salt must be a number in [0, 1], got 2 (--salt).",
        "Unknown crust 'thic'. Did you mean 'thick'?",
    ]
    assert bake("rye", set={"sliced": True, "a": 1}) == Bread("rye", sliced=True, set={"a": 1})
    assert list(option.problems(Bread("rye", set="sliced=thin"))) == [
        "sliced must be true or false, got 'thin' (--set)."
    ]
    assert not list(option.problems(Bread("rye", loaves=9, salt=1, crust="thick")))
    for asked in ({"loaves": 10}, {"salt": float("nan")}, {"salt": -0.1}):
        assert len(list(option.problems(Bread("rye", **asked)))) == 1, asked


def test_a_value_of_another_type_is_refused_at_once() -> None:
    with pytest.raises(UserError) as told:
        bake(None, loaves="2", salt=False, seeds=3, dark="no")  # type: ignore[arg-type]
    assert told.value.problems == (
        "grain must be a text, got None (--grain).",
        "loaves must be a whole number in [1, 9], got '2' (--loaves).",
        "salt must be a number in [0, 1], got False (--salt).",
        "seeds must be a list of texts, got 3 (--seeds).",
        "dark must be true or false, got 'no' (--dark).",
    )
    for wrong in (True, 1.0):
        with pytest.raises(UserError, match="loaves must be a whole number"):
            bake("rye", loaves=wrong)  # type: ignore[arg-type]
    counted: Any = np.int64(3)
    found = bake("rye", loaves=counted)
    assert found == Bread("rye", loaves=3) and type(found.loaves) is int


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("rye", Bread("rye")),
        ("rye --loaves 3 --seeds flax --seeds poppy", Bread("rye", loaves=3, seeds=("flax", "poppy"))),
        ("rye --no-dark --set a=1 --salt 0.25", Bread("rye", dark=False, set=("a=1",), salt=0.25)),
        ("rye --dark --crust thick", Bread("rye", dark=True, crust="thick")),
        ("rye --set sliced=no --set a=1 --set sliced=Yes", Bread("rye", sliced=True, set=("a=1",))),
        ("rye --json", Bread("rye", quiet=True)),
    ],
)
def test_a_command_gets_the_same_request(typed: str, asked: Bread) -> None:
    got.clear()
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(cls=cli.Explained, epilog="bake rye")(cli._typed(command))
    done = CliRunner().invoke(app, [*typed.split(), "--twice"])
    assert done.exit_code == 0, done.output
    assert got == [(asked, True)]


@pytest.mark.parametrize(
    ("typed", "readied"),
    [
        ("search fedavg", [None]),
        ("search fedavg --dry-run", []),
        ("search fedavg --address 10.0.0.1:6379", ["10.0.0.1:6379"]),
        ("run fedavg", [None]),
        ("reproduce", []),
        ("report runs/one", []),
    ],
)
def test_ray_is_made_ready_for_what_runs_trials(
    typed: str, readied: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str | None] = []

    @contextlib.contextmanager
    def ahead(address: str | None) -> Iterator[None]:
        begun.append(address)
        yield
        begun.append("over")

    monkeypatch.setattr(cluster, "ahead", ahead)
    name = typed.partition(" ")[0]
    module = importlib.import_module(f"fedtune.commands.{name}")
    carried_out = functools.wraps(module.command)(lambda *args, **typed: begun.append("carried out"))
    monkeypatch.setattr(module, "command", carried_out)
    assert CliRunner().invoke(cli.app, typed.split()).exit_code == 0
    assert begun == [*readied, "carried out", *["over"] * len(readied)]


@pytest.mark.parametrize("name", ["search", "run", "auto", "reproduce", "resume", "extend", "attack", "report"])
def test_so_it_is_for_a_function_that_runs_trials(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def no_place() -> NoReturn:
        begun.append("ahead")
        raise UserError("There is no place for a folder.")

    fresh = types.SimpleNamespace(platform="linux", modules={})  # as in a process that has just begun
    monkeypatch.setattr(fork_server, "sys", fresh)
    monkeypatch.setattr(fork_server, "private_folder", no_place)
    with pytest.raises(UserError, match="none"):
        getattr(fedtune, name)("runs/none", **({"budget": "1m"} if name == "auto" else {}))
    assert begun == ([] if name in ("attack", "report") else ["ahead"])


COMMANDS = typer.main.get_command(cli.app)


@pytest.mark.parametrize("name", COMMANDS.list_commands(None))  # type: ignore[attr-defined]
def test_no_command_has_more_options_than_are_read(name: str) -> None:
    """At most 22, and two screens of 50 lines."""
    command = COMMANDS.get_command(None, name)  # type: ignore[attr-defined]
    options = [one.name for one in command.params if one.param_type_name == "option" and one.name != "help"]
    assert len(options) <= 22, options
    shown = CliRunner().invoke(cli.app, [name, "--help"], terminal_width=80)
    assert shown.exit_code == 0 and len(shown.output.splitlines()) <= 100


def test_every_function_of_a_request_has_all_its_options() -> None:
    functions = {name: getattr(fedtune, name) for name in fedtune.__all__}
    of_requests = {name: function for name, function in functions.items() if function is not inspect.unwrap(function)}
    assert {"search", "auto", "run", "reproduce", "resume", "extend", "export", "figure", "attack"} == {*of_requests}
    for name, function in of_requests.items():
        request = get_type_hints(inspect.unwrap(function))["request"]
        assert {*declared(request)} <= {*inspect.signature(function).parameters}, name
        assert all(f"    {one}: " in (function.__doc__ or "") for one in declared(request)), name


@pytest.mark.parametrize("name", ["search", "auto", "run"])
def test_what_is_said_of_a_table_may_stand_without_set(name: str) -> None:
    command = COMMANDS.get_command(None, name)  # type: ignore[attr-defined]
    typed = ["--budget", "9rounds"] if name == "auto" else ["fedavg"]
    given = command.make_context(name, [*typed, "--label", "y", "--set", "lr=1", "--client=--ward", "--resize", "8x6"])
    assert given.params["set"] == ["label=y", "lr=1", "client=--ward", "resize=8x6"]
    with pytest.raises(Exception, match="--label"):
        command.make_context(name, [*typed, "--label"])


@pytest.mark.parametrize(("typed", "said"), [("--no-confirm", "confirm=false"), ("--confirm", "confirm=true")])
def test_what_is_switched_by_set_may_stand_without_it(typed: str, said: str) -> None:
    command = COMMANDS.get_command(None, "search")  # type: ignore[attr-defined]
    assert command.make_context("search", ["fedavg", typed, "--rounds", "2"]).params["set"] == [said]
