"""What can be named on the command line beside methods: search spaces, figures, data sets, metrics."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from itertools import groupby
from types import ModuleType

import fedtune
from analysis import figures
from search_spaces.metrics import METRICS, Metric
from site_pages.markup import code, page, plain, table
from trainables import registry


def pages() -> dict[str, str]:
    """`catalogue/{spaces,figures,datasets,metrics}.md`."""
    return {
        "catalogue/spaces.md": _spaces(),
        "catalogue/figures.md": _figures(),
        "catalogue/datasets.md": _datasets(),
        "catalogue/metrics.md": _metrics(),
    }


def _spaces() -> str:
    rows = fedtune.spaces()
    parts = []
    for method, spaces in groupby(rows, key=lambda row: row["method"]):
        cells = [
            (
                f"[{code(space['name'])}](../methods/{method}.md#{space['name']})",
                plain(space["title"]),
                plain(", ".join([*space["search"], *(f"{key} (condition)" for key in space["vary"])])),
                str(space["cells"] or ""),
                plain(space["source"]),
            )
            for space in spaces
        ]
        parts += [
            f"## {plain(registry.method(method).title)}",
            table(("space", "what it searches", "parameters", "points of its grid", "source"), cells, "spaces"),
        ]
    lead = (
        f"{len(rows)} named spaces. `fedtune search METHOD --space NAME` searches one with its small profile on the "
        "embedded digits; `--paper` takes the paper's data set, model, rounds and seeds. "
        "[A file of your own](../add-a-space.md) is another space."
    )
    return page("Search spaces", lead, *parts)


def _figures() -> str:
    found = [
        importlib.import_module(f"{figures.__name__}.{info.name}")
        for info in pkgutil.iter_modules(figures.__path__)
        if not info.name.startswith("_")
    ]
    found.sort(key=lambda module: module.FIGURE.order)
    lead = (
        "What a report draws, in its order; a space names those it shows first. What is drawn is a table first, made "
        "by the function `data` of the figure's file. [One file adds a figure](../add-a-figure.md)."
    )
    return page("Figures", lead, *[part for module in found for part in _figure(module)])


def _figure(module: ModuleType) -> tuple[str, ...]:
    name = module.__name__.rpartition(".")[2]
    return (
        f"## {plain(module.FIGURE.title)}",
        f"{code(name)}. {plain(' '.join((module.__doc__ or '').split()))}",
        plain(" ".join(module.FIGURE.read)),
        f"*Its table.* {plain(inspect.cleandoc(module.data.__doc__ or ''))}",
    )


def _datasets() -> str:
    cells = [
        (
            code(row["name"]),
            plain(row["title"]),
            "\u00a0×\u00a0".join(map(str, row["shape"])),
            str(row["classes"]),
            f"{row['train']:,}",
            f"{row['test']:,}",
            "downloaded on first use" if row["files"] else f"with {row['python']}" if row["python"] else "embedded",
            plain(row["doc"]),
        )
        for row in fedtune.datasets()
    ]
    lead = (
        "`fedtune datasets NAME` says where the files of one belong on a machine without network. "
        "[Your own images](../own.md) are a folder or an `.npz` file."
    )
    return page(
        "Data sets",
        lead,
        table(("name", "title", "image", "classes", "training", "test", "comes", "about"), cells, "datasets"),
    )


def _metrics() -> str:
    def cells(metric: Metric) -> tuple[str, ...]:
        better = "higher" if metric.direction == "maximize" else "lower"
        return (
            code(metric.name),
            plain(metric.title),
            better,
            plain(metric.unit),
            "yes" if metric.validation else "",
            plain(metric.doc),
        )

    rows = [cells(metric) for metric in METRICS.values() if not metric.name.startswith("val_")]
    lead = (
        "What every round and seed of a trial records in `rounds.jsonl`. A search selects by `--metric NAME`. A metric "
        "with a *twin* is also measured on the validation share, as `val_NAME`, and that is what searches select on."
    )
    return page("Metrics", lead, table(("name", "title", "better is", "unit", "twin", "meaning"), rows, "metrics"))
