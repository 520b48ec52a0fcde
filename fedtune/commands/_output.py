"""What the commands that make runs print on stdout, and the exit code that goes with it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import yaml

from analysis.labels import size, told
from analysis.next_commands import run_command
from analysis.runs.conditions import show
from fedtune.commands._status_output import params_text, say_found
from fedtune.console import tables
from fedtune.console.progress import duration
from fedtune.planning.estimate import Estimate
from fedtune.record.experiment import Experiment, datasets
from search_spaces.errors import INTERRUPTED, visible
from search_spaces.files import shown
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value
from search_spaces.shell import quote

if TYPE_CHECKING:
    from fedtune.api.auto import AutoResult
    from fedtune.api.reproduce import Reproduced
    from fedtune.api.run import Final
    from fedtune.api.search import Result

#: The exit code of a command that did all but complete a run's mirror.
UNSENT = 3


def result(found: Result, as_json: bool) -> None:
    """Prints how a search, a resumed or an extended run ended, and what to do next. For a final run that was resumed it
    prints the table of `final`."""
    experiment = Experiment.read(found.folder)
    if found.finished and experiment.kind == "run":
        final(_final(found), as_json)
        return
    folder = shown(found.folder)
    if as_json:
        tables.print_json(found.to_json())
    elif experiment.kind == "run":
        tables.say(f"{folder}: {found.counts.get('COMPLETE', 0)} of {experiment.trials} seeds trained.")
        _go_on(found, folder)
    else:
        counts = found.counts
        tables.say(
            f"{folder}: {counts.get('COMPLETE', 0)} trials done, {counts.get('PRUNED', 0)} stopped early, "
            f"{counts.get('FAIL', 0)} failed"
            + (f", {counts['RUNNING']} to be resumed" if counts.get("RUNNING") else "")
            + f" in {duration(found.seconds)}."
            + (f" {found.taken} of those done are results of earlier runs." if found.taken else "")
        )
        say_found(found.best, found.ahead, found.by_condition, experiment)
        if found.best is None and not found.by_condition and found.finished:
            tables.say(
                f"No trial ran to its end, so there is no best one. `fedtune status {quote(folder)}` says why each "
                f"failed."
            )
        if found.finished and found.best is not None:
            tables.say("Next:", f"fedtune report {quote(folder)}", f"fedtune export {quote(folder)} -o best.yaml")
        elif found.finished and found.by_condition:
            tables.say("Next:", f"fedtune report {quote(folder)}")
        elif not found.finished:
            _go_on(found, folder)
    _leave(found)


def _final(found: Result) -> Final:
    from fedtune.api.run import report  # what draws reports, which a listing has no use for

    return report(found)


def _go_on(found: Result, folder: str) -> None:
    """How a run that was interrupted is continued."""
    command = f"fedtune resume {quote(folder)}" + (" --time 10m" if found.out_of_time else "")
    tables.say(f"{'The time is over' if found.out_of_time else 'Interrupted'}. Go on with:", command)


def _leave(found: Result) -> None:
    leave(found, found.finished and found.best is None and not found.by_condition)


def leave(found: Result | AutoResult | Reproduced, is_empty: bool) -> None:
    """The exit code of a command that drove trials, `is_empty` where none of them has a result, and what its mirror
    lacks."""
    if found.unsent is not None:
        print(visible(found.unsent), file=sys.stderr)
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
    if is_empty:
        raise typer.Exit(1)
    if found.unsent is not None:
        raise typer.Exit(UNSENT)


def estimate(found: Estimate, as_json: bool) -> None:
    """Prints the plan of --dry-run."""
    e = found.plan.experiment
    rows: dict[str, Value] = {
        "run": shown(found.plan.folder),
        "method": e.method,
        "space": e.space,
        "profile": e.profile,
        "dataset": ", ".join(datasets(e, found.plan.space)),
        "sampler": e.sampler,
        "scheduler": e.scheduler,
        "metric": ", ".join(e.metric),
        "trials": e.to_run,
        "taken": e.taken,
        "rounds": e.rounds,
        "seeds": len(e.seeds),
        "seed_rounds": e.seed_rounds,
        "concurrency": e.concurrency,
        "cpus_per_trial": e.cpus_per_trial,
        "gpus_per_trial": e.gpus_per_trial,
        "round_seconds": round(found.round_seconds, 4),
        "estimated_seconds": round(found.at_most, 1),
    }
    if as_json:
        tables.print_json(
            {
                **rows,
                "gpus_by_kind": dict(e.gpus_by_kind),
                "round_seconds_error": found.error or None,
                "search": {key: d.describe() for key, d in found.plan.space.search.items()},
                "vary": {key: list(d.values()) for key, d in found.plan.space.vary.items()},
                "fixed": dict(found.plan.space.fix),
            }
        )
        return
    for note in found.plan.notes:
        tables.say(note)
    tables.say(
        f"{e.method}, space {e.space}: {_size(e)}, sampler {e.sampler}, scheduler {e.scheduler}, "
        f"selecting by {', '.join(e.metric)}."
    )
    _space(found)
    _pace(found)
    tables.say(f"The search would create {shown(found.plan.folder)}. Nothing was created.")


def _pace(found: Estimate) -> None:
    """How many trials run at the same time, what a round takes, and how long that is for all."""
    e = found.plan.experiment
    share = f" and {e.gpus_in_words}" if e.gpus_per_trial else ""
    tables.say(
        f"{e.concurrency} at the same time with {e.cpus_per_trial:g} core{'s' * (e.cpus_per_trial != 1)}{share} each."
    )
    parts = "its first steps and some of its samples"
    how = f" from {parts}, give or take {100 * found.error:.0f} %" if found.error else ""
    tables.say(
        f"Measured here{how}: a round of one configuration in the middle of the space takes "
        f"{'about ' if how else ''}{found.round_seconds:.2f} s for one seed. "
        f"At that pace the search takes {'about' if e.scheduler == 'none' else 'at most'} {duration(found.at_most)}."
    )


def _space(found: Estimate) -> None:
    """What is searched, and under which conditions."""
    for key, dimension in found.plan.space.search.items():
        tables.say(f"  {key}: {dimension.describe()}")
    for key, dimension in found.plan.space.vary.items():
        tables.say(f"  {key}: {', '.join(map(show, dimension.values()))} (conditions)")


def _size(e: Experiment) -> str:
    seeds = f"{len(e.seeds)} seed{'s' * (len(e.seeds) > 1)}"
    if e.races:
        return f"a race of {e.budget} seed-rounds, trials of {e.rounds} rounds, up to {seeds} of a configuration"
    return f"{e.to_run} trials of {e.rounds} rounds over {seeds}"


def exported(data: dict[str, Any], output: str | Path | None, as_json: bool) -> None:
    """Prints an exported configuration, or to which file it was written."""
    if as_json:
        tables.print_json(data)
    elif output is None:
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        # What a terminal would obey is written out in YAML's own way.
        print(text if visible(text) == text else yaml.safe_dump(data, sort_keys=False), end="")
    else:
        values = ", ".join(f"{name} {told(name, value)}" for name, value in data["metric"].items())
        found = {key: data["parameters"][key] for key in data["searched"]}
        origin = data["provenance"]
        at = f" in round {origin['round']}, as it has not run to its end" if "round" in origin else ""
        tables.say(
            f"{output}: trial {origin['trial']} of {origin['run']}, {values}{at}"
            + (f", {params_text(found)}" if found else "")
            + "."
        )
        tables.say("Next:", run_command(str(output)))


def study_exported(found: dict[str, Any], as_json: bool) -> None:
    """Prints which study was written."""
    if as_json:
        tables.print_json(found)
    else:
        tables.say(f"{found['study']}: an Optuna study of {found['trials']} trial{'s' * (found['trials'] != 1)}.")


def table_exported(card: dict[str, Any], output: str, as_json: bool) -> None:
    """Prints the card of exported curves, or what was written."""
    if as_json:
        tables.print_json(card)
    else:
        many = len(card["configurations"]), len(card["seeds"]), card["rounds"]
        tables.say(
            f"{output}: {many[0]} configuration{'s' * (many[0] != 1)}, {many[1]} seed{'s' * (many[1] != 1)}, "
            f"{many[2]} round{'s' * (many[2] != 1)}. {Path(output).with_suffix('.json')} describes them."
        )


def final(found: Final, as_json: bool) -> None:
    """Prints mean ± std over fresh seeds, for each metric."""
    if not found.result.finished:
        result(found.result, as_json)
    elif as_json:
        tables.print_json(found.to_json())
    else:
        folder = shown(found.result.folder)
        tables.say(
            f"{folder}: {found.result.counts.get('COMPLETE', 0)} of {len(found.seeds)} seeds trained in "
            f"{duration(found.result.seconds)}."
        )
        for name, spread in found.metrics.items():
            std = "" if math.isnan(spread.std) else f" ± {told(name, spread.std)}"
            tables.say(f"  {METRICS[name].title:<18} {told(name, spread.mean)}{std}")
        if found.partition is not None:
            tables.say(found.partition)
        models(found)
    _leave(found.result)


def models(found: Final) -> None:
    """Says where a final run's models are."""
    if found.models:
        tables.say("Models:", *(shown(path) for path in found.models))
    if found.client_models:
        total = size(sum(path.stat().st_size for path in found.client_models))
        tables.say(f"Clients' own models, {total}:", *(shown(path) for path in found.client_models))
