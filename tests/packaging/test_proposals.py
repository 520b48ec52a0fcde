"""The page on proposals names every sampler there is."""

from __future__ import annotations

from pathlib import Path

from fedtune.trials.improvement import CANDIDATES
from fedtune.trials.samplers import SAMPLERS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_names_every_sampler() -> None:
    text = (ROOT / "docs" / "proposals.md").read_text(encoding="utf-8")
    named = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert named >= {*SAMPLERS}
    assert CANDIDATES == 200 and "Two hundred configurations are drawn" in text
