"""fedtune figure NAME RUN… -o f.png: one figure or table as a file."""

from __future__ import annotations

from fedtune.option import call
from fedtune.options import AsJson, FigureRequest

GUIDE = "figure-for-a-paper"
EXAMPLES = """\
# A heat map, for a paper:
fedtune figure heatmap runs/dfrd-alpha_lambda -o fig5.png
# Any metric over rounds, a line for each method:
fedtune figure rounds runs/fedavg-final runs/dfrd-final \\
    --metric amp --metric wlp -o rounds.pdf
# Learning curves under one condition of the experiment:
fedtune figure curves runs/fedkf-fairness --where omega=0.1 -o curves.svg
# A table, as Markdown:
fedtune figure trials runs/dfrd-alpha_lambda -o trials.md
# A table of a paper made again on two data sets, in the paper's layout:
fedtune figure pivot runs/dfrd-table3-small \\
    runs/dfrd-table3-small-rotated_digits -o table3.tex
"""


def command(request: FigureRequest, *, as_json: AsJson = False) -> None:
    """Write one figure or table of a run, or of several, to a file: for a paper, a slide or a program."""
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from search_spaces.files import shown

    with busy(style(), "loading what draws figures"):
        from fedtune.api.figure import figure
    path = call(figure, request)
    if as_json:
        tables.print_json({"file": str(path)})
    else:
        tables.say("Written:", shown(path))
