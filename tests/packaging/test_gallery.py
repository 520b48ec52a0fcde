"""docs/gallery.md and scripts/gallery.py: every picture is made by the command above it, and small enough to keep."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import gallery
import numpy as np
import pytest
import typer
from PIL import Image

from analysis.reproduce.declaration import declared
from fedtune.cli import app
from search_spaces import presets
from search_spaces.space import Space
from trainables import registry

PAGE = gallery.PAGE.read_text(encoding="utf-8")
COMMANDS = gallery.commands(PAGE)
#: The part of issue lists and papers that the gallery is to show.
SHOWN = {
    "rounds",
    "factor",
    "pivot",
    "box",
    "images",
    "averages",
    "attack",
    "partition",
    "boundary",
    "features",
    "one_at_a_time",
    "heatmap",
}
#: Which figures and tables of the papers the page says that its pictures are like: by picture the claim in the page's
#: words, its kind, the metrics of curves and tables, and what stands along an axis or above columns, as the papers'
#: captions say.
CLAIMS: dict[str, tuple[str, str, set[str], set[str]]] = {
    "curves.png": ("Figs. 3 and 8 to 12 of DFRD", "rounds", {"global_accuracy"}, {"round"}),
    "fedkf_table5.png": ("Table V of FedKF", "pivot", {"amp", "fm", "wlp"}, {"omega"}),
    "fedkf_table6.png": ("Table VI of FedKF", "pivot", {"amp", "fm", "wlp"}, {"omega"}),
    "fedkf_table7.png": ("Table VII of FedKF", "pivot", {"amp", "fm", "wlp"}, {"omega"}),
    "fairness_rounds.png": ("Fig. 5 of FedKF", "rounds", {"amp", "fm", "wlp"}, {"round"}),
    "fedkf_table12.png": ("Table XII of FedKF", "pivot", {"amp", "fm", "wlp"}, set()),
    "cache_rounds.png": ("Fig. 6 of FedKF", "rounds", {"amp"}, {"round"}),
    "cache_clients.png": ("Fig. 7 of FedKF", "factor", {"amp"}, {"omega"}),
    "selection.png": ("Fig. 8 of FedKF", "factor", {"amp"}, {"active_clients"}),
    "fedmdcg_table1.png": ("Table 1 of FedMD-CG", "pivot", {"g_acc_virtual", "local_accuracy"}, {"omega"}),
    "datasets.png": ("Fig. 3 of FedMD-CG", "factor", {"local_accuracy"}, {"omega"}),
    "fedmdcg_table2.png": ("Table 2 of FedMD-CG", "pivot", {"psnr"}, set()),
    "fedmdcg_table3.png": ("Table 3 of FedMD-CG", "pivot", {"g_acc_virtual", "local_accuracy"}, {"omega"}),
    "box.png": ("Figs. 6 and 13 to 15 of FedMD-CG", "box", set(), set()),
    "dfrd_table1.png": ("Table 1 of DFRD", "pivot", {"global_accuracy"}, {"omega"}),
    "dfrd_table2.png": ("Table 2 of DFRD", "pivot", {"global_accuracy"}, {"rho"}),
    "dfrd_table3.png": ("Table 3 of DFRD", "pivot", {"global_accuracy"}, set()),
    "dfrd_table4.png": ("Table 4 of DFRD", "pivot", {"global_accuracy"}, set()),
    "dfrd_table5.png": ("Table 5 of DFRD", "pivot", {"global_accuracy"}, set()),
    "dfrd_table10.png": ("Table 10 of DFRD", "pivot", {"global_accuracy"}, set()),
    "dfrd_table11.png": ("Table 11 of DFRD", "pivot", {"global_accuracy"}, {"clients"}),
    "dfrd_table12.png": ("Table 12 of DFRD", "pivot", {"global_accuracy"}, {"active_clients"}),
    "heatmap.png": ("Fig. 5 of DFRD", "heatmap", {"global_accuracy", "local_accuracy"}, set()),
    "one_at_a_time.png": ("Fig. 4 of DFRD", "one_at_a_time", set(), set()),
    "dhf_table1.png": ("Table 1 of DHF", "pivot", {"p_acc"}, {"partition"}),
    "dhf_table2.png": ("Table 2 of DHF", "pivot", {"p_acc"}, {"partition"}),
    "dhf_table3.png": ("Table 3 of DHF", "pivot", {"p_acc_global"}, {"partition"}),
    "dhf_table4.png": ("Table 4 of DHF", "pivot", {"rounds_to_target"}, {"target"}),
    "gd_loss.png": ("Figs. 5 and 10 to 12 of FedMD-CG", "rounds", {"gd_loss"}, {"round"}),
    "images.png": ("Figs. 13 to 18 of DFRD", "images", set(), set()),
    "features.png": ("Fig. 2 of FedMD-CG", "features", set(), set()),
    "averages.png": ("Figs. 2 and 3 of FedKF", "averages", set(), set()),
    "attack.png": ("Fig. 4 of FedMD-CG", "attack", set(), set()),
    "partition.png": ("Figs. 6 and 7 of DFRD, Fig. 4 of FedKF", "partition", set(), set()),
    "boundary.png": ("Fig. 2 of DFRD", "boundary", set(), set()),
}
_CLAIM = re.compile(r"as in ((?:Figs?\. \d+(?:(?:,| and| to) \d+)*|Table [\dIVX]+) of [\w-]+)")


def sections() -> list[str]:
    return re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]


def options(command: gallery.Command, name: str) -> list[str]:
    return [value for option, value in zip(command.words, command.words[1:], strict=False) if option == name]


def space_of(command: gallery.Command) -> Space:
    method, (name,) = command.words[1], options(command, "--space")
    return presets.load(method, name, registry.declared(method))


def drawn_of(command: gallery.Command) -> tuple[str, set[str], set[str]]:
    """The kind of what a command draws and, of curves and of a paper's table, its metrics and its conditions."""
    (kind,) = options(command, "--only")
    runs = command.draws
    made_again = [declared(made.words[1]) for made in COMMANDS if made.makes in runs and made.words[0] == "reproduce"]
    if made_again:
        metrics = set(options(command, "--metric")) or {metric for one in made_again for metric in one.metrics}
        return kind, metrics, {"round"} if kind == "rounds" else {key for one in made_again for key in one.columns}
    spaces = [space_of(made) for made in COMMANDS if made.makes in runs and options(made, "--space")]
    if kind == "rounds":
        return kind, set(options(command, "--metric")), {"round"}
    if kind == "factor":
        asked = options(command, "--metric") or [space.metric[0].removeprefix("val_") for space in spaces]
        return kind, set(asked), {key for space in spaces for key in space.vary}
    return kind, set(), set()


def test_what_is_said_to_be_as_in_a_paper_is_declared() -> None:
    """A sentence of the page that names a figure or table that it is like stands in `CLAIMS`, and no other does."""
    found: dict[str | None, str] = {}
    for section in sections():
        (drawn,) = (command for command in gallery.commands(section) if command.picture)
        words = " ".join(section.split())
        said = _CLAIM.findall(words)
        assert len(said) == len(re.findall(r"\bFigs?\.|as in Tables? ", words)), (
            f"{drawn.picture}: it is named otherwise"
        )
        if said:
            found[drawn.picture] = ", ".join(said)
    assert found == {picture: claim[0] for picture, claim in CLAIMS.items()}


@pytest.mark.parametrize("picture", CLAIMS)
def test_a_picture_that_is_as_in_a_paper_has_its_kind_metric_and_axis(picture: str) -> None:
    (command,) = (command for command in COMMANDS if command.picture == picture)
    assert drawn_of(command) == CLAIMS[picture][1:]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.makes or command.picture or command.words[1])
def test_every_command_is_one_that_the_program_takes(command: gallery.Command) -> None:
    group = typer.main.get_command(app)
    sub = group.get_command(None, command.words[0])  # type: ignore[attr-defined]
    taken = sub.make_context(command.words[0], list(command.words[1:])).params
    if command.words[0] in ("search", "run"):
        assert taken.get("space", "default") in presets.names(command.words[1])
        declared = registry.declared(command.words[1])
        assert all(pair.partition("=")[0] in declared for pair in taken["set_"] or ())


def test_every_run_is_made_before_it_is_drawn() -> None:
    made: set[str] = set()
    for command in COMMANDS:
        if command.makes is not None:
            assert command.makes not in made, f"two commands make {command.makes}"
            made.add(command.makes)
        assert command.draws <= made, f"{command.line} comes too early"


def test_every_picture_stands_below_its_command() -> None:
    shown = set()
    for section in sections():
        (drawn,) = (command for command in gallery.commands(section) if command.picture)
        ((words, picture),) = re.findall(r"^!\[([^\]]+)\]\(gallery/([\w.]+)\)$", section, re.MULTILINE)
        assert picture == drawn.picture and words
        shown.add(drawn.words[drawn.words.index("--only") + 1])
    assert shown == SHOWN


def test_pictures_are_there_and_small() -> None:
    drawn = {command.picture for command in COMMANDS if command.picture}
    assert {path.name for path in gallery.PICTURES.iterdir()} == drawn
    assert sum(path.stat().st_size for path in gallery.PICTURES.iterdir()) < gallery.LARGEST
    for path in gallery.PICTURES.iterdir():
        assert Image.open(path).size[0] >= 1000


def test_a_run_is_made_once_resumed_and_made_anew_when_its_command_changes(tmp_path: Path) -> None:
    command = gallery.Command(("run", "fedavg", "--name", "one", "--rounds", "2"))
    folder = tmp_path / "runs" / "one"
    assert gallery.ready(command, tmp_path) == command.words
    folder.mkdir(parents=True)
    (folder / "something").touch()
    assert gallery.ready(command, tmp_path) == ("resume", "runs/one") and (folder / "something").exists()
    changed = gallery.Command(("run", "fedavg", "--name", "one", "--rounds", "3"))
    assert gallery.ready(changed, tmp_path) == changed.words and not folder.exists()
    table = gallery.Command(("reproduce", "dfrd-table3", "--small", "--dataset", "rotated_digits"))
    assert table.makes == "dfrd-table3-small-rotated_digits" and gallery.ready(table, tmp_path) == table.words
    (tmp_path / "runs" / table.makes).mkdir()
    assert gallery.ready(table, tmp_path) == table.words, "the same command goes on"
    assert (tmp_path / "runs" / table.makes).exists()
    drawing = gallery.Command(("report", "runs/one", "--only", "images", "-o", "x.png"))
    assert gallery.ready(drawing, tmp_path) == drawing.words


def test_some_pictures_alone_take_the_runs_they_need() -> None:
    lines = [command.line for command in gallery.chosen(COMMANDS, ["images", "attack"])]
    assert sum(line.startswith("fedtune attack") for line in lines) == 6
    assert sum(line.startswith("fedtune run") for line in lines) == 7 and len(lines) == 15
    assert gallery.chosen(COMMANDS, []) == COMMANDS


def test_only_commands_of_fedtune_are_run() -> None:
    assert [command.words for command in gallery.commands("```sh\nfedtune run a \\\n    --name b\n```\n")] == [
        tuple(shlex.split("run a --name b"))
    ]
    with pytest.raises(SystemExit, match="not one of fedtune"):
        gallery.commands("```sh\nrm -rf runs\n```\n")


def test_a_stored_picture_looks_the_same() -> None:
    levels = np.repeat(np.arange(0, 256, 4, dtype=np.uint8)[:, None, None], 8, axis=1).repeat(3, axis=2)
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, format="PNG")
    kept = np.asarray(Image.open(io.BytesIO(gallery.stored(buffer.getvalue()))).convert("RGB"))
    assert np.abs(kept.astype(int) - levels).max() <= 4
