"""fedtune run best.yaml --seeds K, fedtune run METHOD --set …: one configuration on fresh seeds."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """\
# A configuration that `fedtune export` kept, on five fresh seeds:
fedtune run best.yaml --seeds 5
# A method without a search:
fedtune run fedprox --set mu=0.01 --rounds 20 --name fedprox-20
# The paper's data set, model and rounds instead of the small profile:
fedtune run dfrd --space alpha_lambda --paper
"""


def command(
    best: Annotated[
        str, typer.Argument(help="A configuration written by `fedtune export`, or a method's name.", show_default=False)
    ],
    space: Annotated[
        str, typer.Option(help="For a method: the space whose fixed values and profile it takes.")
    ] = "default",
    paper: Annotated[
        bool, typer.Option("--paper", help="For a method: the paper's profile instead of the small one.")
    ] = False,
    dataset: Annotated[str | None, typer.Option(help="Another data set.", show_default=False)] = None,
    rounds: Annotated[int | None, typer.Option(help="Other than its planned rounds.", show_default=False)] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change any parameter; repeatable.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many fresh seeds.")] = 3,
    seed: Annotated[int, typer.Option(help="Another number draws other seeds.")] = 0,
    name: Annotated[
        str | None, typer.Option(help="The run's name.  [default: SEARCH-final]", show_default=False)
    ] = None,
    runs_dir: Annotated[str, typer.Option(help="Where runs are kept.")] = "runs",
    data_dir: Annotated[str | None, typer.Option(help="Where downloaded data sets lie.", show_default=False)] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Seeds at once.  [default: one per core]", show_default=False)
    ] = None,
    cpus_per_trial: Annotated[
        float | None, typer.Option(help="Cores, and threads, of a seed.  [default: 1]", show_default=False)
    ] = None,
    gpus_per_trial: Annotated[
        float | None, typer.Option(help="Share of a GPU.  [default: 0.25 where there is one]", show_default=False)
    ] = None,
    address: Annotated[str | None, typer.Option(help="A Ray cluster to join.", show_default=False)] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Progress as lines, for logs.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train an exported or a method's own configuration on fresh seeds; prints mean ± std on the test set and keeps the
    models."""
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
            plain=plain,
            quiet=quiet,
        ),
        as_json,
    )
