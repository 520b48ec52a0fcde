"""fedtune search METHOD: find good hyper-parameters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedtune.commands import _complete
from fedtune.commands._options import (
    Address,
    AsJson,
    Concurrency,
    CpusPerTrial,
    DataDir,
    GpusPerTrial,
    KeepImages,
    Lag,
    Plain,
    Quiet,
    Require,
    RunsDir,
)

EXAMPLES = """\
# DFRD's α and λ, small, on the embedded digits:
fedtune search dfrd --space alpha_lambda
# The plan and an estimate of its time; nothing is created:
fedtune search dfrd --space alpha_lambda --dry-run
# Every cell of the paper's grid, three seeds per trial:
fedtune search dfrd --space alpha_lambda --sampler grid --seeds 3
# Further seeds only for configurations that are worth them:
fedtune search dfrd --space alpha_lambda --race
# Two hours at most, 20 clients, two metrics at once:
fedtune search fedavg --time 2h --set clients=20 --sampler nsga2 \\
    --metric val_global_accuracy --metric val_local_accuracy
# Begin with what an earlier search found:
fedtune search dfrd --space alpha_lambda --warm-start runs/first --name second
# Random trials near the paper's values:
fedtune search dfrd --prior paper
# Let the search choose when stopping may begin, and measure its cost:
fedtune search fedavg --rounds 12 --trials 60 --grace auto --audit 0.05
# Data of your own (a folder with one sub-folder per class works too):
fedtune search fedavg --dataset mydata.npz --trials 10
"""


def command(
    method: Annotated[
        str,
        typer.Argument(
            help="The method to tune; `fedtune methods` lists all methods.",
            show_default=False,
            autocompletion=_complete.methods,
        ),
    ],
    space: Annotated[
        str,
        typer.Option(
            help="A named search space (`fedtune spaces METHOD`), or a .yaml file.", autocompletion=_complete.spaces
        ),
    ] = "default",
    dataset: Annotated[
        str | None, typer.Option(help="A data set's name, a folder of images, or an .npz file.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="The paper's data set, model, rounds and seeds instead of the small profile."),
    ] = False,
    trials: Annotated[
        int | None,
        typer.Option(
            help="How many configurations to try.  [default: the profile's number, or 30]", show_default=False
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds per trial.", show_default=False)] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="Wall-clock budget, such as 30m or 2h; the search ends when it is spent, even if trials are left.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Seeds per configuration: at most this many in a race, exactly this many with --no-race.  "
            "[default: the profile's number, or 1]",
            show_default=False,
        ),
    ] = None,
    race: Annotated[
        bool | None,
        typer.Option(
            "--race/--no-race",
            help="Begin every configuration with one seed and give further ones where they are worth it; the budget is "
            "trials × rounds × seeds.  [default: --race where --seeds is above 1, unless it is a grid, or there are "
            "several metrics or conditions]",
            show_default=False,
        ),
    ] = None,
    warm_start: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN",
            autocompletion=_complete.runs,
            help="Begin with the best points of an earlier run, and with its results where they hold; may be given "
            "more than once.",
            show_default=False,
        ),
    ] = None,
    prior: Annotated[
        str,
        typer.Option(
            help="off, paper, strong, or a width in (0, 1]: how closely trials that would be random keep to the "
            "paper's values."
        ),
    ] = "off",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="The metric to select by; may be given more than once.  [default: val_global_accuracy]",
            show_default=False,
            autocompletion=_complete.metrics,
        ),
    ] = None,
    require: Require = None,
    select_on: Annotated[
        str | None,
        typer.Option(
            help="Whether to select on validation or on test data.  [default: validation]",
            show_default=False,
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="ei, tpe, random, grid, cmaes, gp or nsga2.  [default: ei; tpe for several metrics]",
            show_default=False,
        ),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="asha, median or none.  [default: asha; none for a grid]", show_default=False)
    ] = None,
    reduction_factor: Annotated[
        int, typer.Option(help="For asha: about one trial out of this many goes on at each rung.")
    ] = 3,
    grace: Annotated[
        str | None,
        typer.Option(
            help="No trial is stopped before this round; auto chooses it from the search's own first trials.  "
            "[default: 3, or a 27th of the rounds]",
            show_default=False,
        ),
    ] = None,
    audit: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Let this share of the trials that would be stopped run to their end, to measure what stopping costs.",
        ),
    ] = 0.0,
    lag: Lag = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Fix the value of any parameter; may be given more than once.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="The seed of the whole search; on the same kind of machine the same seed gives the same records."
        ),
    ] = 0,
    concurrency: Concurrency = None,
    cpus_per_trial: CpusPerTrial = None,
    gpus_per_trial: GpusPerTrial = None,
    pack: Annotated[
        str,
        typer.Option(
            help="fixed: each trial has one core. auto: measure first how many trials at the same time, with how many "
            "threads each, finish most trials per hour."
        ),
    ] = "fixed",
    address: Address = None,
    name: Annotated[
        str | None, typer.Option(help="The run's name.  [default: METHOD-SPACE]", show_default=False)
    ] = None,
    runs_dir: RunsDir = "runs",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and an estimate of its time; create nothing.")
    ] = False,
    keep_images: KeepImages = False,
    plain: Plain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search the hyper-parameters of a method."""
    from fedtune.api.search import carry_out
    from fedtune.commands import _output
    from fedtune.planning.pack_auto import packed
    from fedtune.planning.plan import plan
    from fedtune.planning.request import Request

    planned = plan(
        Request(
            method,
            space,
            dataset=dataset,
            data_dir=data_dir,
            paper=paper,
            trials=trials,
            rounds=rounds,
            time=time,
            seeds=seeds,
            race=race,
            warm_start=tuple(warm_start or ()),
            prior=prior,
            metric=tuple(metric or ()),
            require=tuple(require or ()),
            select_on=select_on,
            sampler=sampler,
            scheduler=scheduler,
            reduction_factor=reduction_factor,
            grace=grace,
            audit=audit,
            lag=lag,
            set=tuple(set_ or ()),
            seed=seed,
            concurrency=concurrency,
            cpus_per_trial=cpus_per_trial,
            gpus_per_trial=gpus_per_trial,
            address=address,
            keep_images=keep_images,
            pack=pack,
            name=name,
            runs_dir=runs_dir,
        )
    )
    planned = packed(planned, plain=plain, quiet=quiet)
    if dry_run:
        _output.estimate(_timed(planned, plain, quiet), as_json)
    else:
        _output.result(carry_out(planned, plain=plain, quiet=quiet), as_json)


def _timed(planned: Any, plain: bool, quiet: bool) -> Any:
    """What a plan is expected to take."""
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from fedtune.planning.estimate import estimate

    with busy(style(plain, quiet), "timing a few rounds"):
        return estimate(planned)
