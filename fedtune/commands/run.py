"""fedtune run best.yaml, fedtune run RUN_DIR, fedtune run METHOD --set …: one configuration on fresh seeds."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands import _complete
from fedtune.commands._options import Address, AsJson, DataDir, KeepImages, Plain, Quiet, RunsDir

EXAMPLES = """\
# A configuration that `fedtune export` kept, on five fresh seeds:
fedtune run best.yaml --seeds 5
# The winner of a search, straight from its run directory:
fedtune run runs/dfrd-alpha_lambda --seeds 5
# A method without a search:
fedtune run fedprox --set mu=0.01 --rounds 20 --name fedprox-20
# The paper's data set, model and rounds instead of the small profile:
fedtune run dfrd --space alpha_lambda --paper
"""


def command(
    best: Annotated[
        str,
        typer.Argument(
            help="A configuration written by `fedtune export`, the run directory of a search, whose winner is "
            "trained, or a method's name.",
            show_default=False,
            autocompletion=_complete.methods_and_runs,
        ),
    ],
    space: Annotated[
        str,
        typer.Option(
            help="For a method: the search space whose fixed values and profile are used.",
            autocompletion=_complete.spaces,
        ),
    ] = "default",
    paper: Annotated[
        bool, typer.Option("--paper", help="For a method: use the paper's profile instead of the small one.")
    ] = False,
    dataset: Annotated[
        str | None,
        typer.Option(help="Use another data set: its name, a folder of images, or an .npz file.", show_default=False),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="How many rounds to train, if not as many as the configuration says.", show_default=False),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change the value of any parameter; may be given more than once.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many fresh seeds to train on.")] = 3,
    seed: Annotated[
        int, typer.Option(help="The fresh seeds are drawn from this number; another number gives other seeds.")
    ] = 0,
    name: Annotated[
        str | None,
        typer.Option(
            help="The run's name.  [default: the name of the search or method, and -final]", show_default=False
        ),
    ] = None,
    runs_dir: RunsDir = "runs",
    data_dir: DataDir = None,
    concurrency: Annotated[
        int | None,
        typer.Option(help="How many seeds are trained at the same time.  [default: one per core]", show_default=False),
    ] = None,
    cpus_per_trial: Annotated[
        float | None, typer.Option(help="How many cores, and threads, each seed has.  [default: 1]", show_default=False)
    ] = None,
    gpus_per_trial: Annotated[
        float | None,
        typer.Option(
            help="The part of a GPU that each seed has.  [default: 0.25 where there is a GPU]", show_default=False
        ),
    ] = None,
    address: Address = None,
    keep_images: KeepImages = False,
    plain: Plain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train one configuration on fresh seeds: an exported one, a search's winner, or a method's own.

    Prints mean ± std over the seeds on the test set, and keeps the trained models."""
    from fedtune.api.run import run
    from fedtune.commands import _output

    _output.final(
        run(
            best,
            space=space,
            paper=paper,
            dataset=dataset,
            rounds=rounds,
            set=tuple(set_ or ()),
            seeds=seeds,
            seed=seed,
            name=name,
            runs_dir=runs_dir,
            data_dir=data_dir,
            concurrency=concurrency,
            cpus_per_trial=cpus_per_trial,
            gpus_per_trial=gpus_per_trial,
            address=address,
            keep_images=keep_images,
            plain=plain,
            quiet=quiet,
        ),
        as_json,
    )
