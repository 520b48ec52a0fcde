"""fedtune methods, spaces, datasets and doctor: complete, and readable by people and programs."""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import fedtune
from fedtune.api import doctor
from fedtune.cli import main
from fedtune.console import tables
from search_spaces import presets
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from trainables import data, registry


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Cli = Callable[..., Done]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, command_line: Callable[..., tuple[int, str, str]]) -> Cli:
    """The command line in this process, 300 columns wide unless told otherwise, so that torch is imported once."""

    def call(*arguments: str, columns: int = 300) -> Done:
        monkeypatch.setenv("COLUMNS", str(columns or ""))
        return Done(*command_line(*arguments))

    return call


def test_methods_lists_every_method_and_its_spaces(cli: Cli) -> None:
    rows = fedtune.methods()
    assert [row["name"] for row in rows] == list(registry.methods())
    assert all(row["spaces"][0] == "default" for row in rows)
    assert json.loads(cli("methods", "--json").stdout) == rows
    shown = cli("methods").stdout
    assert all(row["name"] in shown and row["title"] in shown for row in rows)


@pytest.mark.parametrize("method", list(registry.methods()))
def test_a_methods_parameters_are_all_explained(method: str) -> None:
    rows = fedtune.methods(method)
    declared = registry.declared(method)
    assert {row["key"] for row in rows if row["option"] is None} == set(declared)
    for row in rows:
        parameter = declared[row["key"]]
        assert (row["default"], row["symbol"], row["doc"], row["source"]) == (
            parameter.default,
            parameter.symbol,
            parameter.doc,
            parameter.source,
        )
        assert row["bounds"] == parameter.must()
        assert (row["tuned"] is None) == (parameter.tune is False)


def test_dfrds_own_parameters_come_first(cli: Cli) -> None:
    rows = fedtune.methods("dfrd")
    keys = [row["key"] for row in rows]
    assert keys.index("lambda") < keys.index("lr") < keys.index("omega")
    shown = cli("methods", "dfrd", "--long").stdout
    for text in ("λ", "a number in [0, 0.99]", "DFRD Eq. 6", "one of all, disagree, targeted"):
        assert text in shown


def test_spaces_lists_every_preset(cli: Cli) -> None:
    rows = fedtune.spaces("dfrd")
    assert [row["name"] for row in rows] == presets.names("dfrd")
    alpha_lambda = next(row for row in rows if row["name"] == "alpha_lambda")
    assert alpha_lambda["cells"] == 30 and alpha_lambda["search"] == {
        "alpha": "[0.25, 1.5], grid of 6",
        "lambda": "[0.1, 0.9], grid of 5",
    }
    assert next(row for row in rows if row["name"] == "default")["cells"] is None
    assert json.loads(cli("spaces", "dfrd", "--json").stdout) == rows
    assert {row["method"] for row in fedtune.spaces()} == set(registry.methods())


def test_datasets_says_where_files_belong(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path))
    assert [row["name"] for row in fedtune.datasets()] == data.names()
    shown = cli("datasets", "cifar10").stdout
    assert data.describe("cifar10").files[0] in shown
    assert f"{tmp_path}/downloads" in shown and "FEDTUNE_DATA=FOLDER fedtune search fedavg --dataset cifar10" in shown
    shown = cli("datasets", "fmnist").stdout
    assert all(str(place) in shown for place in data.places(data.describe("fmnist")))
    assert "dataset-fashion-mnist" in shown and "make data" in shown and "MD5 of the unpacked files" in shown
    assert "there is nothing to download" in cli("datasets", "digits").stdout


def test_metrics_lists_every_metric_but_twins(cli: Cli) -> None:
    rows = fedtune.metrics()
    assert {row["name"] for row in rows} | {row["twin"] for row in rows if row["twin"]} == set(METRICS)
    assert json.loads(cli("metrics", "--json").stdout) == rows
    shown = cli("metrics", "--long").stdout
    assert all(row["name"] in shown and row["doc"] in shown for row in rows)


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (("methods",), fedtune.methods),
        (("methods", "dfrd"), lambda: fedtune.methods("dfrd")),
        (("spaces",), fedtune.spaces),
        (("spaces", "dfrd"), lambda: fedtune.spaces("dfrd")),
        (("metrics",), fedtune.metrics),
    ],
)
def test_at_80_columns_every_item_is_one_line(cli: Cli, arguments: tuple[str, ...], rows: Callable[[], list]) -> None:
    """Names are whole, nothing is wider than the terminal, hints below it included, and all of it stands in --long."""
    shown = cli(*arguments, columns=80).stdout.splitlines()
    assert max(map(len, shown)) <= 80
    names = [row.get("name") or row["key"] for row in rows()]
    titles = 6 if arguments == ("methods", "dfrd") else 3
    table, hints = shown[: len(names) + titles], shown[len(names) + titles :]
    assert hints[0].startswith(("`fedtune ", "Any of them", "Searches select")) and 2 <= len(hints) <= 4
    words = [line.split() for line in table]
    assert all(any(name in line[:2] for line in words) for name in names)
    long = cli(*arguments, "--long", columns=80).stdout.splitlines()
    assert all(any(name in line.split() for line in long) for name in names)
    assert max(map(len, long)) <= 80


def test_without_a_terminal_nothing_is_cut(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "…" in cli("methods", "dfrd", columns=80).stdout
    assert "…" not in cli("methods", "dfrd", columns=0).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("methods", "dfdr"), "Unknown method 'dfdr'. Did you mean 'dfrd'?"),
        (("spaces", "dfdr"), "Unknown method 'dfdr'. Did you mean 'dfrd'?"),
        (("datasets", "digts"), "Unknown data set 'digts'. Did you mean 'digits'?"),
    ],
)
def test_unknown_names(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    done = cli(*arguments)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", said)
    with pytest.raises(UserError):
        getattr(fedtune, arguments[0])(arguments[1])


def test_doctor_finds_this_installation_sound(cli: Cli) -> None:
    checks = json.loads(cli("doctor", "--json").stdout)
    assert {check["state"] for check in checks} <= {"ok", "note"}
    assert [check["name"] for check in checks][:3] == ["Python", "packages", "fedtune"]
    assert "Everything a search needs is there." in cli("doctor").stdout


@pytest.mark.parametrize(("flags", "names"), [({"amx_bf16", "avx512f"}, ["bfloat16"]), ({"avx512_bf16"}, [])])
def test_doctor_names_a_processor_that_multiplies_bfloat16(
    flags: set[str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.models.precision.processor_flags", lambda: frozenset(flags))
    assert [check.name for check in doctor._torch() if "--set precision=bf16" in check.text] == names


def test_doctor_names_a_cache_that_cannot_be_written(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("FEDTUNE_CACHE", str(blocked))
    done = cli("doctor")
    assert done.returncode == 1
    assert "cannot be written: Not a directory" in done.stdout and "1 problem must be mended" in done.stdout


def test_doctor_asks_for_all_that_an_installation_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["images"], *extras["dashboard"]]
    assert {re.split(r"[\[<>=]", line)[0] for line in declared} == {*doctor._needed(), *doctor.OPTIONAL}


def test_doctor_finds_a_tune_that_lacks_a_package_of_its_own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray alone is installed without what Tune needs."""
    monkeypatch.setitem(sys.modules, "ray.tune", None)
    done = cli("doctor")
    assert done.returncode == 1 and "1 problem must be mended" in done.stdout
    assert "Tune cannot be imported: import of ray.tune halted" in done.stdout


def test_a_package_that_cannot_be_imported_is_named_and_a_fault_of_ours_is_traced(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "doctor", lambda address: importlib.import_module("no_such_package"))
    done = cli("doctor")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "A package that fedtune needs cannot be imported: No module named 'no_such_package'. `fedtune doctor` looks at "
        "them all.\n"
    )
    monkeypatch.setattr(doctor, "doctor", lambda address: importlib.import_module("search_spaces.no_such_part"))
    with pytest.raises(ModuleNotFoundError):
        main()


def test_doctor_tells_of_clusters_that_no_search_joins(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", "/tmp")
    noted = tmp_path / "ray" / "ray_current_cluster"
    noted.parent.mkdir()
    noted.write_text("127.0.0.1:6379\x1b[2J")
    found = [check for check in json.loads(cli("doctor", "--json").stdout) if check["name"] in ("Ray", "cluster")]
    assert [check["state"] for check in found] == ["ok", "note", "note"]
    assert found[0]["text"] == "every search starts one of its own, for your account alone, with a folder in /tmp"
    assert found[1]["text"] == (
        "the environment variable RAY_ADDRESS names the Ray cluster 10.0.0.1:6379, which no search joins without "
        "--address"
    )
    assert found[2]["text"].startswith(f"{noted} names the Ray cluster 127.0.0.1:6379")
    assert "\x1b" not in cli("doctor").stdout
    noted.unlink()
    noted.symlink_to("/dev/zero")
    assert len([check for check in json.loads(cli("doctor", "--json").stdout) if check["name"] == "cluster"]) == 1


def test_the_list_of_commands_has_whole_sentences(cli: Cli) -> None:
    shown = cli("--help", columns=80).stdout
    assert "..." not in shown.partition("Commands:")[2] and max(map(len, shown.splitlines())) <= 80
    assert "Find the method, its hyper-parameters and the model, within a budget." in " ".join(shown.split())


def test_what_is_copied_stands_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal breaks a sentence between words; a command, and a path with blanks, are never broken. Where there is
    no terminal nothing is."""
    first, second = "fedtune resume 'runs/a run with a long name'", "fedtune report runs/another"
    sentence = "Some sentence of a few words, with `fedtune search dfrd` in it."
    monkeypatch.setenv("COLUMNS", "30")
    tables.say(sentence)
    tables.say("  Further words that are indented.")
    tables.say("Next:", first, second)
    tables.say("Next:", "short", "shorter")
    tables.say("An interval of 51.19 % to 62.72 %.")
    assert capsys.readouterr().out.splitlines() == [
        "Some sentence of a few words,",
        "with `fedtune search dfrd` in",
        "it.",
        "  Further words that are",
        "  indented.",
        "Next:",
        f"  {first}",
        f"  {second}",
        "Next: short   shorter",
        "An interval of 51.19 % to",
        "62.72 %.",
    ]
    monkeypatch.delenv("COLUMNS")
    tables.say(sentence)
    tables.say("Next:", first, second)
    assert capsys.readouterr().out.splitlines() == [sentence, f"Next: {first}   {second}"]
