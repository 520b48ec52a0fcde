"""Our numbers beside every number that the papers print for Fashion-MNIST: docs/published.csv, docs/published.md.

    python scripts/published.py add runs/fedmdcg-table1-fmnist    # takes the numbers of folders of `fedtune reproduce`
    python scripts/published.py page                              # writes the page from the numbers

A line of the CSV is one number of a paper, in its unit (accuracies in per cent):

    reproduction, dataset    `fedtune reproduce` of which it is a number
    published                where it is printed, `FedMD-CG, Table 7`
    row, column, metric      its place in the table; the column as `omega=10`
    paper_mean, paper_std    what is printed
    paper_seeds              over how many seeds; 0 where the paper does not say
    ours                     ours, by seed: `1000=84.31 1001=84.02`; empty where it has not been run
    rounds, paper_rounds     of each run of ours, and of the paper's
    model, clients           ours
    revision                 of the code that ran

Numbers of Fashion-MNIST are all there; those of another data set of a paper come with the first folder of its table. A
folder replaces what is there of its cells, and the whole table where rounds, model or clients are others.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from analysis.labels import decimals
from analysis.published.agreement import AGREES, DISAGREES, UNKNOWN
from analysis.reproduce import declaration
from analysis.reproduce.claims import Decided, decide
from analysis.reproduce.declaration import Place, Reproduction, known
from analysis.reproduce.folder import Made, ReproductionRecord, Setting, load_made
from analysis.reproduce.tables import (
    NOT_EXPLAINED,
    Number,
    Order,
    disagreements,
    every_number,
    orders,
    published,
    signed,
    spreads,
    theirs,
    why,
)
from analysis.runs.conditions import show
from analysis.tables.typesetting import markdown
from search_spaces import files
from search_spaces.errors import Shown, UserError, sentence, short
from trainables import registry

DOCS = Path(__file__).resolve().parents[1] / "docs"
CSV, PAGE = DOCS / "published.csv", DOCS / "published.md"
DATASETS = ("fmnist", "fmnist32")
#: What a run of ours was, the same in all lines of a table.
SETTING = ("rounds", "paper_rounds", "model", "clients")
HEAD = (
    *("reproduction", "dataset", "published", "row", "column", "metric", "paper_mean", "paper_std", "paper_seeds"),
    *("ours", *SETTING, "revision"),
)
#: A reproduction on one of the paper's data sets.
Sheet = tuple[str, str]
#: A line of the CSV: sheet, row, column, metric.
Key = tuple[Sheet, str, str, str]
Line = Mapping[str, str]
WORDS = (AGREES, DISAGREES, UNKNOWN)
#: Within a line of a cell.
NARROW = "\u00a0"
declared = cache(declaration.declared)
INTRODUCTION = """\
# The papers' numbers, and ours

Every number that the papers print for Fashion-MNIST, beside ours. A cell has four lines: ours (mean ± standard
deviation, n seeds), the paper's in grey, ours minus the paper's, also as a multiple of the paper's standard deviation
and of ours, and the verdict: <span class="verdict agrees">agrees</span>,
<span class="verdict disagrees">disagrees</span> or <span class="verdict untold">cannot be told</span>.
[How they are compared](verdicts.md#the-papers-numbers) says which it is when; of numbers that agree in truth, one of
twenty is called different. A disagreement is *large* where it is of more than 3 points, or of more than 3 times the
larger standard deviation.

What is not run waits for computing time. Two tables of DHF have 46 numbers, and 100 of the paper's 1,000 rounds take
about 1.4 hours of a core for one federation. DFRD's Table 1 takes minutes a federation for 5 of 100 rounds, and its
rows without data lie at chance there. Most numbers are of one seed where the papers have three or five.
`fedtune reproduce NAME --dataset fmnist --dry-run` says how long a table takes.

The page is made from [published.csv](published.csv) by `python scripts/published.py page`. Explanations are those of
`analysis/reproduce/explanations.yaml`.
"""


@dataclass(frozen=True)
class Recorded(Made):
    """A reproduction of which only the numbers are left: by row, condition and metric, by seed, in the paper's unit."""

    numbers: Mapping[tuple[str, Place, str], Mapping[int, float]] = field(default_factory=dict)

    def values(self, row: str, place: Place, metric: str) -> dict[int, float]:
        scale = self.labels.scale(metric)
        return {seed: value / scale for seed, value in self.numbers.get((row, place, metric), {}).items()}


def sheets(lines: Mapping[Key, Line]) -> list[Sheet]:
    """Every table with numbers of Fashion-MNIST, and those of other data sets in `lines`."""
    there = {sheet for sheet, *_ in lines}
    return [
        (name, dataset)
        for name in known()
        for dataset in declared(name).datasets
        if (name, dataset) in there or (dataset in DATASETS and declared(name).lines(dataset))
    ]


def at(one: Reproduction, place: Place) -> str:
    """A column as the CSV names it."""
    return " ".join(f"{key}={show(value)}" for key, value in zip(one.columns, place, strict=True))


@cache
def printed(sheet: Sheet) -> dict[Key, tuple[Place, dict[str, str]]]:
    """By line of a table, its condition and what the paper has there."""
    name, dataset = sheet
    one, found = declared(name), {}
    for metric in one.printed_metrics:
        for row in one.rows:
            for place in one.places:
                line = published(one, dataset, row, place, metric)
                if line is None:
                    continue
                digits = decimals(line.metric)
                paper = {"published": line.table, "paper_mean": f"{line.mean:.{digits}f}"}
                paper |= {"paper_std": f"{line.std:.{digits}f}", "paper_seeds": str(line.seeds)}
                found[sheet, row.name, at(one, place), metric] = place, paper
    return found


def read(path: Path) -> dict[Key, Line]:
    """The lines of a CSV that have numbers of ours. Raises `UserError` for one that is of no table."""
    if not path.exists():
        return {}
    found = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            key = (line["reproduction"], line["dataset"]), line["row"], line["column"], line["metric"]
            if line["reproduction"] not in known() or key not in printed(key[0]):
                place = f"{line['reproduction']}, {line['row']}, {line['column']}, {line['metric']}"
                raise UserError(sentence("A line", "of a declared table", Shown(place), str(path)))
            if line["ours"]:
                found[key] = {name: line[name] for name in ("ours", *SETTING, "revision")}
    return found


def text(lines: Mapping[Key, Line]) -> str:
    """The whole CSV, the paper's numbers as they are declared."""
    out = io.StringIO()
    writer = csv.DictWriter(out, HEAD, restval="", lineterminator="\n")
    writer.writeheader()
    for sheet in sheets(lines):
        for key, (_, paper) in printed(sheet).items():
            where = dict(zip(HEAD, (*sheet, "", *key[1:]), strict=False))
            writer.writerow(where | paper | dict(lines.get(key, {})))
    return out.getvalue()


def taken(folder: Path) -> dict[Key, Line]:
    """The numbers of a reproduction. Raises `UserError` for one that is not on the paper's terms, or has none."""
    made = load_made(folder)
    one, sheet = made.reproduction, (made.reproduction.name, made.here.dataset)
    if made.record.profile == "small":
        raise _refused("of the paper's setting", "the small form", folder, "Make it without --small.")
    if made.other_data:
        on = " or ".join(one.datasets)
        raise _refused(f"on {on}", made.here.data, folder, "Give one of them with --dataset.")
    found = {}
    setting = (made.here.rounds, made.paper.rounds, made.here.model, made.here.clients)
    for key, (place, _) in printed(sheet).items():
        _, row, _, metric = key
        scale, values = made.labels.scale(metric), made.values(row, place, metric)
        if values:
            line = dict(zip(SETTING, map(str, setting), strict=True))
            line["ours"] = " ".join(f"{seed}={scale * value:.6g}" for seed, value in sorted(values.items()))
            found[key] = line | {"revision": revision(made.runs[row, place].provenance.get("git"))}
    if not found:
        raise _refused("one with numbers that the paper prints", "none", folder, "Let one of its cells run to its end.")
    return found


def _refused(must: str, got: str, folder: Path, fix: str) -> UserError:
    return UserError(sentence("A reproduction", must, Shown(got), short(str(folder)), fix))


def revision(git: object) -> str:
    """A recorded revision, shortened; a mark stays that the work tree had changes."""
    commit, plus, changes = str(git or "").partition("+")
    return commit[:12] + plus + changes


def added(lines: Mapping[Key, Line], new: Mapping[Key, Line]) -> dict[Key, Line]:
    """`lines` with those of one folder; of its table, those of another setting are left out."""
    ((sheet, *_), first), *_ = new.items()
    kept = {key: line for key, line in lines.items() if key[0] != sheet or all(line[x] == first[x] for x in SETTING)}
    return kept | new


def made_of(sheet: Sheet, lines: Mapping[Key, Line]) -> Recorded:
    """A table as its lines have it."""
    name, dataset = sheet
    one, numbers = declared(name), {}
    here = paper = Setting(dataset, "", 0, 0, one.seeds)
    for key, (place, _) in printed(sheet).items():
        if (line := lines.get(key)) is not None:
            each = dict(pair.split("=") for pair in line["ours"].split())
            numbers[key[1], place, key[3]] = {int(seed): float(value) for seed, value in each.items()}
            model, clients = line["model"], int(line["clients"])
            here = Setting(dataset, model, clients, int(line["rounds"]), max(here.seeds, len(each)))
            paper = Setting(dataset, model, clients, int(line["paper_rounds"]), one.seeds)
    symbols = {key: registry.declared(one.rows[0].method)[key].symbol or key for key in one.columns}
    runs: Any = {(row, place): None for row, place, _ in numbers}
    return Recorded(Path(name), ReproductionRecord(name, "paper", here, paper, symbols), one, runs, numbers)


def page(lines: Mapping[Key, Line]) -> str:
    """The whole page."""
    sections, overview, here, whys = [], [], [], []
    for sheet in sheets(lines):
        made = made_of(sheet, lines)
        numbers = [one for one in every_number(made) if one.paper is not None]
        decided = decide(made)
        if sheet[1] in DATASETS:
            here += numbers
            whys += [why(made, one) for one in numbers if one.judged.large]
        title = heading(sheet, numbers)
        anchor = re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        held = Counter(one.verdict for one in decided)
        sentences = " / ".join(str(held[word]) for word in WORDS) if made.runs else "–"
        overview.append(f"| [{title}](#{anchor}) | {' | '.join(map(str, counts(numbers)))} | {sentences} |")
        sections.append(section(title, sheet, made, numbers, decided, lines))
    told = counts(here)
    overview.append(f"| **all of Fashion-MNIST** | {' | '.join(f'**{count}**' for count in told)} | |")
    summary = f"**{told[1]} of {told[0]} numbers for Fashion-MNIST have been run: {told[2]} agree, {told[3]} disagree, "
    summary += f"{told[4]} cannot be told.**"
    if whys:
        summary += (
            f" {len(whys)} of the disagreements are large; {whys.count(NOT_EXPLAINED)} of these are not explained."
        )
    head = (
        "| table | numbers | run | agree | disagree | cannot be told | sentences |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    below = "*Sentences*: those of the paper about the table that agree / disagree / cannot be told."
    title, _, introduction = INTRODUCTION.rstrip().partition("\n\n")
    parts = [title, summary, introduction, "\n".join([head, *overview]), below, *sections]
    return "\n\n".join(parts) + "\n"


def counts(numbers: Sequence[Number]) -> list[int]:
    """How many numbers there are, how many have been run, and how many of these have each verdict."""
    run = Counter(one.verdict for one in numbers if one.ours.n)
    return [len(numbers), run.total(), *(run[word] for word in WORDS)]


def heading(sheet: Sheet, numbers: Sequence[Number]) -> str:
    """What the paper calls the table; of another data set with its name."""
    table = next(one.paper.table for one in numbers if one.paper is not None)
    return table if sheet[1] in DATASETS else f"{table}, {sheet[1]}"


def section(
    title: str,
    sheet: Sheet,
    made: Recorded,
    numbers: Sequence[Number],
    decided: Sequence[Decided],
    lines: Mapping[Key, Line],
) -> str:
    """One table: how to make it, its numbers, its order, what disagrees, and the paper's sentences."""
    one = made.reproduction
    how = f"{one.title}, as `fedtune reproduce {one.name} --dataset {sheet[1]}` makes it."
    if not any(number.paper and number.paper.seeds for number in numbers):
        how += f" The paper does not say over how many runs its deviations are; {one.seeds} are assumed."
    parts = [f"## {title}", how]
    if made.runs:
        revisions = sorted({line["revision"] for key, line in lines.items() if key[0] == sheet} - {""})
        short_of = made.here.rounds < made.paper.rounds
        rounds = (
            f"{made.here.rounds} of the paper's {made.paper.rounds} rounds"
            if short_of
            else f"{made.here.rounds} rounds"
        )
        ours = [
            f"model {made.here.model}",
            f"{made.here.clients} clients",
            rounds,
            *(f"revision {r}" for r in revisions),
        ]
        parts.append(f"Ours: {', '.join(ours)}." + (" So the verdicts are open." if short_of else ""))
    for metric in one.printed_metrics:
        parts += [f"**{made.labels.metric(metric)}**", grid(made, [n for n in numbers if n.metric == metric])]
        if order := [kendall(made, each) for each in orders(made) if each.metric == metric]:
            parts.append(f"Order of the rows, Kendall's τ: {'; '.join(order)}.")
    if any(number.verdict == DISAGREES for number in numbers):
        table = disagreements(made)
        shown = [column for column in table.columns if column.key in ("cell", "difference", "why")]
        parts.append(replace(table, columns=shown).markdown().rstrip())
    if made.runs:
        rows = [
            f"| {coloured(each.verdict)}{markdown(each.told.removeprefix(each.verdict))} "
            f'| {markdown(each.claim.says)}<br><span class="theirs">{markdown(each.why)}</span> |'
            for each in decided
        ]
        parts.append("\n".join(["| verdict | the paper's sentence, and why |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def grid(made: Made, numbers: Sequence[Number]) -> str:
    """A table of one metric as the paper has it."""
    by_place = {(one.row, one.place): one for one in numbers}
    places = list(dict.fromkeys(one.place for one in numbers))
    head = ["method", *(made.named(place) or "result" for place in places)]
    rows = [
        [row, *(cell(by_place[row, place]) for place in places)] for row in dict.fromkeys(one.row for one in numbers)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---", *["---:"] * len(places)], *rows))


def cell(one: Number) -> str:
    """Ours, the paper's, how far they are apart, and the verdict."""
    paper = f'<span class="theirs">{theirs(one.paper).replace(" ", NARROW)}</span>'
    if not one.ours.n:
        return f"{paper}<br>not run"
    ours = f"{one.ours.shown(digits=decimals(one.metric))}, n = {one.ours.n}".replace(" ", NARROW)
    apart = f"{signed(one)} = {spreads(one.judged).removesuffix(', –')} std".replace(" ", NARROW)
    word = coloured(one.verdict) + (" (large)" if one.judged.large else "")
    return f"{ours}<br>{paper}<br>{apart}<br>{word}"


def coloured(word: str) -> str:
    """A verdict in its colour."""
    look = {AGREES: AGREES, DISAGREES: DISAGREES}.get(word, "untold")
    return f'<span class="verdict {look}">{word}</span>'


def kendall(made: Made, order: Order) -> str:
    tau = "–" if math.isnan(order.tau) else f"{order.tau:.2f}".replace("-", "−")
    of = f"n = {order.rows}" + (f" of {order.of}" if order.rows < order.of else "")
    return ": ".join(filter(None, (made.named(order.place), f"{tau} ({of})")))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add", help="Take the numbers of folders of `fedtune reproduce` into the CSV.")
    add.add_argument("folders", nargs="+", type=Path, metavar="RUN_FOLDER")
    commands.add_parser("page", help="Write the page, and the paper's numbers into the CSV.")
    asked = parser.parse_args(arguments)
    try:
        lines = read(CSV)
        for folder in asked.folders if asked.command == "add" else ():
            new = taken(folder)
            before, lines = lines, added(lines, new)
            print(f"{folder}: {len(new)} numbers, {len(new.keys() & before.keys())} of them in place of earlier ones.")
            if gone := before.keys() - lines.keys():
                print(f"{len(gone)} earlier numbers of its table are of another setting, and were taken out.")
        files.replace(CSV, text(lines))
        if asked.command == "page":
            files.replace(PAGE, page(lines))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
