"""fedtune auto: find the method and its hyper-parameters."""

from __future__ import annotations

from fedtune.option import call
from fedtune.options import AsJson, AutoRequest

GUIDE = "auto"
EXAMPLES = """\
# Which of four methods is best on the embedded digits, within four minutes:
fedtune auto --dataset digits --methods fedavg,fedprox,fedgen,dfrd \\
    --budget 4m --name auto
# Data of your own, label counts must not leave the clients:
fedtune auto --dataset mydata.npz --budget 30m --no-label-counts --name own
# A budget that does not depend on the machine; all methods get the same:
fedtune auto --methods fedavg,moon --budget 600rounds --equal --name equal
# Clients with models of different widths, at most 5 MB up per round:
fedtune auto --methods all --budget 2h --set rho=10 --max-bytes-up 5MB
# In a space that these methods have for comparisons, with its conditions:
fedtune auto --methods local,fedproto,dhf --space personal --equal \\
    --metric local_accuracy --budget 20m
# Clients' own models:
fedtune auto --methods personalised --budget 1h --metric local_accuracy
"""


def command(request: AutoRequest, *, as_json: AsJson = False) -> None:
    """Find the method, its hyper-parameters and the model, within a budget."""
    from fedtune.api.auto import auto
    from fedtune.commands import _auto_output

    _auto_output.result(call(auto, request), as_json)
