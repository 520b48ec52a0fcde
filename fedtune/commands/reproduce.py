"""fedtune reproduce [NAME]: a figure or table of a paper, made again and set beside it."""

from __future__ import annotations

from fedtune.option import call
from fedtune.options import AsJson, DryRun, ReproduceRequest

GUIDE = "reproduce"
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
fedtune reproduce dfrd-table2 --dry-run
# With these, of which FEDTUNE_DATA names the folder with the data:
fedtune reproduce dfrd-table2
"""


def command(request: ReproduceRequest | None, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Make a figure or table of a paper again, and say which of the paper's sentences hold.

    Runs what is missing of the rows and columns asked for, and takes what is there. After Ctrl-C the same command goes
    on."""
    if request is None:
        _listing(as_json)
        return
    from fedtune.api.reproduce import estimate, reproduce
    from fedtune.commands import _reproduce_output
    from fedtune.console.busy import busy
    from fedtune.console.progress import style

    if dry_run:
        with busy(style(request.plain, request.quiet), "planning") as say:
            found = estimate(request, say)
        _reproduce_output.estimate(*found, as_json)
    else:
        _reproduce_output.result(call(reproduce, request), as_json)


def _listing(as_json: bool) -> None:
    """A line for each reproduction."""
    import textwrap

    from analysis.reproduce.declaration import left_out
    from fedtune.api.reproductions import reproductions
    from fedtune.console import tables

    rows = reproductions()
    if as_json:
        tables.print_json(rows)
        return
    print(f"{'name':<19} {'published in':<24} {'--small':>9} {'minutes':>8} {'paper':>10}")
    print("─" * 74)
    for row in rows:
        minutes = max(1, round(row["seconds"] / 60))
        print(
            f"{row['name']:<19} {row['source']:<24} {row['small_seed_rounds']:>9,} {minutes:>8} "
            f"{row['paper_seed_rounds']:>10,}"
        )
    print()
    print("--small and paper count rounds of single federations. Minutes are those of")
    print(f"--small on the {rows[0]['cores']} cores of this machine, estimated from rounds measured once.")
    print("fedtune reproduce NAME --small makes one of them again on the embedded digits,")
    print("without --small on the paper's data, model, rounds and seeds. With --dry-run it")
    print("says how many hours that takes here, and creates nothing.")
    print()
    print("What cannot be made again:")
    for one in left_out():
        print(textwrap.fill(f"{one.source}: {one.why}", 80, initial_indent="  ", subsequent_indent="    "))
