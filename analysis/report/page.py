"""One offline HTML page: the filled template, plotly.js once, and figures and tables as JSON.

A figure's numbers have as many digits as can be seen (`compact`), so that the page of a large search stays small. A
number is a double of up to 17 digits; on a screen of some thousand pixels its sixth digit cannot be seen any more. What
is left out is at most a hundred-thousandth of what an array spans, on a logarithmic axis of each number itself. Whole
numbers, among them those of trials, stay as they are, and so does what the reader can copy: the table of trials.

Nothing is fetched from anywhere, and the page tells the browser to allow nothing else (`policy`). Text goes in through
`escape`, data through `script_json`; the page's script sets table cells as text.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import html
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analysis import style
from search_spaces.errors import visible
from search_spaces.files import NO_FILE, cannot_write, is_no_file, replace

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: A figure that may be wider than its card is scrolled sideways, also by the keyboard.
WIDER = ' tabindex="0" role="group" aria-label="Scrolls sideways where it is wider than the page"'
#: What may be left out of a number, as a part of it and of its array's span.
PART = 1e-5
#: Digits that are always kept.
DIGITS = 6
#: The arrays of a trace that are drawn; what is behind a link or in a text keeps all its digits.
ARRAYS = ("x", "y", "z")
_SINGLE = np.finfo(np.float32)


def escape(raw: object) -> str:
    """`raw` as the text of an HTML element or attribute; what can hide or turn round other text is written out."""
    return html.escape(visible(str(raw)), quote=True)


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in; what hides or turns round text is escaped."""
    text = visible(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@dataclass
class Page:
    """The parts of a page: sections of HTML, and the figures and tables to which they refer by name."""

    title: str
    sections: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    #: What can be opened of single trials, by the prefix of their run's anchors.
    details: dict[str, Any] = field(default_factory=dict)
    #: The abbreviations and signs that have been explained (`analysis.report.terms`).
    told: set[str] = field(default_factory=set)

    def add(self, section: str, anchor: str = "", link: str = "") -> None:
        """One more section; with `link`, also an entry of the navigation."""
        self.sections.append(section)
        if link:
            self.links.append((anchor, link))

    def card(self, anchor: str, title: str, inner: str, link: str = "") -> None:
        """A section with a heading in a box."""
        self.add(
            f'<section class="card" id="{escape(anchor)}" aria-labelledby="{escape(anchor)}-title">'
            f'<h2 id="{escape(anchor)}-title">{escape(title)}</h2>\n{inner}</section>',
            anchor,
            link,
        )

    def figure(self, anchor: str, title: str, figure: go.Figure, read: Sequence[str], link: str = "") -> None:
        """A figure's card with the sentences on how to read it."""
        self.card(anchor, title, self.drawn(anchor, title, figure, read), link)

    def drawn(self, anchor: str, title: str, figure: go.Figure, read: Sequence[str]) -> str:
        """The same without its card, as HTML."""
        note, wider = self._keep(anchor, figure)
        caption = " ".join(escape(s) for s in read) + (f' <span class="note">{escape(note)}</span>' if note else "")
        return (
            f'<figure{wider}><div class="plot" data-figure="{escape(anchor)}" role="img" aria-label="{escape(title)}: '
            f'{escape(" ".join(read))}"></div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )

    def figures_of(
        self, anchor: str, title: str, figures: Sequence[tuple[str, go.Figure]], read: Sequence[str], link: str = ""
    ) -> None:
        """One card with a figure under each heading."""
        drawn = []
        for i, (heading, figure) in enumerate(figures):
            name = f"{anchor}-{i}"
            note, wider = self._keep(name, figure)
            label = f"{title}, {heading}: {' '.join(read)}"
            caption = f'<figcaption><span class="note">{escape(note)}</span></figcaption>' if note else ""
            drawn.append(
                f'<h3>{escape(heading)}</h3><figure{wider}><div class="plot" data-figure="{escape(name)}" role="img" '
                f'aria-label="{escape(label)}"></div>{caption}</figure>'
            )
        words = f'<p class="small">{" ".join(escape(s) for s in read)}</p>'
        self.card(anchor, title, words + "".join(drawn), link)

    def _keep(self, name: str, figure: go.Figure) -> tuple[str, str]:
        """Remembers what is drawn under that name; its note, and what lets the reader scroll to all of it."""
        self.figures[name] = plain = compact(json.loads(figure.to_json()))
        meta = plain["layout"].get("meta") or {}
        return meta.get("note") or "", WIDER if meta.get("least") else ""

    def html(self, footer: str = "") -> str:
        """The whole document."""
        from plotly.offline import get_plotlyjs

        folder = resources.files("analysis.report") / "templates"
        parts = {
            "title": escape(self.title),
            "css": (folder / "page.css").read_text(encoding="utf-8"),
            "js": (folder / "page.js").read_text(encoding="utf-8"),
            "plotlyjs": get_plotlyjs() if self.figures else "",
            "nav": "".join(f'<a href="#{escape(a)}">{escape(t)}</a>' for a, t in self.links),
            "body": "\n".join(self.sections),
            "footer": escape(footer),
            "data": script_json(
                {
                    "figures": self.figures,
                    "tables": self.tables,
                    "details": self.details,
                    "light": style.LIGHT,
                    "dark": style.DARK,
                }
            ),
        }
        parts["policy"] = policy(parts["plotlyjs"], parts["js"])
        template = (folder / "page.html").read_text(encoding="utf-8")
        # One pass, so that a value which happens to contain {{...}} is not filled in again.
        return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m.group(1)], template)


def policy(*scripts: str) -> str:
    """The content security policy of a page whose scripts are these and no others: a browser runs no other script,
    loads nothing from anywhere and sends nothing. Plotly.js and our figures set styles in place, so styles are allowed;
    they can fetch nothing. Pictures are part of the page, or made in it to be saved."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'"
    )


def definition(rows: Mapping[str, str] | Sequence[tuple[str, str]]) -> str:
    """A two-column table of names and texts."""
    pairs = rows.items() if isinstance(rows, Mapping) else rows
    return (
        '<div class="scroll"><table><tbody>'
        + "".join(f'<tr><th scope="row">{escape(k)}</th><td class="words">{escape(v)}</td></tr>' for k, v in pairs)
        + "</tbody></table></div>"
    )


def command(line: str) -> str:
    """A command line with a button that copies it."""
    return f'<div class="command"><code>{escape(line)}</code><button class="copy" type="button">copy</button></div>'


def check_place(path: Path) -> None:
    """Raises `UserError` where `write` could not write the file: something else is there, or its folder cannot be made
    or written to."""
    try:
        if not path.name or is_no_file(path):
            raise OSError(errno.EISDIR, f"it is {NO_FILE}", str(path))
        folder = next(folder for folder in path.absolute().parents if folder.exists())
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        raise cannot_write(path, error, "Give another place with -o.") from error


def write(path: Path, content: str | bytes) -> Path:
    """Writes the file whole or not at all. Raises `UserError` where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content)
    except OSError as error:
        raise cannot_write(path, error, "Give another place with -o.") from error
    return path


def compact(figure: dict[str, Any]) -> dict[str, Any]:
    """`figure` as Plotly's JSON has it, its traces' arrays shortened in place."""
    for trace in figure["data"]:
        for name in ARRAYS:
            if isinstance(trace.get(name), dict):
                trace[name] = _packed(trace[name])
            elif isinstance(trace.get(name), list):
                trace[name] = _listed(trace[name])
    return figure


def _packed(array: dict[str, Any]) -> dict[str, Any]:
    """Doubles packed as single numbers, where these are exact enough."""
    if array.get("dtype") != "f8":
        return array
    values = np.frombuffer(base64.b64decode(array["bdata"]), dtype="<f8")
    if not _single_is_enough(values):
        return array
    return array | {"dtype": "f4", "bdata": base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")}


def _single_is_enough(values: NDArray[np.float64]) -> bool:
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(sizes):
        return True
    return bool(sizes.min() > _SINGLE.tiny and sizes.max() < _SINGLE.max and _ratio(values) * _SINGLE.eps <= PART)


def _listed(values: list[Any]) -> list[Any]:
    """Fractions in a list, or in the lists in it, rounded; all else as it was."""
    fractions = np.array([value for value in _fractions(values) if math.isfinite(value)])
    if not len(fractions):
        return values
    ratio = _ratio(fractions)
    digits = DIGITS + math.ceil(math.log10(ratio)) if ratio < 10**9 else 17
    return _rounded(values, digits)


def _fractions(values: list[Any]) -> Iterator[float]:
    for value in values:
        if isinstance(value, list):
            yield from _fractions(value)
        elif isinstance(value, float):
            yield value


def _rounded(values: list[Any], digits: int) -> list[Any]:
    return [
        _rounded(value, digits)
        if isinstance(value, list)
        else float(f"{value:.{digits}g}")
        if isinstance(value, float) and math.isfinite(value)
        else value
        for value in values
    ]


def _ratio(values: NDArray[np.float64]) -> float:
    """How many times the largest number is as large as what all of them span; 1 where all are the same."""
    finite = values[np.isfinite(values)]
    span = float(finite.max() - finite.min()) if len(finite) else 0.0
    return max(1.0, float(np.abs(finite).max()) / span) if span > 0 else 1.0
