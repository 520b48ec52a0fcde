"""The first screen of a search under conditions: fresh seeds, what was stopped and what it cost, the next command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.labels import Labels
from analysis.next_commands import FRESH_SEEDS
from analysis.report.conditions import under_conditions
from analysis.report.page import Page
from analysis.runs import Run, load_run
from tests.analysis import synthetic, varied
from tests.analysis.page_text import plain


def screen(run: Run) -> str:
    """The card's text without its tags."""
    page = Page("x")
    under_conditions(page, run, Labels.of([run], markup=False), "")
    return plain("".join(page.sections))


def final(search: Path, omega: float) -> Path:
    """A final run of the best configuration under one condition, beside the search."""
    run = load_run(search)
    best = run.within({"omega": omega}).best
    assert best is not None
    source = {"method": run.method, "parameters": run.config(best), "provenance": {"run": run.name, "trial": best}}
    settings = {"kind": "run", "rounds": 3, "failures": False, "source": source}
    return synthetic.write(search.parent / f"final-{omega:g}", keys=(), seeds=(1000, 1001), **settings)


@pytest.fixture
def search(tmp_path: Path) -> Path:
    return varied.fairness(tmp_path / "search")


def test_a_condition_is_held_against_its_fresh_seeds_and_the_next_step_follows(search: Path) -> None:
    text = screen(load_run(search))
    assert "On fresh seeds Not tried yet." in text and "Stopped early" not in text
    step = f"fedtune export {search} --where omega=%s -o best-%d.yaml && fedtune run best-%d.yaml --seeds %d"
    assert step % (10, 1, 1, FRESH_SEEDS) in text and "best configuration of omega=10." in text

    first = final(search, 10.0)
    run, text = load_run(search), screen(load_run(search))
    trial = run.within({"omega": 10.0}).best
    assert trial is not None
    searched = 100 * float(np.mean(list(varied.last(search, trial, "val_global_accuracy").values())))
    assert f"ω = 10: Global accuracy, validation of trial {trial}: {searched:.2f} % in the search" in text
    assert "on 2 fresh seeds (final-10)" in text and "Not tried yet: ω = 1; ω = 0.1." in text
    assert step % (1, 2, 2, FRESH_SEEDS) in text

    rest = [final(search, omega) for omega in (1.0, 0.1)]
    text = screen(load_run(search))
    assert "Not tried yet" not in text and text.count("fresh seeds (final-") == 3
    assert f"fedtune compare {first} {rest[0]} {rest[1]} --by omega" in text


def test_what_was_stopped_and_what_it_cost_is_said_of_every_condition(tmp_path: Path) -> None:
    """And trials that are unfinished are gone on with first."""
    points = [{"alpha": a, "omega": w} for a in synthetic.ALPHA for w in varied.OMEGAS]
    settings = {"keys": ("alpha", "omega"), "points": points, "trials": 18, "cells": 18, "failures": True, "rounds": 9}
    run = load_run(varied.fairness(tmp_path / "stopped", **settings))
    stopped = [t for t in run.frozen if t.state.name == "PRUNED"]
    saved = sum(9 - t.user_attrs["rounds"] for t in stopped)
    text = screen(run)
    assert f"{len(stopped)} of 18 trials were stopped early, which saved {saved} rounds of {18 * 9}." in text
    for omega in {t.params["omega"] for t in stopped}:
        assert f"ω = {omega:g}: By the search's own model" in text
    assert f"fedtune resume {tmp_path / 'stopped'}" in text and "fedtune export" not in text


def test_a_final_run_has_results_and_no_next_command(tmp_path: Path) -> None:
    run = load_run(varied.crossed(tmp_path / "crossed", kind="run"))
    assert "Next" not in screen(run)
