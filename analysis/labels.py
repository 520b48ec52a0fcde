"""What things are called in figures and tables, taken from the parameters and metrics a run recorded.

Text that came from a user (run names, options, errors) passes through `text` before it reaches a figure, because
Plotly reads a little HTML in its labels.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from search_spaces.errors import visible
from search_spaces.metrics import METRICS, SHARES, is_unreached

if TYPE_CHECKING:
    from analysis.runs import Run

#: What is shown in per cent.
PERCENT = SHARES
#: Letters that fit above and below a panel of a figure, and how many of a name are kept in any case.
PANEL, SHORTEST = 36, 12
#: Letters that fit beside the line of a legend.
LEGEND = 40
#: Digits after the point in tables, by unit; others have 4.
_DECIMALS = {"rounds": 2, "dB": 2, "bytes": 0, "s": 2}


def decimals(metric: str) -> int:
    """Digits after the point with which a metric stands in tables: two of a per cent."""
    known = METRICS.get(metric)
    return 2 if metric in PERCENT else _DECIMALS.get(known.unit, 4) if known else 4


def scale(metric: str) -> float:
    """What a recorded value of the metric is multiplied by for display (100 for shares shown in per cent)."""
    return 100.0 if metric in PERCENT else 1.0


def text(raw: object) -> str:
    """`raw` as text in which Plotly finds no HTML, and nothing that can hide or turn round other text."""
    return html.escape(visible(str(raw)), quote=False)


def cut(raw: object, letters: int) -> str:
    """`text` of at most so many letters; what does not fit is an ellipsis."""
    written = visible(str(raw))
    return text(written if len(written) <= letters else f"{written[: letters - 1].rstrip()}…")


def entry(raw: object, letters: int = LEGEND) -> str:
    """`text` as it fits the legend of a figure on a narrow screen, or so many letters: the middle of a long name is
    left out, as names often differ in their ends."""
    written, half = visible(str(raw)), letters // 2
    return text(written if len(written) <= letters else f"{written[:half].rstrip()} … {written[3 - half :].lstrip()}")


def class_name(names: Sequence[str], label: int, letters: int = SHORTEST) -> str:
    """The name of a class as `cut` writes it, its number where it has none."""
    return cut(names[label], letters) if label < len(names) else str(label)


def class_title(names: Sequence[str], label: int) -> str:
    """The same by itself: `dog`, or `class 3` where the name is no more than a number."""
    found = class_name(names, label, LEGEND)
    return f"class {label}" if found == str(label) else found


def number(value: object, digits: int = 4) -> str:
    """A short form of a recorded value: `0.25`, `1e-05`, `fedrolex`, `yes`, `–` where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:.{digits}g}"
    return str(value)


def shown(value: object) -> str:
    """`number` as text in which Plotly finds no HTML: options and names are texts that a user wrote."""
    return text(number(value))


def duration(seconds: float | None) -> str:
    """`8 s`, `3 min 20 s`, `2 h 5 min`; `–` where unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """A number of bytes: `5.5 MB`, `120 kB`, `812 bytes`; a kB is 1000 bytes."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} byte{'s' * (round(count) != 1)}"


def told(metric: str, value: float) -> str:
    """A metric's value in prose: `87.30 %`, `0.412 nats`, `5.5 MB`. Files hold shares as fractions."""
    return Labels(markup=False).shown(metric, value)


def unit_in_files(metric: str) -> str:
    """The unit of a metric's values as recorded, which CSV, JSON and frames hold: `fraction` of what people read in
    per cent; empty where there is none."""
    return "fraction" if metric in PERCENT else METRICS[metric].unit if metric in METRICS else ""


@dataclass(frozen=True)
class Labels:
    """Titles, scales and symbols of one or more runs' parameters (by key) and of metrics (by name)."""

    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: By which metrics trials were chosen, the first one first.
    selected: Sequence[str] = ()
    #: Whether texts are for Plotly, which reads HTML, or plain.
    markup: bool = True

    @classmethod
    def of(cls, runs: Sequence[Run], *, markup: bool = True) -> Labels:
        """The labels of these runs; the first run that declares a parameter names it."""
        found: dict[str, Mapping[str, Any]] = {}
        for run in runs:
            for item in (*run.searched, *run.varied):
                found.setdefault(item["key"], item)
        return cls(found, tuple(runs[0].metrics) if runs else (), markup)

    def _text(self, raw: object) -> str:
        return text(raw) if self.markup else str(raw)

    def parameter(self, key: str) -> str:
        """`λ (lambda)`, with the unit where there is one."""
        return self._text(" ".join(self._parts(key)))

    def _parts(self, key: str) -> list[str]:
        """Symbol and key, or the label; then the unit where there is one."""
        item = self.parameters.get(key, {})
        symbol, unit = item.get("symbol") or "", item.get("unit")
        named = [str(symbol), f"({key})"] if symbol and symbol != key else [str(item.get("label") or key)]
        return [*named, f"[{unit}]"] if unit else named

    def heading(self, key: str, letters: int = PANEL) -> str:
        """`parameter` as it fits a panel of a figure: a long symbol or label is cut. Tables have all of it."""
        if len(whole := " ".join(self._parts(key))) <= letters:
            return text(whole)
        first, *others = self._named(key)
        after = "".join(f" {part}" for part in others)
        return cut(first, max(SHORTEST, letters - len(after))) + text(after)

    def stacked(self, key: str, letters: int) -> str:
        """The same in lines of so many letters at most, two of them for a symbol or label."""
        if len(whole := " ".join(self._parts(key))) <= letters:
            return text(whole)
        first, *others = self._named(key)
        begin, *more = textwrap.wrap(visible(first), letters)
        lines = [begin, *([" ".join(more)] if more else []), *others]
        return "<br>".join(cut(line, letters) for line in lines)

    def _named(self, key: str) -> list[str]:
        """`_parts` with the key in any case: two labels that are cut may begin alike."""
        first, *others = self._parts(key)
        return [first, *others] if f"({key})" in others or first == key else [first, f"({key})", *others]

    def symbol(self, key: str, letters: int = 0) -> str:
        """`λ`, or the key where there is no symbol; with `letters` no longer than that."""
        symbol = self.parameters.get(key, {}).get("symbol") or key
        return cut(symbol, letters) if letters else self._text(symbol)

    def setting(self, key: str, value: object) -> str:
        """`λ = 0.5`; of an option with a name of its own also that: `readout = oca (with T1)`."""
        declared = self.parameters.get(key, {}).get("declared")
        names = declared.get("names") if isinstance(declared, Mapping) else None
        name = names.get(str(value)) if isinstance(names, Mapping) else None
        shown = number(value) if name is None else f"{number(value)} ({name})"
        return f"{self.symbol(key)} = {self._text(shown)}"

    def log(self, key: str) -> bool:
        """Whether the parameter is searched on a logarithmic scale."""
        item = self.parameters.get(key, {})
        low = item.get("low")
        return bool(item.get("log")) and not (isinstance(low, (int, float)) and low <= 0)

    def numeric(self, key: str) -> bool:
        """Whether the parameter is a number (and not a choice or a flag)."""
        return self.parameters.get(key, {}).get("kind", "real") in ("real", "integer")

    def bounds(self, key: str) -> tuple[float, float] | None:
        """The interval that was searched; None where it is not recorded."""
        item = self.parameters.get(key, {})
        low, high = item.get("low"), item.get("high")
        return (
            (float(low), float(high))
            if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low < high
            else None
        )

    def options(self, key: str) -> list[str]:
        """A choice's options in the order they were declared; empty for other kinds."""
        return [str(o) for o in self.parameters.get(key, {}).get("options") or []]

    def metric(self, name: str, *, split: bool = False, unit: bool = True) -> str:
        """A metric's title with its unit; with `split`, `Global accuracy, test` in place of `Global accuracy`."""
        declared = METRICS.get(name)
        if declared is None:
            return self._text(name)
        title = declared.title
        if split:
            twin = f"val_{name}" in METRICS
            base = title.removesuffix(" (validation)")
            title = f"{base}, validation" if name.startswith("val_") else f"{base}, test" if twin else base
        unit_text = "%" if name in PERCENT else declared.unit
        return f"{title} [{unit_text}]" if unit and unit_text else title

    def scale(self, name: str) -> float:
        """As the function of this name."""
        return scale(name)

    def shown(self, name: str, value: float | None) -> str:
        """A metric's value as it is printed: `87.3 %`, `0.412 nats`."""
        if value is None or not math.isfinite(value):
            return "–"
        if is_unreached(value):
            return "not reached"
        if name in PERCENT:
            return f"{100 * value:.2f} %"
        unit = METRICS[name].unit if name in METRICS else ""
        if unit == "bytes":
            return size(value)
        return f"{value:.4g} {unit}".strip()
