"""The box-plot figure: one box per parameter where they were varied one at a time, else one per value."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from analysis import style
from analysis.figures import box, parallel
from analysis.labels import Labels
from analysis.runs import Run, load_run
from search_spaces import run_folder
from tests.analysis import synthetic


@pytest.fixture
def line(root: Path, tmp_path: Path) -> Run:
    """The 30-cell grid of α × λ, said to go one at a time through α = 0.75, λ = 0.5."""
    folder = Path(shutil.copytree(root / "grid", tmp_path / "line"))
    space = json.loads((folder / run_folder.SPACE).read_text())
    for item, default in zip(space["search"], (0.75, 0.5), strict=True):
        item["declared"] = {"default": default}
    (folder / run_folder.SPACE).write_text(json.dumps(space | {"one_at_a_time": True}))
    return load_run(folder)


def test_one_box_per_parameter_holds_the_trials_that_vary_it_alone(line: Run) -> None:
    drawing = box.data([line])
    table = drawing.table
    assert [(panel.key, [b.label for b in panel.boxes]) for panel in drawing.panels] == [(None, ["alpha", "lambda"])]
    assert drawing.metrics == ["global_accuracy", "local_accuracy"]
    for key, other, default in (("alpha", "lambda", 0.5), ("lambda", "alpha", 0.75)):
        numbers = set(table.loc[table["box"] == key, "number"])
        assert numbers == {t.number for t in line.frozen if t.params[other] == default} and len(numbers) in (5, 6)
    dot = table[(table["metric"] == "local_accuracy") & (table["box"] == "alpha")].iloc[3]
    assert (
        dot["y"] == line.last(dot["number"], "local_accuracy")[dot["seed"]]
        and dot["value"] == line.parameters(dot["number"])["alpha"]
    )
    assert len(table) == 2 * 2 * (6 + 5), "two metrics, two seeds"


def test_global_and_local_accuracy_stand_side_by_side(line: Run) -> None:
    drawing = box.data([line])
    table = drawing.table
    figure = box.plot(drawing, Labels.of([line]))
    assert [trace.xaxis for trace in figure.data] == ["x", "x", "x2", "x2"]
    assert figure.layout.xaxis.domain[1] < figure.layout.xaxis2.domain[0]
    assert list(figure.layout.xaxis.categoryarray) == ["α", "λ"]
    first = table[(table["metric"] == "global_accuracy") & (table["box"] == "alpha")]
    assert list(figure.data[0].y) == list(100 * first["y"])


def test_otherwise_one_box_per_value(loaded: dict[str, Run]) -> None:
    run = loaded["wide"]
    drawing = box.data([run])
    table = drawing.table
    assert [panel.key for panel in drawing.panels] == ["merge_op"], "numbers sampled freely have no boxes"
    done = {t.number: t.params["merge_op"] for t in run.frozen if t.state.name == "COMPLETE"}
    assert dict(zip(table["number"], table["box"], strict=True)) == done
    labels = [b.label for b in drawing.panels[0].boxes]
    assert labels == [o for o in run.searched[-1]["options"] if o in done.values()], "in the order they were declared"


def test_the_virtual_model_stands_in_for_the_global_one(line: Run) -> None:
    for path in (line.path / run_folder.TRIALS).rglob(run_folder.ROUNDS):
        path.write_text(path.read_text().replace('"global_accuracy"', '"g_acc_virtual"'))
    assert box.data([load_run(line.path)]).metrics == ["g_acc_virtual", "local_accuracy"]


def test_what_cannot_be_drawn_says_why(loaded: dict[str, Run], line: Run) -> None:
    assert "one parameter at a time" in str(box.needs([loaded["other"]]))
    shutil.rmtree(line.path / run_folder.TRIALS)
    assert "has measured none yet" in str(box.needs([load_run(line.path)]))


def test_options_that_begin_alike_stay_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written at a box is cut, also beside the axis of `parallel`; hover texts and places are whole."""
    long = [f"an option with quite a name that ends in {end}" for end in ("one", "two")]
    monkeypatch.setitem(synthetic.SEARCH, "merge_op", synthetic.SEARCH["merge_op"] | {"options": long})
    points = [{"alpha": 0.3, "merge_op": option} for option in long]
    keys = ("alpha", "merge_op")
    run = load_run(synthetic.write(tmp_path / "run", keys=keys, points=points, cells=2, rounds=2, failures=False))
    figure = box.FIGURE.draw([run], Labels.of([run]))
    at = next(i for i, panel in enumerate(box.data([run]).panels) if panel.key == "merge_op") * 2 + 1
    axis = figure.layout["xaxis" if at == 1 else f"xaxis{at}"]
    drawn = [trace for trace in figure.data if trace.xaxis == style.axes(at)["xaxis"]]
    assert list(axis.tickvals) == long and [trace.x[0] for trace in drawn] == long
    assert all(len(tick) <= 20 and tick.endswith("…") for tick in axis.ticktext)
    assert [trace.text[0].endswith(option) for trace, option in zip(drawn, long, strict=True)] == [True, True]
    beside = [a for a in parallel.FIGURE.draw([run], Labels.of([run])).layout.annotations if a.hovertext]
    assert {a.hovertext for a in beside} == set(long) and all(a.text.endswith("…") for a in beside)
