"""The card on early stopping: the grace that a search chose and the rank correlations behind it, and its audit."""

from __future__ import annotations

from analysis.labels import Labels
from analysis.report.page import Page, escape, html_table
from analysis.runs import Run
from analysis.stopping import Grace, audit_sentences, grace_sentences
from analysis.stopping.words import rank
from analysis.tables import Column, Table


def stopping(page: Page, run: Run, labels: Labels, prefix: str, condition: str = "") -> None:
    """Adds the card, for a search that chose its grace or audited its stopped trials; `condition` is the one that these
    trials are under, where there are several."""
    said, table = [], ""
    if run.audit is not None:
        said += audit_sentences(run.audit, lambda value: labels.shown(run.metrics[0], value))
    if run.grace is not None:
        said += grace_sentences(run.grace)
        table = html_table(_correlations(run.grace)) if run.grace.correlations else ""
    if said:
        inner = "".join(f"<p>{escape(line)}</p>" for line in said) + table
        title, anchor = "Early stopping", f"{prefix}stopping"
        if condition:
            title, anchor = f"{title}, {condition}", f"{anchor}-{len(page.sections)}"
        page.card(anchor, title, inner, "Stopping" if not prefix else "")


def _correlations(found: Grace) -> Table:
    """How well every round ranked trials as their ends did."""
    rows = [{"round": c.round, "rank": rank(c)} for c in found.correlations]
    columns = [Column("round", "round"), Column("rank", "rank correlation with the end, 90 % interval", str)]
    return Table(columns, rows)
