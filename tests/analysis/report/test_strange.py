"""Pages of runs with hardly any trial, and of runs whose texts were written to do harm."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from plotly.offline import get_plotlyjs

from analysis.figures import figures
from analysis.labels import Labels
from analysis.report.build import document
from analysis.report.comparison import write_figure
from analysis.runs import Run, load_run
from analysis.tables.compare import compare
from search_spaces import run_folder
from tests.analysis import strange, synthetic
from tests.analysis.page_text import data_of, words
from tests.analysis.strange import EVIL
from tests.study_file import with_error

#: What a page must have no part of, as characters.
HARM = ("<img", "\x1b", "\x07", "\u202e")


def page(run: Run) -> str:
    return document([run]).replace(get_plotlyjs(), "")


def figures_of(html: str) -> list[str]:
    return re.findall(r'data-figure="([\w-]+)"', html)


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in plain data, with its key; names of groups are not drawn."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, key)
    elif isinstance(value, str) and key not in ("legendgroup", "raw"):
        yield key, value


def test_a_run_of_one_trial(tmp_path: Path) -> None:
    """It is the winner, with an interval from its seeds, and what one trial cannot show says why."""
    html = page(load_run(synthetic.write(tmp_path / "one", trials=1, failures=False)))
    said = words(html)
    assert (
        "Winner: trial 0" in said
        and "the values of 1 trial from" in said
        and "1 trials" not in said.split("The request")[0]
    )
    assert "curves" in figures_of(html) and "importance" not in figures_of(html)
    assert "Parameter importance" in said and "nan" not in said.split()
    assert len(data_of(html)["tables"]["trials"]["rows"]) == 1


def test_a_run_of_one_trial_with_one_seed_has_no_estimate(tmp_path: Path) -> None:
    said = words(page(load_run(synthetic.write(tmp_path / "one", trials=1, seeds=(0,), failures=False))))
    assert "There is no estimate yet: it needs two trials" in said and "±" not in said and "nan" not in said.split()


def test_a_run_before_its_first_trial(tmp_path: Path) -> None:
    html = page(load_run(synthetic.write(tmp_path / "empty", cells=0)))
    said = words(html)
    assert "There is no result" in said and "No trial has begun of the 12 that are planned." in said
    assert "fedtune resume" in said and "Trials 0 of 12" in said and "searched α, λ" in said
    assert figures_of(html) == [] and "figures not drawn" in said and "there is none yet" in said
    assert "Winner" not in said and "nan" not in said.split() and "fedtune export" not in said


@pytest.mark.parametrize("varied", [False, True], ids=["one condition", "several"])
def test_a_run_whose_trials_all_failed_says_why_and_what_to_do(varied: bool, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"keys": ("alpha", "merge_op"), "varied": ("merge_op",), "trials": 6} if varied else {}
    folder = strange.crashed(tmp_path / "it's broken", **changes)
    said, count = words(page(load_run(folder))), 6 if varied else 3
    assert "There is no result" in said and f"All {count} trials failed." in said
    assert f"RuntimeError: the data set has no images ({count} trials, the first is trial 0)" in said
    assert f"fedtune extend {shlex.quote(str(folder))} --trials {count}" in said, "it can be copied into a shell"
    assert "yet" not in said.split("What happened")[1].split("copy")[0] and "nan" not in said.split()


def test_a_grid_whose_trials_all_failed_cannot_be_extended(tmp_path: Path) -> None:
    said = words(page(load_run(strange.crashed(tmp_path / "grid", sampler="grid"))))
    assert "fedtune status" in said and "fedtune extend" not in said


def test_a_half_finished_run_has_a_winner_and_goes_on(tmp_path: Path) -> None:
    said = words(page(load_run(strange.half(tmp_path / "half"))))
    assert "Winner: trial" in said and "Trials 5 of 12" in said and "fedtune resume" in said


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Options, the data set, the error of a trial, a log, and the method's title are hostile."""
    monkeypatch.setitem(synthetic.SEARCH, "merge_op", synthetic.SEARCH["merge_op"] | {"options": ["mul", EVIL]})
    points = [
        {"alpha": a, "lr": r, "merge_op": m} for a in (0.3, 0.6, 0.9) for r in (0.01, 0.03) for m in ("mul", EVIL)
    ]
    folder = synthetic.write(
        tmp_path / "hostile",
        keys=("alpha", "lr", "merge_op"),
        points=points,
        cells=12,
        rounds=3,
        fixed={"dataset": EVIL},
    )
    provenance = folder / run_folder.PROVENANCE
    provenance.write_text(json.dumps(json.loads(provenance.read_text()) | {"method_title": EVIL, EVIL: EVIL}))
    (folder / run_folder.trial_folder(0) / run_folder.LOG).write_text(f"line\n{EVIL}\n")
    with_error(folder, f"RuntimeError: {EVIL}")
    return load_run(folder)


def test_hostile_texts_do_nothing_on_a_page(hostile: Run) -> None:
    html = page(hostile)
    assert [harm for harm in HARM if harm in html] == [] and html.count("</script>") == 3
    said = words(html)
    assert said.count("</script><img src=x onerror=alert(1)>&\"'\\u001b[31m\\u001b]0;t\\u0007\\u202e") >= 4
    assert "RuntimeError: </script>" in said, "what went wrong is still told"
    data = data_of(html)
    assert "\\u001b" in data["details"][""]["0"]["log"]
    for part in ("details", "tables"):
        drawn = [(key, text) for key, text in texts(data[part]) if any(harm in text for harm in HARM[1:])]
        assert drawn == [], part


@pytest.mark.parametrize("kind", ["searched", "varied", "failed"])
def test_a_hostile_symbol_title_folder_and_space_do_nothing(kind: str, tmp_path: Path) -> None:
    """The headings of the table of trials too, which a script writes."""
    folder = strange.hostile(tmp_path, varied=kind == "varied", failed=kind == "failed")
    html = page(load_run(folder))
    assert [harm for harm in HARM if harm in html] == [] and html.count("</script>") == 3
    drawn = [(key, text) for key, text in texts(data_of(html)["tables"]) if any(harm in text for harm in HARM[1:])]
    assert drawn == []


@pytest.mark.parametrize("kind", ["searched", "varied", "failed"])
def test_a_copied_command_reaches_a_hostile_folder(kind: str, tmp_path: Path) -> None:
    """As Bash reads what stands on the page."""
    folder = strange.hostile(tmp_path, varied=kind == "varied", failed=kind == "failed")
    commands = [unescape(line) for line in re.findall(r'class="command"><code>(.*?)</code>', page(load_run(folder)))]
    named = [command for command in commands if "fedtune" in command.split() and "img" in command]
    assert named
    for command in named:
        script = f"fedtune() {{ printf '%s\\0' \"$@\"; }}; {command}"
        read = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.split(b"\0")
        assert [word for word in read if b"img" in word and not Path(os.fsdecode(word)).is_dir()] == [], command


def test_a_hostile_data_set_is_text_in_the_figures_of_a_comparison(tmp_path: Path) -> None:
    both = compare([strange.hostile(tmp_path), strange.half(tmp_path / "half")])
    html = write_figure(both, tmp_path / "page.html").read_text()
    drawn = [text for _, text in texts(data_of(html)["figures"]) if any(harm in text for harm in HARM)]
    assert "Global accuracy" in html and drawn == []


@pytest.mark.parametrize("name", [name for name, figure in figures().items() if not figure.many])
def test_hostile_options_are_text_in_every_figure(name: str, hostile: Run) -> None:
    """Plotly reads a little HTML in names, ticks and hover texts: links, for one."""
    figure = figures()[name]
    for keys in (["alpha", "lr", "merge_op"], ["alpha", "merge_op"], ["merge_op"]):
        searched = [item for item in hostile.space["search"] if item["key"] in keys]
        record = dataclasses.replace(hostile.record, space={**hostile.space, "search": searched})
        run = dataclasses.replace(hostile, record=record)
        if figure.needs([run]) is None:
            drawn = json.loads(figure.draw([run], Labels.of([run])).to_json())
            assert [(key, text) for key, text in texts(drawn) if any(harm in text for harm in HARM)] == []
