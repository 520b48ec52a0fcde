"""docs/performance.md from the results: goals first, then a section per case. Drawings are small SVG files beside
it."""

from __future__ import annotations

import html
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import ORDER, OTHERS, gpu
from benchmarks.measure import ROOT
from benchmarks.results import RECORDED, RESULTS, Case, Goal, load
from tests import packed

DOCS = ROOT / "docs"

HEAD = """# Performance

{follows}

Made by `python -m benchmarks record` from `benchmarks/recorded`; measured by `make bench`, `make bench-peers` and
`make bench-gpu`. Figures are medians of interleaved runs (A, B, C, A, B, C …) on one machine, first turns left out, a process per
arm, one thread unless said. Seconds depend on the machine; ratios are taken within a turn and are what counts, differences under
about 7 % are noise. The reference loops are kept in `benchmarks`.

```sh
python -m benchmarks page --check
```
"""
#: Where the axes of a drawing begin.
LEFT, TOP = 70, 34
#: What the page shows, by case what the titles of its tables begin with. All else stays in the record.
SHOWN = {
    "client_round": ("Seconds per round",),
    "two_cores": ("Rounds of LeNet-5 on two cores, digits",),
    "search": ("20 trials of LeNet-5, digits",),
    "scaling": ("Clients",),
    "peers": ("FedAvg, LeNet-5",),
    "pfllib": ("Seconds per round",),
    "gpu": ("LeNet-5 on", "Steps of different sizes"),
}
#: What the page begins with, by goals.
FOLLOWS = {
    "Two packed trials against the plain 1-thread loop with fedtune's allocator settings": "On two cores two trials "
    "side by side do {} times the rounds of a plain loop of PyTorch on one of them.",
    "Two packed trials against Flower at its best": "It is {} times those of Flower at its best on both cores.",
    "Two packed trials against pfl-research at its best": "It is {} times those of pfl-research at its best on both cores.",
    "LeNet-5: rounds per hour of 4 trials on one GPU against one": "On a GPU four trials of a small model do {} times "
    "the rounds of one.",
}
ALSO = """## Also measured

`xzcat benchmarks/recorded/performance.json.xz` shows the figures of everything here and of
"""
COLOURS = ("#3366cc", "#dc6b1f", "#2f8f4e", "#a0459b", "#777777")


def markdown(found: Mapping[str, Any]) -> str:
    """The page's text: what is asked for most, and where the rest stands."""
    cases = found["cases"]
    shown = {name: titles for name, titles in SHOWN.items() if name in cases}
    rest = [cases[name] for name in (*ORDER, *OTHERS) if name in cases and name not in shown]
    parts = [HEAD.format(follows=_follows(cases)), _machines({name: cases[name] for name in shown})]
    parts.append(_goals(cases, list(shown)))
    for name, titles in shown.items():
        entry = cases[name]
        tables = [found for found in entry["tables"] if found["title"].startswith(titles)]
        parts.append(_section(entry | {"tables": tables, "notes": [] if entry["curves"] else entry["notes"]}))
    if rest:
        parts.append(ALSO)
        for entry in rest:
            goals = _goals_of(entry["name"], cases)
            reached = f" ({sum(goal.met for goal in goals)} of {len(goals)} goals reached)" if goals else ""
            parts.append(f"- {entry['title']}{reached}")
    return "\n".join(parts).rstrip() + "\n"


def _follows(cases: Mapping[str, Any]) -> str:
    """What follows from the figures: what a search gains and costs, and which goals were missed."""
    every = [goal for name in (*ORDER, *OTHERS) for goal in _goals_of(name, cases)]
    goals = [goal for goal in every if goal.got is not None]
    if not goals:
        return "No goal was measured yet."
    got = {goal.text: number(goal.got) for goal in goals}
    said = [words.format(got[text]) for text, words in FOLLOWS.items() if text in got]
    missed = [goal.text for goal in goals if not goal.met]
    said.append(f"Of {len(goals)} goals for speed that were measured {len(goals) - len(missed)} are reached.")
    if missed:
        said.append(f"Missed: {'; '.join(missed)}.")
    if there := [goal.text for goal in every if goal.got is None]:
        said.append(f"Not measured yet, as `make bench-gpu` needs a GPU: {'; '.join(there)}.")
    return " ".join(said)


def _goals_of(name: str, cases: Mapping[str, Any]) -> list[Goal]:
    """The goals of a case; those on a GPU whether they were measured or not."""
    goals = [Goal(**entry) for entry in cases.get(name, {}).get("goals", ())]
    return gpu.all_of(goals) if name == "gpu" else goals


def _machines(cases: Mapping[str, Any]) -> str:
    texts: dict[str, list[str]] = {}
    for name in (*ORDER, *OTHERS):
        if name in cases:
            m = cases[name]["machine"]
            gpu = f", {m['gpu']}" if m["gpu"] else ", no GPU"
            text = (
                f"{m['cores']} cores of {m['processor']} ({', '.join(m['extensions']) or 'no AVX-512'}), "
                f"{m['memory_gib']} GiB{gpu}, PyTorch {m['torch']}, "
                f"Python {m['python']}, {m['date']}, revision {m['revision']}"
            )
            texts.setdefault(text, []).append(name)
    return "".join(f"Measured on {text} ({', '.join(names)}).\n" for text, names in texts.items())


def _goals(cases: Mapping[str, Any], shown: Sequence[str]) -> str:
    """The goals of these cases, and of the others those that were missed."""
    rows = []
    for name in (*ORDER, *OTHERS):
        for goal in _goals_of(name, cases):
            if goal.met and name not in shown:
                continue
            between = f" ({number(goal.spread[0])} to {number(goal.spread[1])})" if goal.spread else ""
            rows.append(
                [
                    goal.text,
                    f"{'≥' if goal.least else '≤'} {number(goal.must)}{goal.unit}",
                    "not measured" if goal.got is None else f"{number(goal.got)}{goal.unit}{between}",
                    "yes" if goal.met else "" if goal.got is None else "**no**",
                ]
            )
    return (
        "## Goals\n\n" + table(["what", "must reach", "measured (range over turns)", "reached"], rows) if rows else ""
    )


def _section(entry: Mapping[str, Any]) -> str:
    parts = [f"## {entry['title']}\n", " ".join(entry["text"].split()) + "\n"]
    for found in entry["tables"]:
        parts += [f"{found['title']}:\n", table(found["columns"], found["rows"])]
    for place, curve in enumerate(entry["curves"]):
        parts.append(f"![{curve['title']}](performance/{entry['name']}-{place + 1}.svg)\n")
    parts += [f"{note}\n" for note in entry["notes"]]
    return "\n".join(parts)


def number(value: Any) -> str:
    """Three significant digits; whole numbers from 100 on; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.0e}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A markdown table; columns of numbers are set to the right."""
    right = [any(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
    lines = ["| " + " | ".join(columns) + " |", "|" + "|".join("--:" if r else "---" for r in right) + "|"]
    lines += ["| " + " | ".join(number(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def terminal(case: Case) -> str:
    """A case's tables and goals for a screen."""
    parts = []
    for found in case.tables:
        cells = [found["columns"], *([number(cell) for cell in row] for row in found["rows"])]
        widths = [max(len(row[i]) for row in cells) for i in range(len(found["columns"]))]
        parts.append(found["title"])
        parts += [
            "  "
            + "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
    return "\n".join([*parts, *map(_line, case.goals), *case.notes])


def _line(goal: Goal) -> str:
    """A goal for a screen."""
    must = f"(must be {'≥' if goal.least else '≤'} {number(goal.must)}{goal.unit})"
    if goal.got is None:
        return f"not measured  {goal.text} {must}"
    return f"{'reached    ' if goal.met else 'NOT REACHED'}  {goal.text}: {number(goal.got)}{goal.unit} {must}"


def svg(curve: Mapping[str, Any]) -> str:
    """A drawing of a few series: axes with ticks, a line and points each, a legend. Logarithmic axes where asked
    for."""
    out, at = frame(curve, [p for series in curve["series"].values() for p in series])
    for place, (name, series) in enumerate(curve["series"].items()):
        out += line(name, [at(x, y) for x, y in series], COLOURS[place % len(COLOURS)], LEFT + 8, TOP + 16 + 16 * place)
    return "\n".join([*out, "</svg>"]) + "\n"


def frame(
    curve: Mapping[str, Any], points: Sequence[Sequence[float]], width: int = 560, size: int = 12
) -> tuple[list[str], Callable[[float, float], tuple[float, float]]]:
    """The beginning of a drawing `width` wide with letters of that `size`: its title and the axes round all `points`,
    and where (x, y) is on it."""
    height, right, bottom = 320, 20, 48
    low_x, high_x = min(p[0] for p in points), max(p[0] for p in points)
    high_y, low_y = max(p[1] for p in points), min((p[1] for p in points), default=0)
    log = curve["log"] and low_x > 0 and low_y > 0
    ticks_x, ticks_y = (_ticks(low_x, high_x, log), _ticks(low_y if log else curve.get("from", 0.0), high_y, log))
    scale = math.log10 if log else float

    def place(value: float, ticks: Sequence[float], start: float, end: float) -> float:
        a, b = scale(ticks[0]), scale(ticks[-1])
        return start + (end - start) * ((scale(value) - a) / (b - a) if b > a else 0.5)

    def at(x: float, y: float) -> tuple[float, float]:
        return place(x, ticks_x, LEFT, width - right), place(y, ticks_y, height - bottom, TOP)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="{size}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="{size + 1}">{html.escape(curve["title"])}</text>',
    ]
    for x in ticks_x:
        px, _ = at(x, ticks_y[0])
        out.append(
            f'<path d="M{px:.1f} {TOP}V{height - bottom}" stroke="#dddddd"/><text x="{px:.1f}" '
            f'y="{height - bottom + 16}" '
            f'text-anchor="middle">{x:,g}</text>'
        )
    for y in ticks_y:
        _, py = at(ticks_x[0], y)
        out.append(
            f'<path d="M{LEFT} {py:.1f}H{width - right}" stroke="#dddddd"/><text x="{LEFT - 6}" y="{py + 4:.1f}" '
            f'text-anchor="end">{y:,g}</text>'
        )
    out.append(
        f'<text x="{(LEFT + width - right) / 2}" y="{height - 10}" '
        f'text-anchor="middle">{html.escape(curve["x"])}</text>'
    )
    out.append(
        f'<text transform="translate(16 {(TOP + height - bottom) / 2}) rotate(-90)" '
        f'text-anchor="middle">{html.escape(curve["y"])}</text>'
    )
    return out, at


def line(name: str, spots: Sequence[tuple[float, float]], colour: str, x: int, y: int) -> list[str]:
    """A line through `spots` with a circle at each, and its name at (x, y)."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    return [
        f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots),
        f'<text x="{x}" y="{y}" fill="{colour}">{html.escape(name)}</text>',
    ]


def _ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers that enclose [low, high]."""
    if log:
        steps = [
            m * 10.0**e
            for e in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
            for m in (1, 2, 5)
        ]
        first = max(i for i, s in enumerate(steps) if s <= low * (1 + 1e-9))
        last = min(i for i, s in enumerate([*steps, math.inf]) if s >= high * (1 - 1e-9))
        kept = steps[first : last + 1]
        return kept if len(kept) > 1 else [low / 2, low * 2]
    size = 10.0 ** math.floor(math.log10(max(high - low, 1e-12) / 3))
    step = next(size * m for m in (1, 2, 5, 10) if (high - low) / (size * m) <= 6)
    start = math.floor(low / step + 1e-9) * step
    return [start + i * step for i in range(math.ceil((high - start) / step - 1e-9) + 1)]


def write(found: Mapping[str, Any], folder: Path) -> None:
    """`performance.md` and its drawings in that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    drawings = folder / "performance"
    shutil.rmtree(drawings, ignore_errors=True)
    for entry in found["cases"].values():
        for place, curve in enumerate(entry["curves"]):
            drawings.mkdir(exist_ok=True)
            (drawings / f"{entry['name']}-{place + 1}.svg").write_text(svg(curve), encoding="utf-8")
    (folder / "performance.md").write_text(markdown(found), encoding="utf-8")


def record() -> int:
    """Keeps the measured cases beside what was not measured again, and makes the page."""
    found, recorded = load(RESULTS), packed.read(RECORDED)
    tries = [name for name, entry in found["cases"].items() if entry["quick"]]
    if tries:
        print(f"{tries[0]} was only tried; tries are not recorded. Measure it without --quick.", file=sys.stderr)
        return 2
    cases = {**recorded["cases"], **found["cases"]}
    together = {"cases": {name: cases[name] for name in (*ORDER, *OTHERS) if name in cases}}
    packed.write(RECORDED, together)
    return make()


def make() -> int:
    """Makes the page and its drawings of the recorded figures."""
    write(packed.read(RECORDED), DOCS)
    print(DOCS / "performance.md")
    return 0


def check() -> int:
    """Whether the page and its drawings are what the recorded figures give."""
    with tempfile.TemporaryDirectory() as folder:
        write(packed.read(RECORDED), Path(folder))
        made = {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
    there = {
        path.relative_to(DOCS): path.read_bytes()
        for path in [DOCS / "performance.md", *DOCS.glob("performance/*")]
        if path.exists()
    }
    if made != there:
        print(
            f"docs/performance.md is not what {RECORDED.name} gives. Make it anew with `python -m benchmarks page`.",
            file=sys.stderr,
        )
        return 1
    print(f"docs/performance.md and {len(made) - 1} drawings are what {RECORDED.name} gives")
    return 0
