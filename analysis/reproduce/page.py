"""The page of a reproduction, and its tables as files. On the page first what became of the paper's sentences, then its
table or figure with both numbers in every cell, then what each sentence rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from analysis.figures import figure
from analysis.figures._common import two_keys
from analysis.labels import Labels
from analysis.report.page import Page, command, escape, write
from analysis.report.terms import explained
from analysis.reproduce.claims import Decided, region
from analysis.reproduce.folder import Made
from analysis.reproduce.joint_table import joined
from analysis.reproduce.measures import MEASURES
from analysis.reproduce.pictures import pictures
from analysis.reproduce.tables import (
    agreement,
    both,
    comparisons,
    disagreements,
    look,
    numbers,
    orders,
    pivots,
    verdicts,
)
from analysis.tables.pivot import Pivot, to_csv
from search_spaces import run_folder

HOW = (
    "A sentence agrees where every comparison it speaks of is significant in its direction (paired t test over seeds, "
    "Holm’s correction, 0.05), and disagrees where one is significant against it; of a sentence about most cases more "
    "than half of them decide. Differences are signed so that above 0 the side is better that the paper has ahead."
)
HOW_ALIKE = (
    "Of a sentence that says that values are alike, every comparison is with the cell that all rows share, and a limit "
    "is declared, as the paper names none. It agrees where every difference is significantly smaller than the limit "
    "(two one-sided paired t tests over seeds, Holm’s correction, 0.05), and disagrees where one is significantly "
    "larger. The limit minus the absolute difference is what is written as the difference."
)
HOW_CELL = (
    "A cell with several seeds is compared by Welch’s t test of both means, one with a single seed by the t test of "
    "one further run among the paper’s; it disagrees where p is below 0.05. It agrees where several seeds show no "
    "difference and their mean lies where a single run of the paper would, or where one seed lies there and within "
    "three points. The rest cannot be told."
)
HOW_GAP = (
    "Of a sentence that says that a lead is larger under one condition than under another, every comparison is of the "
    "two leads, under the same seed."
)
HOW_UNTESTED = "Some sentences cannot be decided by these runs; the reason stands with each of them."
#: Before the order of the rows.
KENDALL = "The rows’ order here and in the paper, Kendall’s τ (1: the same, −1: the opposite):"
HOW_REGION = (
    "A region agrees or disagrees where its cells’ mean lies apart from that of the others (permutation test over "
    "cells, 0.05) with the same sign under every seed."
)


def write_all(made: Made, decided: Sequence[Decided], again: str, *, finished: bool) -> Path:
    """Writes the page, both CSV files and, of a table, its own files into the folder; returns the page's path."""
    write(made.path / run_folder.VERDICTS, verdicts(made, decided).csv())
    write(made.path / run_folder.NUMBERS, numbers(made).csv())
    for kind, text in table_files(made).items():
        write(made.path / run_folder.TABLES[kind], text)
    return write(made.path / run_folder.REPORT, reproduction_page(made, decided, again, finished=finished).html())


def table_files(made: Made) -> dict[str, str]:
    """The table in the paper's layout by format, for another paper; nothing of a heat map, or before a result."""
    drawn = [] if made.reproduction.heatmap else pivots(made)
    if not drawn:
        return {}
    sheet = joined([made]).printed()
    return {"tex": sheet.latex(), "md": sheet.markdown(), "csv": to_csv(drawn)}


def reproduction_page(made: Made, decided: Sequence[Decided], again: str, *, finished: bool) -> Page:
    """The whole page."""
    reproduction = made.reproduction
    made_page = Page(f"{reproduction.source}, made again")
    made_page.add(
        f'<h1>{escape(reproduction.source)}, made again</h1><p class="lead">{escape(reproduction.title)}</p>'
        + ("" if finished else f'<p class="notice">{escape(unfinished(made))}</p>')
        + (f'<p class="notice">{escape(failures(made))}</p>' if made.failed else "")
        + _facts(made)
    )
    claims = _claims(made, decided) + _terms(made_page, made)
    made_page.card("claims", "What the paper says, and what these runs say", claims, "Claims")
    if reproduction.heatmap:
        _heatmap(made_page, made)
    else:
        _pictures(made_page, made)
        _tables(made_page, made)
        _numbers(made_page, made)
    if behind := _comparisons(made, decided):
        made_page.card("comparisons", "What each sentence rests on", behind, "Comparisons")
    made_page.card("again", "Again, or further", command(again), "")
    return made_page


def _terms(made_page: Page, made: Made) -> str:
    """What the abbreviations and signs of the sentences, of the table's columns and of the map's axes mean."""
    one, run = made.reproduction, made.heatmap
    metrics = [*one.printed_metrics, *(m for row in one.rows for m in row.metrics)]
    if run is None:
        return explained(made_page.told, metrics, one.columns, made.labels)
    return explained(made_page.told, metrics, two_keys(run)[:2], Labels.of([run], markup=False))


def unfinished(made: Made) -> str:
    """That something is missing."""
    cells = "" if made.reproduction.heatmap else f" in {made.planned - made.missing} of {made.planned} cells"
    return f"Not all of it has been run: {made.done} federations have ended{cells}. What is said here is of those."


def failures(made: Made) -> str:
    """In which cells trials have failed."""
    cells = ", ".join(f"{path.name} ({count})" for path, count in made.failed.items())
    return f"Trials failed in {cells}; `fedtune status` of the cell says why. They take no part in what is said here."


def _facts(made: Made) -> str:
    pairs = [
        ("Data", made.here.data, made.paper.data),
        ("Model", made.here.model, made.paper.model),
        ("Clients", str(made.here.clients), str(made.paper.clients)),
        ("Rounds", str(made.here.rounds), str(made.paper.rounds)),
        ("Seeds", str(made.here.seeds), str(made.paper.seeds)),
    ]
    return (
        '<dl class="facts">'
        + "".join(
            f'<div class="fact"><dt>{title}</dt><dd>{escape(ours)}<small>the paper: {escape(paper)}</small></dd></div>'
            for title, ours, paper in pairs
        )
        + "</dl>"
    )


def _claims(made: Made, decided: Sequence[Decided]) -> str:
    rows = "".join(
        f'<tr><td class="words"><span class="verdict {look(one.verdict)}">{escape(one.told)}</span></td>'
        f'<td class="words">{escape(one.claim.says)}<br><span class="small">{escape(one.claim.source)}. '
        f"{escape(one.why)}</span></td></tr>"
        for one in decided
    )
    head = '<tr><th scope="col">verdict</th><th scope="col">the paper’s sentence, and why</th></tr>'
    hows = {"ordering": HOW, "alike": HOW_ALIKE, "region": HOW_REGION, "gap": HOW_GAP, "untested": HOW_UNTESTED}
    read = [MEASURES[one.claim.measure].how for one in decided if one.claim.measure is not None]
    how = " ".join(dict.fromkeys([*(hows[one.claim.kind] for one in decided), *read]))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Verdicts"><table class="claims"><thead>{head}'
        f'</thead><tbody>{rows}</tbody></table></div><p class="small">{how}</p>'
    )


def _comparisons(made: Made, decided: Sequence[Decided]) -> str:
    return "".join(
        f"<details><summary>{escape(one.claim.says)}: {escape(one.told)}</summary>"
        f"{comparisons(made, one).html()}</details>"
        for one in decided
        if one.lines
    )


def _heatmap(made_page: Page, made: Made) -> None:
    run, card = made.heatmap, figure("heatmap")
    reason = "No cell has a result yet." if run is None else card.needs([run])
    if run is None or reason is not None:
        made_page.card("heatmap", card.title, f"<p>{escape(reason)}</p>", "Figure")
        return
    made_page.figure("heatmap", card.title, card.draw([run], Labels.of([run])), card.read, "Figure")
    said = [line for line in made.reproduction.lines(made.paper.dataset) if line.region]
    rows = "".join(
        f"<li>{escape(made.labels.metric(line.metric, unit=False))} is {line.readout.removeprefix('region:')} where "
        f"{escape(region(made, line, run))}</li>"
        for line in said
    )
    made_page.card(
        "paper",
        f"What the paper’s figure shows on {made.paper.data}",
        f'<ul>{rows}</ul><p class="small">It prints no numbers, only colours; its text names the region.</p>',
        "Paper",
    )


def _pictures(made_page: Page, made: Made) -> None:
    """The pictures of a figure of the paper, a card for each kind."""
    for i, one in enumerate(pictures(made)):
        link = "" if i else "Figure"
        if one.missing:
            made_page.card(one.name, one.title, f"<p>{escape(one.missing)}</p>", link)
        elif len(one.figures) == 1:
            made_page.figure(one.name, one.title, one.figures[0][1], one.read, link)
        else:
            made_page.figures_of(one.name, one.title, one.figures, one.read, link)


def _tables(made_page: Page, made: Made) -> None:
    drawn = pivots(made)
    if not drawn:
        made_page.card("table", made.reproduction.title, "<p>No cell has a result yet.</p>", "Tables")
        return
    for i, (table, shown) in enumerate(zip(drawn, both(made, drawn), strict=True)):
        inner = shown.html() + _order(made, table)
        if i == len(drawn) - 1:
            inner += "".join(f'<p class="small">{escape(note)}</p>' for note in (_below(made), *table.notes()))
        made_page.card(f"table-{i}", table.title, inner, "Tables" if i == 0 else "")


def _order(made: Made, table: Pivot) -> str:
    """How far the rows stand in the paper's order."""
    found = [
        f"{' '.join(filter(None, (made.labels.metric(one.metric, unit=False), made.named(one.place))))}: "
        + ("–" if math.isnan(one.tau) else f"{one.tau:.2f}".replace("-", "−"))
        + f" (n = {one.rows} of {one.of})"
        for one in orders(made)
        if one.metric in (table.metric, table.bracket)
    ]
    return f'<p class="small">{escape(KENDALL)} {escape("; ".join(found))}.</p>' if found else ""


def _numbers(made_page: Page, made: Made) -> None:
    """How many numbers agree, and those that do not, with their explanations; nothing on other data."""
    if not (told := agreement(made)):
        return
    found = disagreements(made)
    table = found.html() if found.rows else ""
    made_page.card("numbers", "Which numbers agree", f'<p>{told}</p>{table}<p class="small">{HOW_CELL}</p>', "Numbers")


def _below(made: Made) -> str:
    here, paper = (setting.said(made.reproduction.columns) for setting in (made.here, made.paper))
    if made.reproduction.published is None:
        return f"Here, on {here}. The paper’s figure is on {paper}; it prints no numbers."
    return f"In every cell, above: here, on {here}. Below, in grey: the paper, on {paper}. Then ours minus the paper’s."
