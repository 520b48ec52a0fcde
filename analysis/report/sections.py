"""The sections of one run's report below its summary and its best configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from analysis import style
from analysis.figure import Figure
from analysis.figures import figures
from analysis.labels import Labels
from analysis.published import papers
from analysis.report.conditions import condition_title
from analysis.report.page import Page, definition, escape, html_table
from analysis.report.values import one_line
from analysis.runs import Run
from analysis.tables import Column, Table
from search_spaces import run_folder

#: A figure that is drawn for each condition by itself is drawn for so many at most.
CONDITIONS = 6


def figure_cards(page: Page, run: Run, prefix: str, tell: Callable[[str], object]) -> list[tuple[str, str]]:
    """Draws every figure that can be drawn, those the space names first, and calls `tell` with each; returns (title,
    reason) of the others."""
    known = {n: f for n, f in figures().items() if not f.many}
    asked = [n for n in run.space.get("figures") or [] if n in known]
    skipped = []
    for name in dict.fromkeys([*asked, *known]):
        figure = known[name]
        tell(f"drawing {figure.title}")
        if run.crossed and not figure.across:
            skipped += _by_condition(page, run, name, figure, prefix)
            continue
        reason = figure.needs([run])
        if reason is not None:
            skipped.append((figure.title, reason))
            continue
        drawn = figure.draw([run], Labels.of([run]))
        page.figure(f"{prefix}{name}", figure.title, drawn, figure.read, name.capitalize() if not prefix else "")
    return skipped


def _by_condition(page: Page, run: Run, name: str, figure: Figure[Any], prefix: str) -> list[tuple[str, str]]:
    """Draws a figure for each condition of the experiment by itself; returns (title, reason) where none can be."""
    labels, parts = Labels.of([run], markup=False), [(c, run.within(c)) for c in run.conditions[:CONDITIONS]]
    reasons = [figure.needs([part]) for _, part in parts]
    drawn = [
        (condition_title(labels, condition), figure.draw([part], Labels.of([part])))
        for (condition, part), reason in zip(parts, reasons, strict=True)
        if reason is None
    ]
    if not drawn:
        return [(figure.title, str(reasons[0]))]
    left = len(run.conditions) - len(parts)
    read = (*figure.read, f"{left} further conditions are not drawn.") if left else figure.read
    page.figures_of(f"{prefix}{name}", figure.title, drawn, read, name.capitalize() if not prefix else "")
    return []


def published(page: Page, run: Run, prefix: str) -> None:
    name = run.space.get("published")
    if not name:
        return
    lines = papers.published(str(name))
    verdicts = papers.compare(run, lines)
    if not verdicts:
        page.card(
            f"{prefix}paper",
            "Beside the paper",
            f"<p>The paper's numbers {escape(name)} have no line for {escape(run.method)}.</p>",
            "",
        )
        return
    theirs = {v.published.dataset for v in verdicts}
    here = run.value("dataset", "another data set")
    inner = html_table(_verdict_table(verdicts)).replace("<table>", '<table class="verdicts">')
    if all(v.verdict == papers.OTHER_DATA for v in verdicts):
        lead = f"<p>This run used {escape(here)}, the paper {escape(', '.join(sorted(theirs)))}: not comparable."
        lead += " <code>--paper</code> runs the paper's setting.</p>"
        inner = f"{lead}<details><summary>What the paper reports ({len(verdicts)} lines)</summary>{inner}</details>"
    page.card(f"{prefix}paper", "Beside the paper", inner, "Paper" if not prefix else "")


def _verdict_table(verdicts: Sequence[papers.Verdict]) -> Table:
    """Published numbers, ours, and what may be said."""
    labels = Labels()
    rows = [
        {
            "table": v.published.table,
            "what": v.what,
            "metric": labels.metric(v.published.metric, unit=False),
            "theirs": v.theirs,
            "ours": v.ours,
            "verdict": v.verdict + (f" ({v.reason})" if v.reason else ""),
        }
        for v in verdicts
    ]
    titles = {
        "table": "published in",
        "what": "setting",
        "metric": "metric",
        "theirs": "paper",
        "ours": "here",
        "verdict": "verdict",
    }
    notes = [n[0].upper() + n[1:] + "." for n in dict.fromkeys(v.published.note for v in verdicts if v.published.note)]
    return Table([Column(k, title, str, right=False) for k, title in titles.items()], rows, notes=notes)


def failures(page: Page, run: Run, prefix: str) -> None:
    failed = run.trials[run.trials["state"] == "FAIL"]
    if failed.empty:
        return
    rows = [
        {
            "trial": t["number"],
            "what": style.OUTCOMES[style.outcome(t["state"], t["stop_reason"])][2],
            "why": t["error"] or "no reason was recorded",
            "where": f"{run_folder.trial_folder(t['number'])}/{run_folder.LOG}",
        }
        for t in failed.head(200).to_dict("records")
    ]
    notes = (f"The first 200 of {len(failed)}.",) if len(failed) > 200 else ()
    table = Table(
        [
            Column("trial", "trial"),
            Column("what", "what", str, right=False),
            Column("why", "reason", str, right=False),
            Column("where", "log", str, right=False),
        ],
        rows,
        notes=notes,
    )
    page.card(f"{prefix}failures", f"Failures ({len(failed)})", html_table(table), "Failures" if not prefix else "")


def provenance(page: Page, run: Run, prefix: str, skipped: Sequence[tuple[str, str]]) -> None:
    rows = {}
    for key, value in run.provenance.items():
        if value is not None:
            rows[key] = one_line(value, key)
    request = {k: one_line(v, k) for k, v in run.experiment.items() if v not in (None, {}, [])}
    inner = f"<h3>Where it was made</h3>{definition(rows)}" if rows else "<p>No provenance was recorded.</p>"
    inner += f"<details><summary>The request ({run_folder.EXPERIMENT})</summary>{definition(request)}</details>"
    if skipped:
        count = f"{len(skipped)} figure{'s' if len(skipped) != 1 else ''}"
        inner += f"<details><summary>{count} not drawn</summary>{definition(list(skipped))}</details>"
    page.card(f"{prefix}provenance", "Provenance", inner, "Provenance" if not prefix else "")
