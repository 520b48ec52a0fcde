"""The head of the report on a search over several methods: leaderboard, budgets, expected bests, what was left out."""

from __future__ import annotations

from analysis.auto import Auto
from analysis.auto import explained as columns_explained
from analysis.labels import Labels
from analysis.report.page import Page, command, definition, escape, html_table
from analysis.report.terms import explained
from search_spaces.shell import quote


def head(page: Page, auto: Auto, folder: str) -> None:
    """Everything about all methods together; `folder` is the run's as a reader would type it."""
    record, leader = auto.record, auto.leader
    labels = Labels(markup=False)
    metric = labels.metric(auto.metric, unit=False)
    page.add(
        f'<h1 id="auto">{escape(_title(auto))}</h1><p class="lead">Run <code>{escape(auto.name)}</code> · '
        f"{len(auto.searches)} method{'s' * (len(auto.searches) > 1)} · selected by {escape(metric)}</p>",
        "auto",
        "Auto",
    )
    if leader is None:
        page.add('<p class="notice">No trial has ended with all its rounds yet, so there is no leader.</p>')
    elif not auto.over:
        page.add('<p class="notice">The search, the fresh seeds or the final run have not ended yet.</p>')
    if not auto.over:
        page.add(f'{command(f"fedtune resume {quote(folder)}")}<p class="small">This goes on with what is missing.</p>')
    said = "".join(f'<p class="small">{escape(line)}</p>' for line in columns_explained(auto))
    asked = [one.metric for run in auto.searches.values() for one in run.requirements]
    said += explained(page.told, [auto.metric, *asked])
    page.card("leaderboard", "Leaderboard", html_table(auto.table()) + said, "Leaderboard")
    for name, figure in auto.drawable().items():
        page.figure(f"auto-{name}", figure.title, figure.draw(auto.rows, auto.metric), figure.read, figure.link)
    configurations = [(row.method, str(row.record()["configuration"])) for row in auto.rows if row.trial is not None]
    page.card("configurations", "Best configurations", definition(configurations), "Configurations")
    if auto.excluded:
        page.card("left-out", "Left out", definition(list(auto.excluded.items())), "Left out")
    shares = [
        ("search", f"{record['search_budget']:.4g} {record['unit']}"),
        ("fresh seeds", f"{record['fresh_budget']:.4g} {record['unit']}"),
        ("final run", f"{record['final_budget']:.4g} {record['unit']}"),
        ("compared at equal", str(record["cost"])),
        (
            "minimum of a method",
            "the same part for all" if record["equal"] else f"{record['least']} trials of {record['rounds']} rounds",
        ),
    ]
    costs = [
        (f"a trial of {item['name']}", f"{item['costs'][record['cost']] * record['rounds']:.4g} {record['cost']}")
        for item in record["methods"]
    ]
    page.card("budget", "Planned budget", definition([*shares, *costs]), "")


def _title(auto: Auto) -> str:
    if auto.leader is None:
        return "Search over several methods"
    return f"{auto.rows[0].title} leads"
