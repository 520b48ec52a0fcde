"""What the abbreviations and signs on a page mean, said once on it, where they first stand."""

from __future__ import annotations

import re
from collections.abc import Iterable

from analysis.labels import Labels
from analysis.report.page import escape
from search_spaces.metrics import METRICS

#: Metrics whose titles say nothing to who does not know them; those of other readouts are named after them.
ABBREVIATED = ("amp", "fm", "wlp")
#: What values of these parameters mean, in fewer words than their declarations have.
KEYS = {
    "omega": "how evenly classes are spread over clients; small is uneven",
    "rho": "how far models' widths differ; 0 is not at all",
}
_SIGNS = {"omega": "ω", "rho": "ρ"}


def explained(told: set[str], metrics: Iterable[str], keys: Iterable[str] = (), labels: Labels | None = None) -> str:
    """A paragraph on these metrics and parameters, as far as their names need it; empty where none does. `told` holds
    what the page has explained already, and gets what is explained now."""
    known = Labels(markup=False) if labels is None else labels
    bases = {name.rpartition("_")[2] for name in metrics}
    lines = [(name, METRICS[name].title, METRICS[name].doc) for name in ABBREVIATED if name in bases]
    for key in dict.fromkeys(keys):
        if meaning := KEYS.get(key) or str(known.parameters.get(key, {}).get("doc") or "").rstrip("."):
            symbol = known.symbol(key)
            title = f"{key} ({_SIGNS[key]})" if symbol == key and key in _SIGNS else symbol
            lines.append((key, title, f"{meaning}."))
    new = [f"<b>{escape(title)}</b>: {escape(meaning)}" for name, title, meaning in lines if name not in told]
    told |= {name for name, _, _ in lines}
    return f'<p class="small">{" ".join(new)}</p>' if new else ""


def mentioned(text: str) -> tuple[list[str], list[str]]:
    """The metrics and the parameters of which a text has the abbreviation, the sign or the name."""
    metrics = [name for name in ABBREVIATED if re.search(rf"\b{METRICS[name].title}\b", text)]
    return metrics, [key for key, sign in _SIGNS.items() if re.search(rf"\b({sign}|{key})\b", text)]
