"""`python -m benchmarks.replay`; see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import OUT, ROOT
from benchmarks.replay import bench, clock, page
from benchmarks.replay.auto import measure as auto_measure
from benchmarks.replay.auto.world import worlds
from benchmarks.replay.kept import with_others
from benchmarks.replay.objectives import bench as objectives
from benchmarks.replay.objectives import searchers as several
from benchmarks.replay.searchers import PEERS, SEARCHERS, SLOW
from benchmarks.replay.table import Table
from benchmarks.results import machine
from benchmarks.tables.auto_specs import CONDITIONS, FAMILY
from benchmarks.tables.lines import RECORDED
from fedtune.machine import resources
from search_spaces import files
from search_spaces.errors import UserError
from tests import packed

RESULTS = OUT / "search-quality.json"
#: Those of a release, and the page that is made of them.
KEPT = ROOT / "benchmarks" / "recorded" / "search-quality.json.xz"
DOCS = ROOT / "docs" / "search-quality.md"
#: Searchers in environments of their own, with one objective and with several.
ALL_PEERS = (*PEERS, *several.PEERS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="replay, print a table of searchers × tables, and make the page in bench/")
    run.add_argument("--table", type=Path, default=RECORDED, metavar="FILE", help="a table, or a folder of them")
    run.add_argument(
        "--tables",
        nargs="+",
        default=[],
        metavar="NAME",
        help="of the folder these only, others stay as they were; a world's as 'fedavg, trees'; auto is a family",
    )
    run.add_argument("--searchers", nargs="+", default=[], metavar="NAME", help="these only; a table keeps its others")
    run.add_argument(
        "--slots",
        nargs="+",
        type=int,
        default=[],
        metavar="N",
        help="regret by wall-clock on so many slots, of the searchers with one objective; the page stays as it was",
    )
    run.add_argument("--objectives", action="store_true", help="searches with several objectives only")
    run.add_argument("--slow", action="store_true", help=f"also {', '.join(SLOW)}: up to half a minute per repetition")
    run.add_argument("--peers", action="store_true", help=f"also {', '.join(ALL_PEERS)}: up to a minute per repetition")
    run.add_argument("--repetitions", type=int, default=100)
    run.add_argument("--auto-repetitions", type=int, default=20, help="repetitions of `fedtune auto`")
    run.add_argument("--auto-budgets", type=int, nargs="+", default=auto_measure.BUDGETS, help="its, in federations")
    run.add_argument("--processes", type=int, default=resources.cores())
    commands.add_parser("record", help="keep the results, and make docs/search-quality.md of them")
    making = commands.add_parser("page", help="make docs/search-quality.md from what was recorded")
    making.add_argument("--check", action="store_true", help="only say whether it is what that gives")
    chosen = parser.parse_args()
    if chosen.command == "run":
        try:
            return measured(chosen)
        except UserError as error:
            print(*error.problems, sep="\n", file=sys.stderr)
            return 2
    if chosen.command == "record":
        if not RESULTS.exists():
            print("There are no results yet. Measure with `make bench-search`.", file=sys.stderr)
            return 2
        packed.write(KEPT, earlier())
    return made(packed.read(KEPT), DOCS, check=chosen.command == "page" and chosen.check)


def measured(chosen: argparse.Namespace) -> int:
    """Replays what was asked for."""
    left_out = (() if chosen.slow else SLOW) + (() if chosen.peers else ALL_PEERS)
    known = [*dict.fromkeys([*SEARCHERS, *several.SEARCHERS])]
    searchers = chosen.searchers or [name for name in known if name not in left_out]
    unknown = [name for name in searchers if name not in known]
    if unknown:
        raise UserError(f"{unknown[0]} is no searcher; there are {', '.join(known)}.")
    alone = set(chosen.tables) == {FAMILY}
    tables = {} if alone else bench.tables(chosen.table, [name for name in chosen.tables if name != FAMILY])
    asked = FAMILY in chosen.tables or not (chosen.tables or chosen.searchers or chosen.objectives)
    together = worlds(chosen.table) if asked else {}
    if not tables and not together:
        raise UserError(
            f"There is no such table in {chosen.table}. Make one of runs with `fedtune export RUN --table FILE`, or "
            "record those of the benchmark with `make tables`."
        )
    if chosen.slots:
        with_one = [name for name in searchers if name in SEARCHERS]
        several_at_once = {"repetitions": chosen.repetitions, "processes": chosen.processes}
        return clock.run(tables, with_one, chosen.slots, **several_at_once)
    before = earlier()
    found = searched(chosen, tables, searchers) if tables or not before else before
    if tables and before:
        found = with_others(before, found)
    if together:
        autos = auto_measure.measure(
            together,
            repetitions=chosen.auto_repetitions,
            processes=chosen.processes,
            budgets=chosen.auto_budgets,
        )
        found["auto"] = autos | {
            "machine": machine(),
            "unrecorded": [name for name in CONDITIONS if name not in together],
        }
    found = {key: value for key, value in before.items() if key not in found} | found
    print(page.terminal(found))
    return written(found)


def written(found: dict[str, Any]) -> int:
    """Keeps the results and makes their page."""
    OUT.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    files.replace(RESULTS, text + "\n")
    return made(json.loads(text), RESULTS.with_suffix(".md"), check=False)


def earlier() -> dict[str, Any]:
    """The latest results, or those of a release: what is not replayed this time stays as it was, with its own date."""
    if RESULTS.exists():
        return dict(json.loads(RESULTS.read_text(encoding="utf-8")))
    return dict(packed.read(KEPT)) if KEPT.exists() else {}


def searched(chosen: argparse.Namespace, tables: dict[str, Table], searchers: Sequence[str]) -> dict[str, Any]:
    """Replays searches of one table each."""
    with_one = [name for name in searchers if name in SEARCHERS and not chosen.objectives]
    # A name that is in both stands for searches with one objective, unless others are asked for as well.
    both = chosen.objectives or not chosen.searchers or not {*searchers} <= {*SEARCHERS}
    with_several = [name for name in searchers if name in several.SEARCHERS and both]
    found: dict[str, Any] = bench.measure(
        tables if with_one else {}, with_one, repetitions=chosen.repetitions, processes=chosen.processes
    )
    asked = [name for name in chosen.tables if name != FAMILY]
    found["objectives"] = objectives.measure(
        objectives.tables(chosen.table, asked) if with_several else {},
        with_several,
        repetitions=chosen.repetitions,
        processes=chosen.processes,
    )
    return found | {"machine": machine(), "processes": chosen.processes}


def made(found: dict[str, Any], path: Path, *, check: bool) -> int:
    """Makes the page of these results, or says whether it is what they give."""
    text = page.markdown(found)
    if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
        print(f"{path} is not what {KEPT.name} gives. Make it with `… replay page`.", file=sys.stderr)
        return 1
    if not check:
        files.replace(path, text)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
