"""Every declared reproduction: it reads, it matches what its paper printed, and its claims are the paper's."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.published import papers
from analysis.reproduce import declaration
from analysis.reproduce.declaration import Claim, Reproduction, declared, known
from fedtune.options import ReproduceRequest
from fedtune.planning.plan import plan
from fedtune.planning.reproduction import plan_reproduction
from search_spaces import presets
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from trainables import registry

#: Cells without a number: by reproduction, the row and the condition.
NOT_REACHED = {"dhf-table4-cifar100": ("Per-FedAvg", (0.45,))}
#: Reproductions of which the paper printed numbers.
NUMBERS = [name for name in known() if not (one := declared(name)).heatmap and one.published]


def printed(one: Reproduction, row: str, place: tuple[Any, ...], metric: str, dataset: str) -> list[papers.Published]:
    """The paper's lines for a cell, found without `analysis.reproduce.tables`."""
    chosen = next(r for r in one.rows if r.name == row)
    here = {**chosen.values, **dict(zip(one.columns, place, strict=True))}
    return [
        line
        for line in papers.published(one.published or "")
        if papers.same_dataset(line.dataset, dataset)
        and (one.table is None or line.table == one.table)
        and line.method == chosen.method
        and line.metric == chosen.metrics.get(metric, metric)
        and all(c.holds(here) for c in line.settings if c.key in here)
    ]


def test_every_published_number_is_of_a_reproduction() -> None:
    made = {
        line
        for name in NUMBERS
        for one in [declared(name)]
        for dataset, row, place in itertools.product(one.datasets, one.rows, one.places)
        for metric in one.printed_metrics
        for line in printed(one, row.name, place, metric, dataset)
    }
    made |= {line for name in known() if declared(name).heatmap for line in papers.published(declared(name).published)}
    missing = {line for name in papers.names() for line in papers.published(name)} - made
    assert not missing


@pytest.mark.parametrize("name", known())
def test_its_methods_spaces_and_parameters_exist(name: str) -> None:
    one = declared(name)
    for row in one.rows:
        known_parameters = registry.declared(row.method)
        space = presets.load(row.method, row.space, known_parameters)
        assert space.profiles.get("paper") and space.profiles.get("small")
        every = {**one.values, **row.values, **one.small_values}
        for dataset in one.datasets:
            every |= one.on(dataset, row.method)
        for key, value in every.items():
            known_parameters[key].convert(value, name)
        for place in one.places:
            for key, value in one.condition(row, place).items():
                known_parameters[key].convert(value, name)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_cell_has_one_number_of_the_paper_and_no_number_has_two(name: str) -> None:
    one = declared(name)
    for dataset in one.datasets:
        used = []
        for metric in one.metrics:
            for row, place in itertools.product(one.rows, one.places):
                lines = printed(one, row.name, place, metric, dataset)
                if (row.name, place) == NOT_REACHED.get(name):
                    assert not lines
                    continue
                assert len(lines) == 1, (row.name, place, metric, dataset)
                used.append((lines[0].method, lines[0].settings, lines[0].metric))
        assert len(set(used)) == len(used)


def pairs(one: Reproduction, claim: Claim) -> list[tuple[str, tuple[str, Any], tuple[str, Any]]]:
    """What a claim compares, spelled out."""
    found = set()
    for metric, place in itertools.product(claim.metrics, one.places):
        at = dict(zip(one.columns, place, strict=True))
        if all(at[key] in values for key, values in claim.where.items()):
            for front in claim.ahead.rows or [row.name for row in one.rows]:
                for back in claim.behind.rows or [front]:
                    ahead = front, tuple({**at, **claim.ahead.condition}.values())
                    behind = back, tuple({**at, **claim.behind.condition}.values())
                    found.add((metric, ahead, behind))
    return sorted(found, key=str)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_papers_own_numbers_have_the_sign_of_its_claims(name: str) -> None:
    """In more than half of the comparisons: the papers' sentences are not always true of every cell."""
    one = declared(name)
    dataset = next(iter(one.datasets))
    for claim in one.claims:
        good = []
        for metric, ahead, behind in pairs(one, claim):
            if NOT_REACHED.get(name) in (ahead, behind):
                continue
            left, right = (printed(one, *cell, metric, dataset)[0].mean for cell in (ahead, behind))
            good.append(left > right if METRICS[metric].direction == "maximize" else left < right)
        assert good and sum(good) > len(good) / 2, claim.says


@pytest.mark.parametrize("name", [n for n in known() if declared(n).common is not None])
def test_rows_that_vary_one_parameter_are_the_grid_of_their_space(name: str) -> None:
    """So that the figure and `fedtune search --space … --sampler grid` run the same points, written down once: all of
    them where the space varies one parameter at a time too, else the lines of the grid through the common point."""
    one = declared(name)
    ((method, space),) = {(row.method, row.space) for row in one.rows}
    found = presets.load(method, space, registry.declared(method))
    grid = found.grid_points()
    common = dict.fromkeys(grid[0], one.common)
    assert common in grid
    points = [common | one.condition(row, place) for row, place in one.cells]
    assert all(point in grid for point in points) and all(points.count(point) == 1 for point in points)
    alone = [point for point in grid if sum(value != one.common for value in point.values()) < 2]
    assert len(points) == len(alone) and (len(alone) == len(grid) or not found.one_at_a_time)


@pytest.mark.parametrize("name", [n for n in known() if declared(n).heatmap])
def test_a_heat_map_has_a_region_for_every_claim(name: str) -> None:
    one = declared(name)
    for dataset, claim in itertools.product(one.datasets, one.claims):
        assert claim.region
        for metric in claim.metrics:
            assert [line for line in one.lines(dataset) if line.region and line.metric == metric]


@pytest.mark.parametrize("name", known())
def test_it_can_be_planned(name: str, tmp_path: Path) -> None:
    """In the small form with all checks that come before a run, of every row; on the paper's data as far as these need
    not be there."""
    planned = plan_reproduction(ReproduceRequest(name, small=True, runs_dir=str(tmp_path)))
    for part in {part.row.name: part for part in planned.parts}.values():
        asked = part.request
        made = plan(asked)
        assert made.experiment.rounds == planned.reproduction.small_rounds
    for dataset in planned.reproduction.datasets:
        theirs = plan_reproduction(ReproduceRequest(name, dataset=dataset, runs_dir=str(tmp_path)))
        assert theirs.record.here == theirs.record.paper
    assert not any(tmp_path.iterdir())


def test_what_cannot_be_made_again_is_listed_with_its_reason() -> None:
    """Here, in the document, and nowhere else: no reproduction is of it."""
    page = " ".join(
        (Path(__file__).resolve().parents[3] / "docs/add-a-reproduction.md").read_text(encoding="utf-8").split()
    )
    sources = {declared(name).source for name in known()}
    for one in declaration.left_out():
        assert one.source not in sources
        assert f"| {one.source} | {one.why} |" in page


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(declaration, "FOLDER", tmp_path)
    return tmp_path


GOOD: dict[str, Any] = {
    "title": "One",
    "source": "A paper, Table 1",
    "published": "fedkf_tab12",
    "datasets": {"cifar10": {}},
    "seeds": 3,
    "metrics": ["amp"],
    "rows": [{"row": "A", "method": "fedavg"}, {"row": "B", "method": "fedkf"}],
    "small": {"rounds": 2, "seeds": 2},
    "seconds": 0.1,
    "claims": [{"says": "A is ahead of B", "source": "p. 1", "ahead": "A", "behind": "others"}],
}


def test_a_file_is_all_that_it_takes(folder: Path) -> None:
    (folder / "mine-table2.yaml").write_text(yaml.safe_dump(GOOD))
    (folder / "mine-table10.yaml").write_text(yaml.safe_dump({"like": "mine-table2", "seeds": 7}))
    assert known() == ["mine-table2", "mine-table10"]
    first, second = declared("mine-table2"), declared("mine-table10")
    assert (first.seeds, second.seeds, second.title) == (3, 7, "One")
    assert first.claims[0].behind.rows == ("B",)
    (folder / "mine-fig1.yaml").write_text(yaml.safe_dump({"like": "mine-table2", "published": None}))
    assert declared("mine-fig1").published is None


def test_what_a_paper_sets_for_one_method_is_no_other_methods(folder: Path) -> None:
    values = {"lr": 0.01, "fedkf": {"noise_dim": 100, "lr": 0.1}}
    (folder / "mine.yaml").write_text(yaml.safe_dump(GOOD | {"datasets": {"cifar10": values}}))
    one = declared("mine")
    assert one.on("cifar10", "fedavg") == {"lr": 0.01} and one.on("cifar10", "fedkf") == {"lr": 0.1, "noise_dim": 100}


#: A row that varies one parameter of its space.
ALONE: dict[str, Any] = {
    "common": 1,
    "space": "lambdas",
    "rows": [{"row": "A", "method": "fedmdcg", "varies": "lambda1"}],
    "claims": [{"says": "All are alike", "source": "p. 1", "within": 0.01}],
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": 0}, "seeds must be a whole number of at least 1, got 0"),
        ({"metrics": ["ampp"]}, "metrics must be a list of metrics"),
        ({"published": "none"}, "published must be one of"),
        ({"colums": {}}, "Unknown key 'colums'"),
        ({"datasets": {"cifar10": {"fedprx": {"mu": 1}}}}, r"Unknown method 'fedprx' \(.*, datasets: cifar10\)"),
        ({"claims": None}, "lacks 'claims'"),
        ({"grid": {"method": "dfrd", "space": "alpha_lambda"}}, "either rows or a grid"),
        ({"claims": [GOOD["claims"][0] | {"ahead": "C"}]}, "Unknown row 'C'"),
        ({"like": "nobody"}, "Unknown reproduction 'nobody'"),
        ({"figures": ["curve"]}, "figures must be a list of rounds, factor, box"),
        ({"claims": [GOOD["claims"][0] | {"read": "area"}]}, "claims must be a list of claims"),
        ({"claims": [GOOD["claims"][0] | {"reaches": "C"}]}, "Unknown row 'C'"),
        ({"claims": [GOOD["claims"][0] | {"wider": {"omega": 1}}]}, "`wider` and `than` must name the same columns"),
        ({"down": ["omga"]}, r"Unknown label 'omga' \(.*, down\)"),
        ({"columns": {"omega": [1]}, "by": ["omega"]}, "by must name dataset and omega once each, got omega"),
        ({"columns": ["omega"]}, "the spaces must vary omega over the same values for all rows"),
        ({"common": 1}, "must have `varies` in every row, `common`, and no columns, or neither"),
        ({"columns": ["omega"], "space": "nowhere"}, "Unknown space of fedavg 'nowhere'"),
        (ALONE | {"columns": {"omega": [1]}}, "must have `varies` in every row, `common`, and no columns, or neither"),
        (ALONE | {"space": "omega"}, r"fedmdcg/omega must list values \(`grid`\) of lambda1, which A varies"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(folder: Path, change: dict[str, Any], said: str) -> None:
    data = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    (folder / "mine.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(UserError, match=said):
        declared("mine")


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"Unknown reproduction 'dfrd-fg5'\. Did you mean 'dfrd-fig5'\?"):
        declared("dfrd-fg5")
