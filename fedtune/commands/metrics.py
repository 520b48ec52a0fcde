"""fedtune metrics: what a search can be judged by, and what reports show."""

from __future__ import annotations

from fedtune.options import AsJson, Long

GUIDE = "search"
EXAMPLES = """\
# All metrics:
fedtune metrics
# The same with titles, units and all of the meaning:
fedtune metrics --long
"""


def command(*, long: Long = False, as_json: AsJson = False) -> None:
    """List the metrics that rounds are measured by. --metric takes these names."""
    from fedtune.api.catalogue import metrics
    from fedtune.console import tables

    rows = metrics()
    if as_json:
        tables.print_json(rows)
        return
    if long:
        facts = {"title": "title", "direction": "direction", "unit": "unit", "doc": "meaning", "needs": "measured with"}
        tables.blocks("Metrics", rows, {"name": "name"} | facts)
    else:
        tables.brief("Metrics", rows, {"name": "name", "direction": "direction", "doc": "meaning"})
    tables.say("Searches select on the twin val_NAME, measured on the validation share, where a metric has one.")
    tables.say("--metric test_NAME selects on test data in its place.")
    if not long:
        tables.say("--long prints everything.")
