"""fedtune auto: find the method and its hyper-parameters."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands._options import (
    Address,
    AsJson,
    AutoLag,
    Concurrency,
    CpusPerTrial,
    DataDir,
    GpusPerTrial,
    Plain,
    Quiet,
    Require,
    RunsDir,
)

EXAMPLES = """\
# Which of four methods is best on the embedded digits, within four minutes:
fedtune auto --dataset digits --methods fedavg,fedprox,fedgen,dfrd \\
    --budget 4m --name auto
# Data of your own, label counts must not leave the clients:
fedtune auto --dataset mydata.npz --budget 30m --no-label-counts --name own
# A budget that does not depend on the machine; all methods get the same:
fedtune auto --methods fedavg,moon --budget 600rounds --equal --name equal
# Clients with models of different widths, at most 5 MB up per round:
fedtune auto --methods all --budget 2h --widths --max-bytes-up 5MB
# In a space that these methods have for comparisons, with its conditions:
fedtune auto --methods local,fedproto,dhf --space personal --equal \\
    --personal --budget 20m
# Clients' own models:
fedtune auto --family personalised --budget 1h --personal
"""


def command(
    budget: Annotated[
        str,
        typer.Option(
            help="What all of it may take: a length such as 30m or 2h, a count such as 600rounds (rounds of single "
            "federations), or traffic such as 2GB.",
            show_default=False,
        ),
    ],
    dataset: Annotated[
        str | None, typer.Option(help="A data set's name, a folder of images, or an .npz file.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="Names separated by commas.  [default: all that the budget pays for]", show_default=False),
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="Only methods of this family; a part of its name is enough.", show_default=False)
    ] = None,
    space: Annotated[
        str,
        typer.Option(
            help="The name of the space in which each method is tuned. One other than default sets the conditions too."
        ),
    ] = "default",
    metric: Annotated[
        str | None, typer.Option(help="The metric to select by.  [default: val_global_accuracy]", show_default=False)
    ] = None,
    require: Require = None,
    personal: Annotated[
        bool,
        typer.Option("--personal", help="Select by clients' own models, so that no global model is needed."),
    ] = False,
    widths: Annotated[
        bool, typer.Option("--widths", help="Clients have models of different widths (--set rho=10).")
    ] = False,
    no_label_counts: Annotated[
        bool, typer.Option("--no-label-counts", help="Leave out methods to which clients send label counts.")
    ] = False,
    max_bytes_up: Annotated[
        str | None,
        typer.Option(
            help="Leave out methods whose clients send more than this in a round, such as 50MB.", show_default=False
        ),
    ] = None,
    equal: Annotated[bool, typer.Option("--equal", help="Give every method the same part of the budget.")] = False,
    least: Annotated[
        int | None,
        typer.Option(
            help="Trials that every method gets at least.  [default: 3, or what the search's budget pays]",
            show_default=False,
        ),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(
            help="What methods are compared at: seconds, seed-rounds or bytes.  [default: the budget's unit]",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Communication rounds per trial.  [default: 10]", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds every trial has.")] = 1,
    fresh_seeds: Annotated[
        int | None,
        typer.Option(
            help="Seeds on which the methods' best are compared.  [default: 3, or 2 where half of the budget does not "
            "pay for more]",
            show_default=False,
        ),
    ] = None,
    final_seeds: Annotated[
        int | None,
        typer.Option(
            help="Further seeds on which the leader is trained.  [default: 3, or fewer likewise]", show_default=False
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Fix the value of a parameter for all methods that have it, or of one method as METHOD.NAME=VALUE; "
            "may be given more than once.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the whole search.")] = 0,
    lag: AutoLag = None,
    concurrency: Concurrency = None,
    cpus_per_trial: CpusPerTrial = None,
    gpus_per_trial: GpusPerTrial = None,
    address: Address = None,
    name: Annotated[str, typer.Option(help="The name of the folder with everything that is found.")] = "auto",
    runs_dir: RunsDir = "runs",
    plain: Plain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Find the method, its hyper-parameters and the model, within a budget."""
    from fedtune.api.auto import carry_out_auto, planned
    from fedtune.commands import _auto_output
    from fedtune.planning.auto_request import AutoRequest

    request = AutoRequest(
        dataset=dataset,
        budget=budget,
        methods=tuple(methods or ("all",)),
        family=family,
        space=space,
        metric=metric,
        require=tuple(require or ()),
        cost=cost,
        equal=equal,
        least=least,
        rounds=rounds,
        seeds=seeds,
        fresh_seeds=fresh_seeds,
        final_seeds=final_seeds,
        seed=seed,
        no_label_counts=no_label_counts,
        max_bytes_up=max_bytes_up,
        widths=widths,
        personal=personal,
        set=tuple(set_ or ()),
        data_dir=data_dir,
        name=name,
        runs_dir=runs_dir,
        lag=lag,
        concurrency=concurrency,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        address=address,
    )
    plan = planned(request, plain=plain, quiet=quiet)
    _auto_output.result(carry_out_auto(plan, plain=plain, quiet=quiet), as_json)
