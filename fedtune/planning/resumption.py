"""Runs that go on: read from their directories, checked, and placed on this machine or on a cluster.

The data set's content, the partition of the first seed, the versions of the libraries and the content of a user's own
files (methods, models, samplers, metrics) are recorded in `provenance.json`. Trials that were computed under other
conditions must not be compared with those before them, and a data set that is gone is no trial's fault. So what differs
is told here, before anything is written.

Another revision of a checkout of fedtune is not refused, as a developer's changes all the time: it is told when the run
goes on (`fedtune.record.provenance.went_on`) and by `fedtune compare`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.runs import Run, load_run, shapes
from analysis.runs.mappings import read_json
from fedtune.decisions.history import Part
from fedtune.decisions.known_points import KnownPoints
from fedtune.decisions.race import is_over
from fedtune.execution.outcome import damaged
from fedtune.machine import resources
from fedtune.machine.cluster import check_address
from fedtune.planning.plan import device_of, middle_values
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import NUMBERS, sampler_file, versions
from search_spaces import run_folder
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.parameter import convert_all
from search_spaces.run_folder import FIXED
from search_spaces.shell import quote
from search_spaces.space import Space


@dataclass(frozen=True)
class GoingOn:
    """Runs that were begun, as they go on now."""

    parts: Sequence[Part]
    #: What the user is told.
    notes: Sequence[str]


def going_on(
    runs: Sequence[Run],
    address: str | None,
    *,
    given: Mapping[str, Any] | None = None,
    other_versions: bool = False,
    options: bool = True,
    storage: str | None = None,
    problems: Sequence[str] = (),
) -> GoingOn:
    """Checks the `runs` of one experiment, which go on together at `address` and with the fields of an experiment that
    are `given` in place of the recorded ones. Those that are over and whose rows are whole are left as they are.
    options: whether the command has options for the placement; without them its own placement is not checked here.
    storage: where the mirror is from now on.

    Raises `UserError` with `problems` and everything that is not as it was when the runs began, before anything is
    written."""
    found, notes, problems = [], list[str](), list(problems)
    begun = [Experiment.of(run) for run in runs]
    placed = [dataclasses.replace(one, **(given or {}), address=address) for one in begun]
    left = [not is_over(r.frozen, e) or bool(damaged(r.path, e, r.frozen)) for r, e in zip(runs, begun, strict=True)]
    lead = next((one for one, is_left in zip(placed, left, strict=True) if is_left), None)
    if options and lead is not None:
        fix = None if given is not None else "Give --address to join a cluster that has them, or go on where it began."
        check_placement(lead, problems, fix=fix)
        asked = None if given is None or "cpus_per_trial" not in given else given.get("concurrency")
        notes.append(crowded(lead, problems, asked=asked) or "")
    if problems:
        raise UserError(*problems)
    for run, experiment in zip(runs, placed, strict=True):
        found.append(Part(run.path, *complete(run.path, experiment)))
    if options and lead is not None:
        check_address(address)
    for run, before, part, is_left in zip(runs, begun, found, left, strict=True):
        if is_left:
            notes.append(left_cluster(before, address, option=options) or "")
            notes.append(left_storage(before, storage) or "")
            notes += check_unchanged(run, part.experiment, part.space, other_versions=other_versions)
    return GoingOn(found, list(dict.fromkeys(filter(None, notes))))


def part_of(folder: Path) -> Part:
    """The run in `folder`, complete. Raises `UserError` where there is none."""
    return Part(folder, *complete(folder, Experiment.of(load_run(folder))))


def complete(folder: Path, experiment: Experiment) -> tuple[Experiment, Space]:
    """An experiment that was recorded in `folder`, with every value, and its space. (A method's own file may
    declare more parameters than it did; these have their defaults.) Raises `UserError` where both do not fit, or a
    value is none of its parameter's."""
    from trainables import registry

    space = space_of(folder / run_folder.SPACE)
    declared = registry.declared(experiment.method)
    recorded = convert_all(declared, experiment.values, str(folder / run_folder.EXPERIMENT))
    missing = {
        key: parameter.default
        for key, parameter in declared.items()
        if key not in recorded and key not in space.search and key not in space.vary
    }
    whole = dataclasses.replace(experiment, values={**missing, **recorded})
    KnownPoints(whole, space)
    return whole, space


def space_of(path: Path) -> Space:
    """The recorded space. Raises `UserError` where the file is missing, torn or holds something else."""
    data = read_json(path)
    wrong = shapes.problems(data, shapes.SPACE, str(path))
    if wrong:
        raise UserError(*wrong)
    try:
        return Space.from_json(data)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(
            f"{path} was not written by fedtune, or was edited: {type(error).__name__}: {error}. Copy the "
            f"run directory again."
        ) from error


#: The option that accepts other versions.
OPTION = "--other-versions"


def check_unchanged(run: Run, experiment: Experiment, space: Space, *, other_versions: bool = False) -> list[str]:
    """Raises one `UserError` with everything that is not as it was when `run` began, or where its record of that is
    torn. `experiment`, placed on this machine, and `space` are the run's, complete; `other_versions` accepts other
    versions of the libraries.

    Returns a sentence for what could not be checked, as it was not recorded."""
    if (recorded := run.path / run_folder.PROVENANCE).exists():
        read_json(recorded)  # torn, it must not pass for one that says nothing
    damaged(run.path, experiment, run.frozen)  # rows that cannot be read are told now; damaged ones are computed again
    problems: list[str] = []
    if run.experiment.get("prior"):
        problems.append(
            f"{run.path} was begun with --prior, which is gone, so its next trials cannot be proposed. It can be "
            f"reported and exported; begin a new search with --warm-start {quote(str(run.path))}."
        )
    if not other_versions:
        problems += [*_versions(run), *_own_files(run, experiment)]
    notes = _data(run, experiment, space, problems)
    if problems:
        raise UserError(*problems)
    return notes


def _versions(run: Run) -> list[str]:
    """A sentence where the run has been computed with other versions of what decides numbers, and never with these."""
    here = versions()
    recorded = [_of_numbers(part) for part in [run.provenance, *_continued(run)]]
    differing = [{name: v for name, v in had.items() if here.get(name, v) != v} for had in recorded]
    if not all(differing):
        return []
    then = ", ".join(f"{name} {version}" for name, version in differing[0].items())
    now = ", ".join(f"{name} {here[name]}" for name in differing[0])
    return [
        f"{run.path} was begun with {then}, and here is {now}, with which the same seed may give other numbers. "
        f"Install the versions it was begun with, or accept these with {OPTION}; the run's record then names both."
    ]


def _own_files(run: Run, experiment: Experiment) -> list[str]:
    """A sentence for the run's method, model, metrics and sampler, where that is a user's own file with whose content
    of now the run was never computed."""
    from trainables import registry

    now: dict[str, Any] = {"sampler_file": sampler_file(experiment.sampler)}
    now |= registry.own_files_of(experiment.method, experiment.values)
    return [problem for kind, found in now.items() for problem in _own_file(run, kind, found)]


def _own_file(run: Run, kind: str, now: Mapping[str, str] | None) -> list[str]:
    recorded = [part.get(kind) for part in (run.provenance, *_continued(run)) if isinstance(part, Mapping)]
    hashes = [had["hash"] for had in recorded if had]
    if not hashes or now is None or now["hash"] in hashes:
        return []
    return [
        f"{now['file']} must be as it was when {run.path} began (hash {hashes[0]}), got another content (hash "
        f"{now['hash']}), with which the same seed may give other numbers. Put the old file back, or accept this one "
        f"with {OPTION}; the run's record then names both."
    ]


def _continued(run: Run) -> list[Any]:
    found = run.provenance.get("continued")
    return found if isinstance(found, list) else []


def _of_numbers(part: object) -> dict[str, str]:
    """Of a provenance, the versions that decide numbers."""
    found = part.get("versions") if isinstance(part, Mapping) else None
    named = found if isinstance(found, Mapping) else {}
    return {name: str(named[name]) for name in NUMBERS if name in named}


def _data(run: Run, experiment: Experiment, space: Space, problems: list[str]) -> list[str]:
    """Adds a problem where the data set cannot be had, has another content, or is dealt to clients in another way."""
    import torch

    from trainables import data, registry
    from trainables.models import precision
    from trainables.simulation import federated_data
    from trainables.worker.environment import changed

    values = {**experiment.values, **middle_values((*space.search.values(), *space.vary.values()))}
    name = str(values["dataset"])
    recorded = run.provenance.get("dataset")
    content = recorded.get("hash") if isinstance(recorded, Mapping) else None
    try:
        device = device_of(experiment.gpus_per_trial, experiment.address)
        if device is not None:
            precision.check(str(values["precision"]), torch.device(device))
        found = data.load(name, experiment.data_dir)
        if content is None:
            return [_unrecorded(run.path, "data set")]
        others = run.provenance.get("datasets")
        for other, then in others.items() if isinstance(others, Mapping) else ():
            if other != name and (now := data.load(other, experiment.data_dir).hash) != then:
                problems.append(changed(other, then, now))
        if found.hash != content:
            problems.append(changed(name, content, found.hash))
            return []
        dealt = run.provenance.get("partition")
        seed = str(experiment.seeds[0])
        if not isinstance(dealt, Mapping) or seed not in dealt:
            return [_unrecorded(run.path, "partition")]
        settings = registry.possible(experiment.method, {**values, "precision": "fp32", "executor": "loop"}).federation
        _, built = federated_data.build(settings, experiment.seeds[0], torch.device("cpu"), experiment.data_dir)
    except UserError as error:
        problems += [f"{run.path} cannot go on. {problem}" for problem in error.problems]
        return []
    if built.fingerprint != dealt[seed]:
        problems.append(
            f"The partition of {name!r} for seed {seed} must be as it was when {run.path} began (hash {dealt[seed]}), "
            f"got {built.fingerprint}, so clients would hold other samples. Go on with the versions of fedtune and "
            f"numpy it was begun with, or begin a new run."
        )
    return []


def _unrecorded(folder: Path, what: str) -> str:
    return (
        f"{folder / run_folder.PROVENANCE} does not say which {what} the run was begun with, so it was not checked "
        f"that this is the same one."
    )


def check_whole(folder: Path, experiment: Experiment) -> None:
    """Raises `UserError` where the run is one method's part of `fedtune auto`, which decides what comes next in it."""
    if experiment.part:
        raise UserError(
            f"{folder} is the part of one method in a search over several. Go on with all of it: "
            f"`fedtune resume {quote(str(folder.parent.parent))}`."
        )


# -- where it goes on --------------------------------------------------------------------------------------------------


def left_cluster(begun: Experiment, address: str | None, *, option: bool = True) -> str | None:
    """What is said where a run was begun on a cluster and goes on without. A recorded address is not joined: whoever
    wrote the run directory would choose to whom this user's code and data are sent. `option`: whether the command has
    --address."""
    if begun.address is None or address is not None:
        return None
    said = f"This run was begun on the Ray cluster at {begun.address!r} and goes on on this machine."
    return f"{said} Give --address to join a cluster." if option else said


def left_storage(begun: Experiment, storage: str | None) -> str | None:
    """What is said where a run had a mirror and goes on without. Nothing is sent to a recorded storage: whoever wrote
    the run directory would choose who is sent this user's work."""
    if begun.storage is None or storage is not None:
        return None
    return f"This run was mirrored to {begun.storage} and goes on without. Give --storage to go on with its mirror."


def crowded(placed: Experiment, problems: list[str], asked: int | None) -> str | None:
    """A warning where the trials of a resumed run will have more threads than there are cores. Where the user `asked`
    for so many trials at the same time, it is a problem instead."""
    if placed.address is not None:
        return None
    cores, threads = resources.cores(), placed.threads
    told = resources.crowding(placed.concurrency, threads, cores)
    if told and asked is not None:
        why = f"as each trial of this run has {threads} thread{'s' * (threads > 1)} and there are {cores} cores"
        problems.append(sentence("slots", f"at most {max(1, cores // threads)}, {why}", asked, "--slots"))
    return told


def check_placement(experiment: Experiment, problems: list[str], *, fix: str | None = None) -> None:
    """Adds a problem for everything that was possible where the run began and is not possible on this machine. `fix`
    replaces the options of `resume` as the way out, where they are not to be had."""
    waits = experiment.looks_back and experiment.order == FIXED
    if experiment.concurrency < 1 or waits and experiment.concurrency > experiment.lag:
        most = f"in [1, {experiment.lag}], as its trials wait for one another" if waits else "of at least 1"
        problems.append(sentence("slots", f"a whole number {most}", experiment.concurrency, "--slots"))
    if experiment.address is None:
        here = resources.machine()
        if experiment.gpus_per_trial > here.gpus:
            problems.append(
                sentence(
                    "gpus of a trial",
                    f"at most {here.gpus}, the number of GPUs of this machine",
                    Shown(f"{experiment.gpus_per_trial:g}"),
                    "",
                    fix or "Give --per-trial gpus=0 to go on without.",
                )
            )
        if not 0 < experiment.cpus_per_trial <= here.cores:
            problems.append(
                sentence(
                    "cpus of a trial",
                    f"above 0 and at most {here.cores}, the number of cores of this machine",
                    Shown(f"{experiment.cpus_per_trial:g}"),
                    "",
                    fix or "Give --per-trial cpus=N.",
                )
            )
