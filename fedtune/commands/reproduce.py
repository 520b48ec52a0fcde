"""fedtune reproduce [NAME]: a figure or table of a paper, made again and set beside it."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands import _complete
from fedtune.commands._options import AsJson, Concurrency, DataDir, Plain, Quiet, RunsDir

EXAMPLES = """\
# All figures and tables, and what each costs:
fedtune reproduce
# DFRD's heat map, small, on the embedded digits:
fedtune reproduce dfrd-fig5 --small --rounds 5
# A table of FedKF with more seeds than its small form has:
fedtune reproduce fedkf-table5 --small --seeds 5
# A part of a table; another part is added to it later:
fedtune reproduce fedmdcg-table1 --small --rows LT --columns omega=0.1
# How many hours the paper's own data, model, rounds and seeds take:
fedtune reproduce dfrd-table2 --data-dir ~/data --dry-run
# With these:
fedtune reproduce dfrd-table2 --data-dir ~/data
"""


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="The figure or table. Without it, all are listed.",
            show_default=False,
            autocompletion=_complete.reproductions,
        ),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these rows of a table, with commas between; others can be added later.  [default: all]",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these columns, such as omega=1,0.1; may be given more than once.  [default: all]",
            show_default=False,
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="On the embedded digits, in minutes, instead of the paper's setting.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(help="Communication rounds.  [default: the small form's, or the paper's]", show_default=False),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds.  [default: the small form's, or the paper's]", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Another data set: another one of the paper, or any of yours.  [default: the paper's first; digits "
            "with --small]",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = "runs",
    concurrency: Concurrency = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is to be run and how long it takes; create nothing.")
    ] = False,
    plain: Plain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make a figure or table of a paper again, and say which of the paper's sentences hold.

    Runs what is missing of the rows and columns asked for, and takes what is there. After Ctrl-C the same command goes
    on."""
    if name is None:
        _listing(as_json)
        return
    from fedtune.api.reproduce import estimate, reproduce
    from fedtune.commands import _reproduce_output
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from fedtune.planning.reproduction import ReproduceRequest

    if dry_run:
        asked = ReproduceRequest(
            name,
            small,
            rounds,
            seeds,
            dataset,
            data_dir,
            runs_dir,
            concurrency,
            tuple(rows or ()),
            tuple(columns or ()),
        )
        with busy(style(plain, quiet), "planning") as say:
            found = estimate(asked, say)
        _reproduce_output.estimate(*found, as_json)
        return
    _reproduce_output.result(
        reproduce(
            name,
            rows=rows or (),
            columns=columns or (),
            small=small,
            rounds=rounds,
            seeds=seeds,
            dataset=dataset,
            data_dir=data_dir,
            runs_dir=runs_dir,
            concurrency=concurrency,
            plain=plain,
            quiet=quiet,
        ),
        as_json,
    )


def _listing(as_json: bool) -> None:
    """A line for each reproduction."""
    from fedtune.api.reproductions import reproductions
    from fedtune.console import tables

    rows = reproductions()
    if as_json:
        tables.print_json(rows)
        return
    print(f"{'name':<15} {'published in':<24} {'--small':>9} {'minutes':>8} {'paper':>10}")
    print("─" * 70)
    for row in rows:
        minutes = max(1, round(row["seconds"] / 60))
        print(
            f"{row['name']:<15} {row['source']:<24} {row['small_seed_rounds']:>9,} {minutes:>8} "
            f"{row['paper_seed_rounds']:>10,}"
        )
    print()
    print("--small and paper count rounds of single federations. Minutes are those of")
    print(f"--small on the {rows[0]['cores']} cores of this machine, estimated from rounds measured once.")
    print("fedtune reproduce NAME --small makes one of them again on the embedded digits,")
    print("without --small on the paper's data, model, rounds and seeds. With --dry-run it")
    print("says how many hours that takes here, and creates nothing.")
