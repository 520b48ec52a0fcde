"""`fedtune.resume`: goes on with what was interrupted, a run or a search over several methods."""

from __future__ import annotations

from analysis.auto import is_auto
from analysis.reproduce.folder import is_made
from fedtune.api.auto import resume_auto
from fedtune.api.auto_result import AutoResult
from fedtune.api.search import Result, resume_run
from fedtune.option import fields_of
from fedtune.options import ResumeRequest
from search_spaces.errors import UserError
from search_spaces.files import given


@fields_of(ResumeRequest)
def resume(request: ResumeRequest) -> Result | AutoResult:
    """Goes on with an interrupted run; every trial continues from its last checkpoint. A finished run is left as it is,
    but for trials whose rows are damaged: those are computed again.

    A new time budget may be given, and another placement (concurrency, shares); a search over several methods goes on
    as it was begun, and takes neither. It runs on this machine, or on the Ray cluster at `address`; the address that
    the run was begun with is not taken from its record. What would change the run's numbers cannot be changed, with one
    exception: `other_versions` accepts other versions of libraries, of which the run's record then tells.

    Raises `UserError`, before anything is written, where the data set is gone or changed, versions are others, or no
    cluster answers at `address`."""
    run = request.run
    if is_made(given(run)):
        raise UserError(f"{run} was made by `fedtune reproduce`. Give that command again, and it goes on.")
    if not is_auto(run):
        return resume_run(request)
    placing = ("concurrency", "cpus_per_trial", "gpus_per_trial", "time")
    placed = [f"--{name.replace('_', '-')}" for name in placing if getattr(request, name) is not None]
    if placed:
        raise UserError(f"{run} was made by `fedtune auto` and goes on as it was begun. Leave {', '.join(placed)} out.")
    return resume_auto(request)
