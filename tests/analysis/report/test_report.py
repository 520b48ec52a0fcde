"""The report as a file, as a page in a browser, and the commands around it."""

from __future__ import annotations

import base64
import csv
import dataclasses
import hashlib
import html
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from plotly.offline import get_plotlyjs
from typer.testing import CliRunner

import fedtune
from analysis.figures import figures
from analysis.labels import Labels
from analysis.next_commands import export_command
from analysis.report import build
from analysis.report.anonymous import without_places
from analysis.report.build import document
from analysis.report.files import write_tables
from analysis.report.page import script_json, write
from analysis.report.summary import WITHOUT_OMEGA, facts
from analysis.runs import Run, load_run
from analysis.tables.compare import compare
from fedtune.cli import app
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests import study_file
from tests.analysis import synthetic
from tests.analysis.browser import BROWSER, Shown
from tests.analysis.page_text import data_of
from trainables.data.partition import RECIPES, partition


@pytest.fixture(scope="session")
def page(loaded: dict[str, Run]) -> Callable[[str], str]:
    """A run's report without the 4.8 MB of plotly.js."""
    made: dict[str, str] = {}

    def one(name: str) -> str:
        if name not in made:
            made[name] = document([loaded[name]]).replace(get_plotlyjs(), "")
        return made[name]

    return one


def test_it_is_written_into_the_run_in_one_piece(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "tpe", tmp_path / "tpe"))
    path = build(folder)
    assert path == folder.resolve() / run_folder.REPORT
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.rstrip().endswith("</html>") and text.count(get_plotlyjs()) == 1
    assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == []


def test_it_is_headed_by_the_method_as_people_write_it(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "tpe", tmp_path / "tpe"))
    provenance = json.loads((folder / run_folder.PROVENANCE).read_text())
    (folder / run_folder.PROVENANCE).write_text(json.dumps(provenance | {"method_title": "FedMD-CG <1>"}))
    assert '<h1 id="run">FedMD-CG &lt;1&gt;: ' in document([load_run(folder)])


@pytest.mark.parametrize("name", ["grid", "tpe", "wide", "other", "final", "pareto"])
def test_nothing_is_fetched(name: str, page: Callable[[str], str]) -> None:
    html = page(name)
    assert "http:" not in html and "https:" not in html and "//cdn" not in html
    assert (
        not re.search(r"<(link|img|iframe|script)\b[^>]*\b(src|href)=", html)
        and "@import" not in html
        and "url(" not in html
    )


def test_the_spaces_own_figures_come_first_and_all_that_can_be_drawn_follow(
    page: Callable[[str], str], loaded: dict[str, Run]
) -> None:
    run = loaded["tpe"]
    order = re.findall(r'data-figure="(\w+)"', page("tpe"))
    assert order[:2] == ["surface", "heatmap"], "the first card has what the search knows of its space"
    assert set(order) == {n for n, f in figures().items() if not f.many and f.needs([run]) is None}
    # Another order where the space asks for it.
    asked = {**run.space, "figures": ["partition", "history"]}
    other = dataclasses.replace(run, record=dataclasses.replace(run.record, space=asked))
    assert re.findall(r'data-figure="(\w+)"', document([other]))[:3] == ["surface", "partition", "history"]


def test_of_many_parameters_importance_comes_first(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "many", trials=30, keys=(*synthetic.many(15), "lr"))
    text = document([load_run(folder)])
    assert re.findall(r'data-figure="(\w+)"', text)[:3] == ["importance", "surface", "heatmap"]
    assert text.index('data-figure="importance"') < text.index("<dt>Next</dt>"), "it stands on the first screen"


def test_it_tells_the_best_configuration_and_how_to_run_it(page: Callable[[str], str], loaded: dict[str, Run]) -> None:
    html, run = page("tpe"), loaded["tpe"]
    assert f"Best configuration: trial {run.best}" in html
    assert "fedtune export" in html and "fedtune run best.yaml --seeds 5" in html
    assert "selected on" in html and "Global accuracy, test" in html
    assert "0.25 to 1.5" in html  # the interval, as the sampler was not the grid
    assert "1 trial is unfinished" in html and "fedtune resume" in html


def test_it_tells_that_the_search_was_given_more_rounds(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "tpe", tmp_path / "tpe"))
    path = folder / run_folder.EXPERIMENT
    content = yaml.safe_load(path.read_text())
    assert "before the search was extended" not in document([load_run(folder)])
    path.write_text(yaml.safe_dump(content | {"rounds": 12, "rounds_before": [6, 9]}))
    html = document([load_run(folder)])
    assert "rounds run in all; 6, then 9 before the search was extended" in html
    assert (
        "It was extended from 9 to 12 rounds: trials that had ended after 9 go on, and have no final value until they "
        "have run all rounds."
    ) in html


def test_the_command_is_safe_to_paste(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "other", tmp_path / "my run; rm -rf x"))
    assert f"'{folder.resolve()}'" in export_command(load_run(folder).shown)


def test_failures_are_listed_with_their_reasons(page: Callable[[str], str]) -> None:
    html = page("tpe")
    assert (
        "Failures (2)" in html
        and "train_loss stopped being finite in round 2 (seed 1)." in html
        and "trials/0009/log.txt" in html
    )
    assert "Failures" not in page("grid")


def test_figures_that_cannot_be_drawn_say_why(page: Callable[[str], str]) -> None:
    assert "The heat map needs two searched parameters; this run searched only lr." in page("other")


def test_before_the_first_round_it_says_how_many_seeds_a_trial_gets(tmp_path: Path) -> None:
    run = load_run(synthetic.write(tmp_path / "begun", seeds=(0, 1, 2), cells=0))
    text = re.sub(r"<[^>]*>", " ", facts(run, Labels.of([run], markup=False)))
    assert "Seeds per trial  3 " in text and "Rounds per trial  9 " in text


def test_a_table_is_called_by_its_file_and_omega_stands_where_it_counts(tmp_path: Path) -> None:
    plain = {"dataset": f"{tmp_path}/people.csv?label=y&client=hospital", "partition": "natural", "omega": 0.1}
    run = load_run(synthetic.write(tmp_path / "own", trials=4, failures=False, fixed=plain))
    text = html.unescape(re.sub(r"<[^>]*>", " ", facts(run, Labels.of([run], markup=False))))
    assert "Data set  people.csv label y, client hospital · clients 10" in text and "ω" not in text

    def dealt(recipe: str, omega: float) -> list[list[int]]:
        rng = np.random.default_rng(0)
        found = partition(recipe, np.arange(400) % 4, 4, classes=4, rng=rng, omega=omega)
        return [sorted(part.tolist()) for part in found]

    ignored = {recipe for recipe in RECIPES if dealt(recipe, 0.1) == dealt(recipe, 100.0)}
    assert ignored | {"natural"} == set(WITHOUT_OMEGA)


def test_selection_on_test_data_is_said(tmp_path: Path, page: Callable[[str], str]) -> None:
    run = load_run(synthetic.write(tmp_path / "paper", trials=4, metric=("global_accuracy",), failures=False))
    words = "Trials were selected on test data"
    assert words in document([run]) and words not in page("tpe") and words not in page("final")


def test_a_final_run_shows_mean_and_spread_over_its_seeds(page: Callable[[str], str], loaded: dict[str, Run]) -> None:
    html = page("final")
    assert (
        "3 fresh seeds" in html
        and "mean of the seeds" in html
        and "Best configuration" not in html
        and "fedtune export" not in html
    )
    row = compare([loaded["final"].path, loaded["final"].path]).entries[0]
    assert row.summary.shown(100) in html


def test_user_text_is_harmless(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "tpe", tmp_path / "<script>alert(1)<"))
    evil = "</script><img src=x onerror=alert(1)>&\"'"
    space = json.loads((folder / run_folder.SPACE).read_text()) | {"title": evil, "source": evil}
    space["search"][0] |= {"doc": evil, "symbol": evil}
    (folder / run_folder.SPACE).write_text(json.dumps(space))
    (folder / run_folder.PROVENANCE).write_text(json.dumps({evil: evil, "command": [evil]}))
    html = document([load_run(folder)])
    bare = html.replace(get_plotlyjs(), "")
    assert "<script>alert" not in bare and "<img" not in bare and bare.count("</script>") == 3
    assert "&lt;script&gt;alert(1)&lt;" in bare
    figures_of = data_of(bare)["figures"]
    assert "<img" not in json.dumps(figures_of)


def test_json_cannot_end_its_script() -> None:
    assert "<" not in script_json({"a": "</script>"}) and json.loads(script_json({"a": "</script>\u2028&"})) == {
        "a": "</script>\u2028&"
    }


def test_the_trials_table_has_every_trial_with_raw_values(page: Callable[[str], str], loaded: dict[str, Run]) -> None:
    table = data_of(page("tpe"))["tables"]["trials"]
    assert len(table["rows"]) == 24 and sum(r["best"] for r in table["rows"]) == 1
    titles = [c["title"] for c in table["columns"]]
    alpha = titles.index("α")
    assert [r["raw"][alpha] for r in table["rows"]] == [t.params["alpha"] for t in loaded["tpe"].frozen]
    assert table["columns"][table["sort"]]["title"] == "Global accuracy, validation [%]" and table["up"] is False


def test_abbreviations_and_traffic_are_explained_where_they_stand(
    page: Callable[[str], str], loaded: dict[str, Run]
) -> None:
    text = page("tpe")
    for words in ("Average model performance", "Fairness: variance over clients", "Worst local performance"):
        assert words in text
    assert "ω 0.1 (how evenly classes are spread over clients; small is uneven)" in text
    assert "Sent in all rounds of one seed: 10.8 MB by the clients, 10.8 MB by the server." in text  # 9 · 1.2 MB


def test_several_runs_share_one_page(loaded: dict[str, Run]) -> None:
    html = document([loaded["tpe"], loaded["other"]])
    assert html.count(get_plotlyjs()) == 1
    bare = html.replace(get_plotlyjs(), "")
    ids = re.findall(r'\bid="([^"]+)"', bare)
    assert len(ids) == len(set(ids)) and 'data-figure="rounds"' in bare and 'data-figure="r2-curves"' in bare


def test_a_place_that_cannot_be_written_is_told_and_left_untouched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be written"):
        write(tmp_path / "file" / "report.html", "page")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_csv_and_latex_tables(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "tpe", tmp_path / "tpe"))
    (path,) = write_tables(folder, "csv")
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert (
        len(rows) == 24
        and float(rows[0]["alpha"]) == load_run(folder).frozen[0].params["alpha"]
        and rows[9]["global_accuracy [fraction]"] == ""
    )
    seeds = list(load_run(folder).last(0, "global_accuracy").values())
    assert float(rows[0]["global_accuracy [fraction]"]) == pytest.approx(np.mean(seeds)), "a file holds fractions"
    assert float(rows[0]["global_accuracy:std [fraction]"]) == pytest.approx(np.std(seeds, ddof=1))
    (path,) = write_tables(folder, "latex")
    text = path.read_text()
    assert (
        r"\toprule" in text and r"$\lambda$" in text and "λ" not in text.split(r"\begin")[1] and text.count(r"\\") == 25
    )


@pytest.mark.parametrize("command", [["report"], ["compare"]])
def test_commands_tell_what_is_no_run(command: list[str], tmp_path: Path) -> None:
    found = CliRunner().invoke(app, [*command, str(tmp_path / "nothing")])
    assert isinstance(found.exception, UserError) and "is not a directory" in str(found.exception)


def test_the_report_command_names_what_it_wrote(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "other", tmp_path / "other"))
    found = CliRunner().invoke(app, ["report", str(folder), "-o", str(tmp_path / "page.html"), "--csv", "--json"])
    assert found.exit_code == 0 and json.loads(found.stdout) == {
        "report": str(tmp_path / "page.html"),
        "files": [str(folder.resolve() / "trials.csv")],
    }
    assert not (folder / run_folder.REPORT).exists()


def test_an_unknown_image_format_is_told_before_anything_is_written(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "other", tmp_path / "other"))
    found = CliRunner().invoke(app, ["report", str(folder), "--images", "bmp"])
    assert (
        "--images must be one of png, svg, pdf, got 'bmp'" in str(found.exception)
        and not (folder / run_folder.REPORT).exists()
    )


def test_a_page_does_not_take_the_name_of_another_kind_of_file(root: Path, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["report", str(root / "other"), "-o", str(tmp_path / "page.pdf")])
    assert re.search(r"output must be a file ending in \.html or \.htm, got '.*page\.pdf' \(-o\)", str(found.exception))
    assert not [*tmp_path.iterdir()]


def test_the_functions_of_the_package(root: Path, tmp_path: Path) -> None:
    assert fedtune.report(root / "other", tmp_path / "page.html").is_file()
    assert fedtune.compare([root / "other", root / "tpe"]).metrics == ["global_accuracy", "local_accuracy"]


class TestInABrowser:
    pytestmark = BROWSER

    def test_it_draws_every_figure_and_the_table_without_an_error(
        self, root: Path, tmp_path: Path, loaded: dict[str, Run], browser: Shown
    ) -> None:
        path = build([root / "tpe", root / "other"], tmp_path / "page.html")
        plots = len(re.findall(r"data-figure=", path.read_text().split('id="page-data"')[0]))
        browser.open(path)
        browser.until(f"document.querySelectorAll('.js-plotly-plot:has(.main-svg)').length === {plots}")
        dom = browser.value("document.documentElement.outerHTML")
        assert browser.value("JSON.stringify(problems)") == "[]" and len(dom) > 1e5
        assert plots == 1 + sum(
            f.needs([loaded[n]]) is None for n in ("tpe", "other") for f in figures().values() if not f.many
        )
        assert len(re.findall(r'class="plot [\w ]*js-plotly-plot"', dom)) == plots
        assert re.findall(r'role="status">([^<]+)<', dom) == ["1–24 of 24", "1–8 of 8"]
        assert dom.count('aria-sort="descending"') == 2

    def test_it_refuses_what_is_not_of_the_page(self, root: Path, tmp_path: Path, browser: Shown) -> None:
        """As if something had got past the escaping: each of its parts is refused."""
        injected = {
            "script-src-elem inline": "<script>document.body.dataset.hacked = 1</script>",
            "script-src-attr inline": '<img src="x" onerror="document.body.dataset.hacked = 1">',
            "img-src https://example.com": '<img src="https://example.com/x.png">',
            "object-src data": '<iframe srcdoc="<p>inside</p>"></iframe><object data="data:text/html,x"></object>',
        }
        path = build(root / "other", tmp_path / "page.html")
        text = path.read_text()
        main = '<main id="main" class="wide">'
        path.write_text(text.replace(main, main + "".join(injected.values()), 1))
        browser.open(path)
        for refused in injected:
            browser.until(f"problems.some((problem) => problem.startsWith('{refused}'))", 60)
        assert browser.value("document.body.dataset.hacked") is None


def test_every_page_has_a_policy(page: Callable[[str], str]) -> None:
    head = page("tpe").split("</head>")[0]
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', head)
    assert policy is not None and head.index("Content-Security-Policy") < head.index("<style>")
    assert "default-src 'none'" in policy[1] and "unsafe-inline" not in policy[1].split("script-src")[1].split(";")[0]
    assert "unsafe-eval" not in policy[1]
    expected = {
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in (get_plotlyjs(), page("tpe").rsplit("<script>", 1)[1].split("</script>")[0])
    }
    assert set(re.findall(r"'sha256-([^']+)'", policy[1])) == expected


def private(folder: Path) -> dict[str, str]:
    """Writes into a run's record what an anonymous page must not show; what that is, by what it is."""
    home = "/home/someone/secret"
    found = {
        "host": "node-17.lab.example",
        "system": "Linux-6.1.0-42-lab-x86_64",
        "word": "--name",
        "folder": "someone",
    }
    provenance = json.loads((folder / run_folder.PROVENANCE).read_text())
    machine = {"host": found["host"], "system": found["system"], "processor": "A Processor 1", "cores": 2}
    provenance |= {
        "machine": machine,
        "command": ["fedtune", "search", "dfrd", "--name", "x", "--data-dir", home],
        "continued": [{"machine": machine}],
        "taken": [{"run": "old", "trials": [], "machine": machine}],
    }
    (folder / run_folder.PROVENANCE).write_text(json.dumps(provenance))
    experiment = yaml.safe_load((folder / run_folder.EXPERIMENT).read_text())
    experiment |= {"data_dir": home, "address": f"{found['host']}:6379", "source": {"from": f"{home}/best.yaml"}}
    experiment["values"] = {**(experiment.get("values") or {}), "dataset": f"{home}/mine.npz"}
    (folder / run_folder.EXPERIMENT).write_text(yaml.safe_dump(experiment))
    for path in folder.glob(f"trials/*/{run_folder.CONFIG}"):
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"dataset": f"{home}/mine.npz"}))
    study_file.with_error(folder, f"FileNotFoundError: '{home}/mine.npz' is gone")
    return found | {"path": str(folder.parent)}


@pytest.mark.parametrize("runs", [("tpe",), ("tpe", "other")], ids=len)
def test_an_anonymous_page_shows_no_host_kernel_command_or_path(
    root: Path, tmp_path: Path, runs: tuple[str, ...]
) -> None:
    copies = [shutil.copytree(root / name, tmp_path / "user" / name) for name in runs]
    secrets = [private(copy) for copy in copies]

    def shown(*options: str) -> str:
        done = CliRunner().invoke(app, ["report", *map(str, copies), "-o", str(tmp_path / "page.html"), *options])
        assert done.exit_code == 0, done.output
        return html.unescape((tmp_path / "page.html").read_text()).replace(get_plotlyjs(), "")

    named = shown()
    for secret in secrets:
        assert all(text in named for text in secret.values()), "the test would show nothing"
        page = shown("--anonymous")
        assert [what for what, text in secret.items() if text in page] == []
    assert "mine.npz" in page and "A Processor 1" in page and "fedtune export tpe" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/data.npz", "data.npz"),
        ("'~/data/' is gone", "'data' is gone"),
        ("path:/srv/a b", "path:a b"),
        ("file:///srv/a", "a"),
        ("C:\\Users\\me\\x.npz", "x.npz"),
        ("https://arxiv.org/abs/2309.13546", "https://arxiv.org/abs/2309.13546"),
        ("mean / std, 1/2, and/or, ./x, a\\b", "mean / std, 1/2, and/or, ./x, a\\b"),
    ],
)
def test_of_a_path_the_last_part_is_shown(text: str, shown: str) -> None:
    assert without_places({"a": [text], "host": "h"}) == {"a": [shown]}
