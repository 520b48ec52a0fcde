"""A run's report: `build` reads the run directory and writes one offline page into it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import papers, schema, style
from analysis.compare import compare
from analysis.figure import figures
from analysis.figures._common import finals
from analysis.labels import Labels, duration, number, twin
from analysis.page import Page, command, definition, escape, html_table, write_text
from analysis.runs import Run, load_all, names, when
from analysis.tables import Column, Table, finite
from search_spaces.errors import UserError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def build(run: Paths, output: str | os.PathLike[str] | None = None) -> Path:
    """Writes the report of one run (or of several, one below the other, after a comparison) and returns its path.

    Without `output` it is `report.html` in the run directory; for several runs, in the folder that holds the first.
    Raises `UserError` where a path is no run directory or the page cannot be written."""
    runs = load_all(run)
    target = Path(output) if output is not None else (runs[0].path if len(runs) == 1 else runs[0].path.parent) / schema.REPORT
    return write_text(target, document(runs))


def document(runs: Sequence[Run]) -> str:
    """The report's HTML."""
    page = Page(f"{names(runs)[0]} · fedtune" if len(runs) == 1 else f"{len(runs)} runs · fedtune")
    if len(runs) > 1:
        _side_by_side(page, runs)
    for i, (run, name) in enumerate(zip(runs, names(runs), strict=True)):
        _run(page, run, name, "" if len(runs) == 1 else f"r{i + 1}-")
    versions = runs[0].provenance.get("versions") or {}
    return page.html(f"Made by fedtune {versions.get('fedtune', '')} from {', '.join(names(runs))}. This page needs no network.")


def _side_by_side(page: Page, runs: Sequence[Run]) -> None:
    page.add("<h1>Runs side by side</h1>")
    drawn = figures()["methods"]
    reason = drawn.needs(runs)
    if reason is not None:
        page.card("methods", drawn.record.title, f"<p>{escape(reason)}</p>")
        return
    page.figure("methods", drawn.record.title, drawn.plot(drawn.data(runs), Labels.of(runs)), drawn.record.read, "Curves")
    page.card("numbers", "Numbers and paired tests", html_table(compare([r.path for r in runs]).table()), "Numbers")


def _run(page: Page, run: Run, name: str, prefix: str) -> None:
    labels = Labels.of([run])
    first = prefix == ""
    method = run.method.upper() if len(run.method) <= 5 else run.method
    tag = "h1" if first else 'h1 class="run-title"'
    source = run.space.get("source")
    page.add(f'<{tag} id="{prefix}run">{escape(method)}: {escape(run.title)}</h1><p class="lead">Run <code>{escape(name)}</code>'
             + (f" · after {escape(source)}" if source else "") + f" · {'final runs' if run.kind == 'run' else _searched(run, labels)}</p>",
             f"{prefix}run", "" if first else name)
    for text in notices(run, labels):
        page.add(f'<p class="notice">{escape(text)}</p>')
    page.add(_facts(run, labels))
    _best(page, run, labels, prefix)
    skipped = _figures(page, run, labels, prefix)
    _published(page, run, prefix)
    page.tables[f"{prefix}trials"] = trials_table(run, labels)
    page.card(f"{prefix}trials", "All trials", _trials_html(run, f"{prefix}trials"), "Trials" if first else "")
    _failures(page, run, prefix)
    _provenance(page, run, prefix, skipped)


def _searched(run: Run, labels: Labels) -> str:
    if not run.keys:
        return "no parameter searched"
    return "searched " + escape(", ".join(labels.symbol(k) for k in run.keys[:6])) + (f" and {len(run.keys) - 6} more" if len(run.keys) > 6 else "")


def notices(run: Run, labels: Labels) -> list[str]:
    """What a reader must know before looking at any number."""
    found = []
    if run.selects_on_test:
        found.append("Trials were selected on test data, as the paper did. The best value is therefore optimistic; without --paper, searches select on a validation share.")
    running = int(run.trials["state"].isin(["RUNNING", "WAITING"]).sum())
    if running:
        found.append(f"{running} {'trial is' if running == 1 else 'trials are'} unfinished: the search is still going on or was interrupted. `fedtune resume {_shown_path(run)}` continues it.")
    if run.best is None:
        found.append("No trial has completed yet, so there is no best configuration.")
    return found


def _facts(run: Run, labels: Labels) -> str:
    facts: list[tuple[str, str, str, bool]] = []
    if run.best is not None:
        for metric in run.metrics:
            shown = list(dict.fromkeys([metric, twin(metric)]))
            for m in shown:
                values = run.last(run.best, m)
                text = labels.shown(m, pd.Series(list(values.values())).mean()) if values else labels.shown(m, run.trials.set_index("number")["value"].get(run.best))
                if m == metric or values:
                    facts.append((labels.metric(m, split=True, unit=False), text, f"trial {run.best}, " + ("selected on" if m == metric else "only reported"), m == metric))
        for m in ("local_accuracy",):
            values = run.last(run.best, m)
            if values and m not in run.metrics and f"val_{m}" not in run.metrics:
                facts.append((labels.metric(m, split=True, unit=False), labels.shown(m, sum(values.values()) / len(values)), f"trial {run.best}, only reported", False))
    kinds = pd.Series([style.outcome(s, r) for s, r in zip(run.trials["state"], run.trials["stop_reason"], strict=True)], dtype=object).value_counts()
    counted = ", ".join(f"{kinds[k]} {style.OUTCOMES[k][2]}" for k in style.OUTCOMES if k in kinds)
    facts.append(("Trials", str(len(run.trials)), counted, False))
    rounds, seeds = run.value("rounds"), run.experiment.get("seeds")
    used = sorted(run.rounds["seed"].unique().tolist()) if len(run.rounds) else []
    spent = run.trials["rounds"].sum()
    facts.append(("Rounds per trial", number(rounds), f"{int(spent)} rounds run in all", False))
    facts.append(("Seeds per trial", str(len(used) if used and run.kind != "run" else seeds if isinstance(seeds, int) else len(used)), "seed " + ", ".join(map(str, used[:6])) if used else "", False))
    facts.append(("Data set", str(run.value("dataset", "–")), " · ".join(f"{k} {number(run.value(k))}" for k in ("clients", "omega", "rho") if run.value(k) is not None), False))
    start, end = pd.to_datetime(run.trials["start"]).min(), pd.to_datetime(run.trials["end"]).max()
    wall = (end - start).total_seconds() if pd.notna(start) and pd.notna(end) else None
    facts.append(("Time", duration(wall), f"{duration(float(run.trials['seconds'].sum()))} in trials" if run.trials["seconds"].notna().any() else "", False))
    strategy = " · ".join(str(v) for v in (run.experiment.get("sampler"), run.experiment.get("scheduler")) if v)
    if strategy and run.kind != "run":
        facts.append(("Sampler · scheduler", strategy, f"search seed {run.experiment['seed']}" if "seed" in run.experiment else "", False))
    return '<dl class="facts">' + "".join(
        f'<div class="fact{" key" if key else ""}"><dt>{escape(title)}</dt><dd>{escape(text)}' + (f"<small>{escape(small)}</small>" if small else "") + "</dd></div>"
        for title, text, small, key in facts) + "</dl>"


def _shown_path(run: Run) -> str:
    try:
        relative = os.path.relpath(run.path)
    except ValueError:  # another drive
        return str(run.path)
    return str(run.path) if relative.startswith("..") else relative


def rerun_command(run: Run, seeds: int = 3) -> str:
    """The command that exports the best configuration and runs it on fresh seeds."""
    return f"fedtune export {shlex.quote(_shown_path(run))} -o best.yaml && fedtune run best.yaml --seeds {seeds}"


def _best(page: Page, run: Run, labels: Labels, prefix: str) -> None:
    if run.best is None:
        return
    values = run.parameters(run.best)
    known = {item["key"]: item for item in run.searched}
    rows = [{"parameter": labels.parameter(k), "value": values[k], "searched": _range(known.get(k, {})), "meaning": " ".join(filter(None, [known.get(k, {}).get("doc"), f"({known[k]['source']})" if known.get(k, {}).get("source") else ""]))} for k in run.keys if k in values]
    searched = html_table(Table([Column("parameter", "parameter", right=False), Column("value", "value"), Column("searched", "searched", str), Column("meaning", "meaning", str, right=False)], rows)) if rows else ""
    rest = {k: v for k, v in run.config(run.best).items() if k not in values}
    fixed = f"<details><summary>{len(rest)} further settings</summary>{definition({k: number(v, 6) for k, v in sorted(rest.items())})}</details>" if rest else ""
    last = finals(run)
    measured = [m for m in dict.fromkeys([*run.metrics, "val_global_accuracy", "global_accuracy", "val_local_accuracy", "local_accuracy", "amp", "wlp", "fm"]) if m in last.columns and run.last(run.best, m)]
    from analysis.stats import summarise

    results = definition([(labels.metric(m, split=True) + (" · selected on" if m in run.metrics else ""), summarise(list(run.last(run.best, m).values())).shown(labels.scale(m), 2 if labels.scale(m) == 100 else 4))
                          for m in measured])
    if run.kind == "run":
        run_again = "<h3>How it was run</h3>" + command(str(run.provenance.get("command") or f"fedtune run {_shown_path(run)}/{schema.EXPERIMENT}"))
        title = "Configuration"
    else:
        run_again = "<h3>Run it again on fresh seeds</h3>" + command(rerun_command(run)) + '<p class="small">Final numbers come from seeds the search never saw.</p>'
        title = f"Best configuration: trial {run.best}" if len(run.directions) == 1 else f"A best configuration: trial {run.best}"
    front = f'<p class="small">Trials {", ".join(map(str, run.front))} are Pareto-optimal: no other one is better in every objective.</p>' if len(run.directions) > 1 else ""
    seeds = len(run.last(run.best, measured[0])) if measured else 0
    page.card(f"{prefix}best", title, f'<div class="two"><div>{searched}{fixed}</div><div><p class="small">Last round, mean{" ± standard deviation" if seeds > 1 else ""} over {seeds} seed{"s" if seeds != 1 else ""}</p>{results}</div></div>{front}{run_again}',
              "Best" if not prefix else "")


def _range(item: dict[str, Any]) -> str:
    if item.get("grid"):
        return ", ".join(number(v) for v in item["grid"])
    if item.get("options"):
        return ", ".join(map(str, item["options"]))
    if item.get("low") is not None and item.get("high") is not None:
        return f"{number(item['low'])} to {number(item['high'])}" + (", log" if item.get("log") else "")
    return "yes, no" if item.get("kind") == "flag" else ""


def _figures(page: Page, run: Run, labels: Labels, prefix: str) -> list[tuple[str, str]]:
    """Draws every figure that can be drawn, those the space names first; returns (title, reason) of the others."""
    known = {n: f for n, f in figures().items() if not f.record.many}
    asked = [n for n in run.space.get("figures") or [] if n in known]
    skipped = []
    for name in dict.fromkeys([*asked, *known]):
        drawn = known[name]
        reason = drawn.needs([run])
        if reason is not None:
            skipped.append((drawn.record.title, reason))
            continue
        frame = drawn.data([run])
        page.figure(f"{prefix}{name}", drawn.record.title, drawn.plot(frame, labels), drawn.record.read, name.capitalize() if not prefix else "")
    return skipped


def _published(page: Page, run: Run, prefix: str) -> None:
    name = run.space.get("published")
    if not name:
        return
    lines = papers.published(str(name))
    verdicts = papers.compare(run, lines)
    if not verdicts:
        page.card(f"{prefix}paper", "Beside the paper", f"<p>The paper's numbers {escape(name)} have no line for {escape(run.method)}.</p>", "")
        return
    others = {v.published.dataset for v in verdicts if v.verdict == papers.OTHER_DATA}
    lead = ""
    if len(others) == len({v.published.dataset for v in verdicts}):
        lead = f"<p>This run used {escape(run.value('dataset', 'another data set'))}, the paper {escape(', '.join(sorted(others)))}: not comparable. `--paper` runs the paper's setting.</p>"
    head = "".join(f'<th scope="col">{h}</th>' for h in ("published in", "setting", "metric", "paper", "here", "verdict"))
    body = "".join(
        f'<tr><td>{escape(v.published.table)}</td><td class="wrap">{escape(v.what)}</td><td>{escape(Labels().metric(v.published.metric, unit=False))}</td><td>{escape(v.theirs)}</td><td>{escape(v.ours)}</td>'
        f'<td><span class="verdict {v.verdict if v.verdict in (papers.AGREES, papers.DIFFERS) else "open"}">{escape(v.verdict)}</span>{f"<br><span class=small>{escape(v.reason)}</span>" if v.reason else ""}</td></tr>'
        for v in verdicts)
    notes = "".join(f'<p class="small">{escape(n[0].upper() + n[1:])}.</p>' for n in dict.fromkeys(v.published.note for v in verdicts if v.published.note))
    page.card(f"{prefix}paper", "Beside the paper", f'{lead}<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{notes}', "Paper" if not prefix else "")


def trials(run: Run) -> Table:
    """Every trial as a row: number, outcome, rounds, seconds, searched parameters, the metrics shown in figures."""
    last = finals(run)
    wanted = [m for m in dict.fromkeys([*run.metrics, *(twin(m) for m in run.metrics), "local_accuracy"]) if m in last.columns]
    labels = Labels.of([run])
    rows = []
    for t in run.trials.to_dict("records"):
        row = {"trial": t["number"], "outcome": style.OUTCOMES[style.outcome(t["state"], t["stop_reason"])][2], "rounds": t["rounds"], "seconds": t["seconds"]}
        row |= {k: (None if pd.isna(t[k]) else t[k]) for k in run.keys}
        row |= {m: labels.scale(m) * float(last[m].get(t["number"], float("nan"))) for m in wanted}
        rows.append(row)
    columns = [Column("trial", "trial"), Column("outcome", "outcome", right=False)]
    columns += [Column(m, labels.metric(m, split=True), lambda v, m=m: number(v, 4) if labels.scale(m) == 1 or v is None or v != v else f"{v:.2f}") for m in wanted]
    columns += [Column(k, labels.symbol(k), right=labels.numeric(k)) for k in run.keys]
    columns += [Column("rounds", "rounds"), Column("seconds", "seconds", lambda v: number(v, 3))]
    return Table(columns, rows, f"Trials of {run.name}")


def trials_table(run: Run, labels: Labels) -> dict[str, Any]:
    """What the page's script needs to draw the sortable table."""
    table = trials(run)
    kinds = [style.outcome(s, r) for s, r in zip(run.trials["state"], run.trials["stop_reason"], strict=True)]
    rows = [{"raw": [finite(row.get(c.key)) for c in table.columns], "text": cells, "state": kind, "best": row["trial"] == run.best}
            for row, cells, kind in zip(table.rows, table.cells(), kinds, strict=True)]
    at = next((i for i, c in enumerate(table.columns) if c.key == run.metrics[0]), -1)
    return {"columns": [{"title": c.title, "right": c.right, "dot": c.key == "outcome"} for c in table.columns], "rows": rows, "sort": at, "up": not run.maximise}


def _trials_html(run: Run, name: str) -> str:
    kinds = {style.outcome(s, r) for s, r in zip(run.trials["state"], run.trials["stop_reason"], strict=True)}
    options = '<option value="">all outcomes</option>' + "".join(f'<option value="{k}">{escape(style.OUTCOMES[k][2])}</option>' for k in style.OUTCOMES if k in kinds)
    return (f'<p class="small">Press a heading to sort. Values are from each trial\'s last round, so those of trials stopped early are from an earlier one.</p>'
            f'<div class="trials" data-table="{escape(name)}"><div class="scroll" tabindex="0" role="region" aria-label="Trials"><table><thead><tr></tr></thead><tbody></tbody></table></div>'
            f'<div class="pager"><button type="button" aria-label="Earlier rows">‹ back</button><span class="status" role="status"></span><button type="button" aria-label="Later rows">next ›</button>'
            f'<select aria-label="Show only">{options}</select></div></div>')


def _failures(page: Page, run: Run, prefix: str) -> None:
    failed = run.trials[run.trials["state"] == "FAIL"]
    if failed.empty:
        return
    rows = [{"trial": t["number"], "what": style.OUTCOMES[style.outcome(t["state"], t["stop_reason"])][2], "why": t["error"] or "no reason was recorded",
             "where": f"{schema.trial_folder(t['number'])}/{schema.LOG}"} for t in failed.head(200).to_dict("records")]
    notes = (f"The first 200 of {len(failed)}.",) if len(failed) > 200 else ()
    table = Table([Column("trial", "trial"), Column("what", "what", str, right=False), Column("why", "reason", str, right=False), Column("where", "log", str, right=False)], rows, notes=notes)
    page.card(f"{prefix}failures", f"Failures ({len(failed)})", html_table(table), "Failures" if not prefix else "")


def _provenance(page: Page, run: Run, prefix: str, skipped: Sequence[tuple[str, str]]) -> None:
    rows = {}
    for key, value in run.provenance.items():
        if isinstance(value, dict):
            rows[key] = ", ".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, list):
            rows[key] = " ".join(map(str, value))
        else:
            rows[key] = when(value) if key in ("started", "finished", "when", "created") else str(value)
    request = {k: ", ".join(map(str, v)) if isinstance(v, list) else number(v, 6) for k, v in run.experiment.items() if not isinstance(v, dict)}
    inner = f"<h3>Where it was made</h3>{definition(rows)}" if rows else "<p>No provenance was recorded.</p>"
    inner += f"<details><summary>The request ({schema.EXPERIMENT})</summary>{definition(request)}</details>"
    if skipped:
        inner += f"<details><summary>{len(skipped)} figure{'s' if len(skipped) != 1 else ''} not drawn</summary>{definition(list(skipped))}</details>"
    page.card(f"{prefix}provenance", "Provenance", inner, "Provenance" if not prefix else "")


def write_tables(run: Paths, kind: str) -> list[Path]:
    """`trials.csv` and, for searches, the same as `trials.tex` (`kind`: csv or latex) beside the report, one file per run."""
    found = []
    for one in load_all(run):
        table = trials(one)
        found.append(write_text(one.path / f"trials.{'csv' if kind == 'csv' else 'tex'}", table.csv() if kind == "csv" else table.latex()))
    return found


def write_images(run: Paths, kind: str) -> list[Path]:
    """Every figure that can be drawn as `figures/<name>.<kind>` in the run directory (`kind`: png, svg or pdf).

    Raises `UserError` where kaleido or a browser is missing."""
    if kind not in ("png", "svg", "pdf"):
        raise UserError(f"The image format must be one of png, svg, pdf, got {kind!r} (--images).")
    try:
        import kaleido  # noqa: F401
        import plotly.io as pio
    except ImportError:
        raise UserError("Images need the package kaleido (--images). Install it with: pip install 'fedtune[images]'.") from None
    written: list[Path] = []
    for one in load_all(run):
        labels = Labels.of([one])
        made = [(n, f.plot(f.data([one]), labels)) for n, f in figures().items() if not f.record.many and f.needs([one]) is None]
        targets = [one.path / "figures" / f"{n}.{kind}" for n, _ in made]
        try:
            (one.path / "figures").mkdir(exist_ok=True)
            for _, figure in made:
                figure.update_layout(width=1000, paper_bgcolor=style.PAPER)
            pio.write_images([f for _, f in made], targets, scale=2 if kind == "png" else 1)
        except OSError as error:
            raise UserError(f"{one.path / 'figures'} cannot be written: {error.strerror or error}.") from error
        except Exception as error:
            if "chrome" in str(error).lower() or "browser" in str(error).lower():
                raise UserError("Images are drawn by a Chrome or Chromium browser, and none was found (--images). Install one (Debian: apt install chromium) or save figures from the report.") from error
            raise
        written += targets
    return written
