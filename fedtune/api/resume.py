"""`fedtune.resume`: goes on with what was interrupted, a run or a search over several methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.auto import is_auto
from analysis.reproduce.made import is_made
from fedtune.api import search
from fedtune.api.auto import resume_auto
from fedtune.api.auto_result import AutoResult
from fedtune.api.search import Result
from search_spaces.errors import UserError
from search_spaces.files import given


def resume(run: str | Path, **options: Any) -> Result | AutoResult:
    """Goes on with an interrupted run or search over several methods; options as of `fedtune.api.search.resume`, of
    which the latter has `address`, `other_versions`, `plain` and `quiet`.

    Raises `UserError` as that function."""
    if is_made(given(run)):
        raise UserError(f"{run} was made by `fedtune reproduce`. Give that command again, and it goes on.")
    if not is_auto(run):
        return search.resume(run, **options)
    kept = {key: value for key, value in options.items() if value is not None}
    placed = sorted(kept.keys() & {"time", "concurrency", "cpus_per_trial", "gpus_per_trial"})
    if placed:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in placed)
        raise UserError(f"{run} was made by `fedtune auto` and goes on as it was begun. Leave {named} out.")
    return resume_auto(run, **kept)
