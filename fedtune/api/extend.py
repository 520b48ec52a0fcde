"""`fedtune.extend`: a search goes on with more trials, with more rounds, or with both."""

from __future__ import annotations

import dataclasses

from analysis.runs import load_run
from fedtune.api.going_on import complete, space_of
from fedtune.api.search import Result, display, driven
from fedtune.decisions.history import Part
from fedtune.machine.cluster import check_address
from fedtune.option import fields_of
from fedtune.options import ExtendRequest
from fedtune.planning.extension import changes, longer, told
from fedtune.planning.resume_checks import check_unchanged, check_whole, left_cluster
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import extended
from fedtune.record.run_directory import lock, write_document
from search_spaces import run_folder


@fields_of(ExtendRequest)
def extend(request: ExtendRequest) -> Result:
    """Adds `trials` further trials to a search, `rounds` further rounds to each of its trials, or both; one of the two
    must be given.

    With more trials the result equals that of a search which had asked for all of them at once. With more rounds a
    trial that ran all its rounds goes on from its checkpoint; one that early stopping ended, or that failed, stays as
    it is; trials to come run all rounds. Every trial's rounds are then those of a search which had asked for all rounds
    at once. So is the whole search where it is a grid or random and stops no trial early; elsewhere such a search may
    propose and stop other trials.

    Raises `UserError`, before anything is written, where more rounds would change what was computed or recorded so far
    (`fedtune.planning.extension`), and as `resume`, which has the same `address` and `other_versions`."""
    found = load_run(request.run)
    folder = found.path
    check_whole(folder, Experiment.of(found))
    space = space_of(folder / run_folder.SPACE)
    # Before the lock, so that a folder that is not a search, or that cannot go on, gets no lock file.
    asked = longer(found, space, request)
    check_address(request.address)
    notes = check_unchanged(found, *complete(folder, asked), other_versions=request.other_versions)
    with lock(folder):
        found = load_run(folder)  # read again: another extension may just have ended
        begun = Experiment.of(found)
        made = longer(found, space, request)
        write_document(folder / run_folder.EXPERIMENT, dataclasses.replace(made, address=begun.address).to_yaml())
        extended(folder, changes(begun, made))
        part = Part(folder, *complete(folder, made))
        lines = (left_cluster(begun, request.address) or "", *notes, *told(begun, made, found.frozen))
        return driven(part, display(part, request, [line for line in lines if line]), request)
