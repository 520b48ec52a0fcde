"""What a search with --grace auto and --audit tells: the result, `status`, their JSON, and the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.report.build import document
from analysis.report.trials import trials
from analysis.runs import Run
from analysis.stopping import audit_sentences, grace_sentences
from fedtune.api.search import result_of
from fedtune.api.status import status
from fedtune.commands import _output, _status_output
from fedtune.trials.driver import Outcome
from tests.fedtune.played import searched


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "told"
    return searched(folder, scheduler="asha", trials=24, grace="auto", audit=0.5)


def told(run: Run) -> list[str]:
    assert run.audit is not None and run.grace is not None
    return [*grace_sentences(run.grace), *audit_sentences(run.audit, lambda value: f"{100 * value:.2f} %")]


def test_the_run_reads_both(run: Run) -> None:
    assert run.audit is not None and run.grace is not None
    marked = [t.number for t in run.frozen if "audited" in t.user_attrs]
    assert run.audit.trials == tuple(marked) and marked
    assert run.audit.stopped == (run.trials["state"] == "PRUNED").sum() > 0
    assert run.grace.round is not None and run.grace.trials >= 6
    assert run.trials.set_index("number")["audited"].notna().sum() == len(marked)


def test_a_search_without_them_says_nothing(tmp_path: Path) -> None:
    plain = searched(tmp_path / "plain", scheduler="asha", trials=8)
    assert plain.audit is None and plain.grace is None
    found = status(plain.path)
    assert found["audit"] is None and found["grace"] is None
    assert "Early stopping" not in document([plain])
    assert "audit" not in [column.key for column in trials(plain).columns]


def test_a_result_tells_them(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = result_of(run.path, Outcome(finished=True))
    _output.result(found, as_json=False)
    printed = " ".join(capsys.readouterr().out.split())  # a terminal breaks lines
    assert all(line in printed for line in told(run))
    _output.result(found, as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert data["audit"]["trials"] == list(run.audit.trials)  # type: ignore[union-attr]
    assert data["grace"]["round"] == run.grace.round  # type: ignore[union-attr]


def test_status_tells_them(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = status(run.path)
    _status_output.status(found, as_json=False)
    printed = " ".join(capsys.readouterr().out.split())  # a terminal breaks lines
    assert all(line in printed for line in told(run))
    _status_output.status(found, as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert (data["audit"]["winner"], data["audit"]["regret"]) == (run.audit.winner, run.audit.regret)  # type: ignore[union-attr]
    first = data["grace"]["correlations"][0]
    assert first["round"] == 1 and -1 <= first["low"] <= first["rho"] <= first["high"] <= 1


def test_the_report_tells_them(run: Run) -> None:
    page = document([run])
    assert "Early stopping" in page and "Grace: " in page and "Audit of early stopping: " in page
    assert "rank correlation with the end, 90 % interval" in page
    rows = {row["trial"]: row["audit"] for row in trials(run).rows}
    marked = {t.number: t.user_attrs["audited"] for t in run.frozen if "audited" in t.user_attrs}
    assert {n: text for n, text in rows.items() if text} == {
        n: f"would have stopped after round {round_}" for n, round_ in marked.items()
    }


def test_before_anything_has_ended_nothing_is_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    early = searched(tmp_path / "early", scheduler="asha", trials=3, grace="auto", audit=0.5)
    _status_output.status(status(early.path), as_json=False)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Grace: not chosen yet" in printed and "what stopping costs is not known" in printed
