"""Tests the orderings of the papers' tables on the runs of scripts/results.sh, one Markdown table for each section.

    python scripts/orderings.py t2 md                         # these sections, on the runs in runs/
    python scripts/orderings.py kf --dataset rotated_digits   # on the runs made with DATASET=rotated_digits

A line is a difference whose sign a paper gives: what the paper has ahead minus what it has behind, last round on the
test data, in points. `p` is that of a paired t test over seeds, `Holm` the same corrected for all lines with the same
first cell. `holds` says what the corrected p tells at 0.05: yes, no (the opposite holds), or cannot tell. `seeds` is
how many seeds an uncorrected test would need to see a difference of this mean and spread in four of five repetitions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.runs import load_run
from analysis.stats import Paired, holm, paired
from analysis.tables.compare import seed_values
from search_spaces.errors import Shown, UserError, sentence
from trainables import registry

LEVEL = 0.05


@dataclass(frozen=True)
class Side:
    """A run of scripts/results.sh and one of its metrics."""

    run: str
    metric: str


@dataclass(frozen=True)
class Ordering:
    """What a paper has ahead, and behind; lines of one `part` are corrected together."""

    label: str
    part: str
    ahead: Side
    behind: Side


def t1() -> list[Ordering]:
    """DFRD's Table 1: without data first, then on FedAvg."""
    return [
        Ordering(f"{label}, {base}", "global", *(Side(f"t1-{run}", "global_accuracy") for run in runs))
        for base, label, *runs in (
            ("data-free", "DFRD − FedFTG", "none-dfrd", "none-fedftg"),
            ("data-free", "DFRD − DENSE", "none-dfrd", "none-dense"),
            ("data-free", "FedFTG − DENSE", "none-fedftg", "none-dense"),
            ("on FedAvg", "DFRD − FedFTG", "fedavg-dfrd", "fedavg-fedftg"),
            ("on FedAvg", "DFRD − DENSE", "fedavg-dfrd", "fedavg-dense"),
            ("on FedAvg", "DENSE − FedAvg", "fedavg-dense", "fedavg"),
            ("on FedAvg", "DFRD − FedAvg", "fedavg-dfrd", "fedavg"),
            ("on FedAvg", "FedFTG − FedAvg", "fedavg-fedftg", "fedavg"),
        )
    ]


def t2() -> list[Ordering]:
    """DFRD's Table 2: every method before its base, and DFRD before the two others."""
    lines = [
        ("DENSE − base", "-dense", ""),
        ("FedFTG − base", "-fedftg", ""),
        ("DFRD − base", "-dfrd", ""),
        ("DFRD − DENSE", "-dfrd", "-dense"),
        ("DFRD − FedFTG", "-dfrd", "-fedftg"),
    ]
    bases = {"heterofl": "HeteroFL", "feddropout": "Federated Dropout", "fedrolex": "FedRolex"}
    return [
        Ordering(
            label, title, Side(f"t2-{base}{ahead}", "global_accuracy"), Side(f"t2-{base}{behind}", "global_accuracy")
        )
        for base, title in bases.items()
        for label, ahead, behind in lines
    ]


def rolex() -> list[Ordering]:
    """DFRD before its base, as the two share of small clients."""
    return [
        Ordering(f"DFRD − FedRolex, ρ = {rho}", part, *(Side(f"{run}-{rho}", f"{part}_accuracy") for run in _ROLEX))
        for part in ("global", "local")
        for rho in (10, 5)
    ]


_ROLEX = ("fedrolex-dfrd", "fedrolex")


def kf() -> list[Ordering]:
    """FedKF's Tables V to VII and XII: averages of a round's clients (ACA) and of all clients' latest models (OCA)."""
    lines = [
        ("FedKF (ACA) − FedAvg", ("fedkf", "amp"), ("fedavg", "amp")),
        ("FedKF⁻ (ACA) − FedAvg", ("fedkf-minus", "amp"), ("fedavg", "amp")),
        ("FedKF (ACA) − FedGKD", ("fedkf", "amp"), ("fedgkd", "amp")),
        ("FedKF (ACA) − FedGen", ("fedkf", "amp"), ("fedgen", "amp")),
        ("FedGen − FedAvg", ("fedgen", "amp"), ("fedavg", "amp")),
        ("FedAvg (OCA) − FedAvg", ("fedavg-oca", "amp"), ("fedavg", "amp")),
        ("FedKF (OCA) − FedAvg (OCA)", ("fedkf", "oca_amp"), ("fedavg-oca", "amp")),
        ("FedKF⁻ (OCA) − FedAvg (OCA)", ("fedkf-minus", "oca_amp"), ("fedavg-oca", "amp")),
        ("FedKF (ACA) − FedAvg", ("fedkf", "wlp"), ("fedavg", "wlp")),
        ("FedKF⁻ (ACA) − FedAvg", ("fedkf-minus", "wlp"), ("fedavg", "wlp")),
    ]
    return [
        Ordering(
            label,
            f"{ahead[1].removeprefix('oca_').upper()}, α = {omega}",
            *(Side(f"fair-{run}-{omega}", metric) for run, metric in (ahead, behind)),
        )
        for omega in ("0.1", "1")
        for label, ahead, behind in lines
    ]


def md() -> list[Ordering]:
    """FedMD-CG's Tables 1 and 3."""
    kdc = "fedmdcg-kdc"
    lines = [
        ("FedAvg − FedMD-CG", "fedavg", kdc),
        ("FedMD-CG − FedGen", kdc, "fedgen"),
        ("FedMD-CG − FedCG", kdc, "fedcg"),
        ("FedMD-CG − LG-FedAvg", kdc, "lgfedavg"),
        ("FedMD-CG − Local Training", kdc, "local"),
        ("LG-FedAvg − FedPer", "lgfedavg", "fedper"),
        ("KDC − KD", kdc, "fedmdcg-kd"),
        ("KDC − AVE", kdc, "fedmdcg-ave"),
        ("AVE − AVE*", "fedmdcg-ave", "fedmdcg-ave_star"),
    ]
    return [
        Ordering(label, part, Side(f"md-{ahead}", metric), Side(f"md-{behind}", metric))
        for part, metric in (("local", "local_accuracy"), ("virtual", "g_acc_virtual"))
        for label, ahead, behind in lines
    ]


def dhf() -> list[Ordering]:
    """DHF's Table 1, with the paper's τ and ours; FedAvg is scored with its single model, as in the paper."""
    others = [
        ("Local Training", "local", "p_acc"),
        ("FedPer", "fedper", "p_acc"),
        ("LG-FedAvg", "lgfedavg", "p_acc"),
        ("FedAvg's single model", "fedavg", "p_acc_global"),
    ]
    return [
        Ordering(
            f"DHF, τ = {tau} − {title}",
            part,
            Side(f"p-dhf-{tau}-{partition}", "p_acc"),
            Side(f"p-{run}-{partition}", metric),
        )
        for part, partition in (("pathological", "pathological"), ("practical", "dir_pfl"))
        for tau in ("0.5", "20")
        for title, run, metric in others
    ]


def personal() -> list[Ordering]:
    """DHF's Table 1 after tuning: DHF before everybody. One global model is scored on the clients' tests."""
    own = ["local", "perfedavg", "fedfomo", "fedrod", "fedbabu", "ditto", "fedamp", "fedphp", "fedproto"]
    return before_all("personal", dict.fromkeys(own, "p_acc")) + before_all(
        "personal", dict.fromkeys(["fedavg", "fedprox", "fedgen", "scaffold", "moon"], "p_acc_global")
    )


def mixed() -> list[Ordering]:
    """DHF's Table 2 after tuning: DHF before everybody."""
    others = ["local", "lgfedavg", "fedgen", "fedproto", "feddistill", "fml", "fedkd", "fedgh", "fedtgp"]
    return before_all("mixed", dict.fromkeys(others, "p_acc"))


def tuned() -> list[Ordering]:
    """What the papers put first, every method tuned with one budget, on the fresh seeds of `fedtune auto`."""
    bases = {"dfrd": ("on FedAvg", "FedAvg", "fedavg"), "widths": ("on FedRolex", "FedRolex", "fedrolex")}
    lines: list[tuple[str, ...]] = [
        (part, label, "global_accuracy", f"tuned-{run}/fresh/{ahead}", f"tuned-{run}/fresh/{behind}")
        for run, (part, title, base) in bases.items()
        for label, ahead, behind in (
            ("DFRD − FedFTG", "dfrd", "fedftg"),
            ("DFRD − DENSE", "dfrd", "dense"),
            (f"DFRD − {title}", "dfrd", base),
            (f"FedFTG − {title}", "fedftg", base),
            (f"DENSE − {title}", "dense", base),
        )
    ]
    cache, minus, own = "tuned-kf/fresh/fedavg", "tuned-kf-minus/fresh/fedkf", "tuned-kf/fresh/fedkf"
    lines += [
        (f"{metric.upper()}, tuned", label, metric, ahead, behind)
        for metric in ("amp", "wlp")
        for label, ahead, behind in (
            ("FedKF − FedKF⁻", own, minus),
            ("FedKF − FedAvg (OCA)", own, cache),
            ("FedKF⁻ − FedAvg (OCA)", minus, cache),
        )
    ]
    lines += [
        (f"{part}, tuned", "KDC − AVE", metric, "tuned-md-kdc/fresh/fedmdcg", "tuned-md-ave/fresh/fedmdcg")
        for part, metric in (("local", "local_accuracy"), ("virtual", "g_acc_virtual"))
    ]
    lines += [
        (f"{part}, tuned", "DHF − Local Training", "p_acc", *(f"tuned-dhf-{run}/fresh/{m}" for m in ("dhf", "local")))
        for part, run in (("pathological", "pathological"), ("practical", "dir_pfl"))
    ]
    return [
        Ordering(label, part, Side(ahead, metric), Side(behind, metric)) for part, label, metric, ahead, behind in lines
    ]


def before_all(section: str, others: Mapping[str, str]) -> list[Ordering]:
    """DHF's own models before the `others`, each scored by its metric."""
    return [
        Ordering(
            f"DHF − {registry.method(name).title}",
            part,
            Side(f"{section}-dhf-{partition}", "p_acc"),
            Side(f"{section}-{name}-{partition}", metric),
        )
        for part, partition in (("pathological", "pathological"), ("practical", "dir_pfl"))
        for name, metric in others.items()
    ]


SECTIONS: dict[str, Callable[[], list[Ordering]]] = {
    f.__name__: f for f in (t1, t2, rolex, kf, md, dhf, personal, mixed, tuned)
}


def tested(orderings: Sequence[Ordering], runs: Path, prefix: str) -> list[tuple[Ordering, Paired, float]]:
    """Every line with its paired test and the p corrected for the lines of its part.

    Raises `UserError` for a run that is not there."""
    named = {f"{prefix}{side.run}" for line in orderings for side in (line.ahead, line.behind)}
    missing = sorted(name for name in named if not (runs / name).is_dir())
    if missing:
        raise UserError(
            sentence(
                "The folder of runs",
                "one with all runs of the section",
                Shown(f"{runs} without {', '.join(missing)}"),
                fix="Make them with scripts/results.sh.",
            )
        )
    loaded = {name: load_run(runs / name) for name in named}

    def values(side: Side) -> dict[int, float]:
        return seed_values(loaded[f"{prefix}{side.run}"], side.metric)

    tests = [paired(values(line.behind), values(line.ahead)) for line in orderings]
    corrected: dict[int, float] = {}
    for part in dict.fromkeys(line.part for line in orderings):
        places = [i for i, line in enumerate(orderings) if line.part == part]
        corrected |= zip(places, holm([tests[i].t_p for i in places]), strict=True)
    return [(line, test, corrected[i]) for i, (line, test) in enumerate(zip(orderings, tests, strict=True))]


def markdown(results: Sequence[tuple[Ordering, Paired, float]]) -> str:
    """The lines as a table."""
    rows = ["| | difference | points | p | Holm | seeds | holds |", "|---|---|---|---|---|---|---|"]
    for line, test, corrected in results:
        rows.append(
            f"| {line.part} | {line.label} | {100 * test.difference:+.2f} ± {100 * test.std:.2f} | {_p(test.t_p)} "
            f"| {_p(corrected)} | {_count(test.seeds_needed)} | {verdict(test.difference, corrected)} |"
        )
    return "\n".join(rows).replace("+-", "+").replace("| -", "| −")


def verdict(difference: float, p: float) -> str:
    """What a corrected p says of a difference that the paper has above zero."""
    if not p < LEVEL:
        return "cannot tell"
    return "yes" if difference > 0 else "no"


def _p(value: float) -> str:
    if value != value:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _count(seeds: int | None) -> str:
    return "–" if seeds is None else str(seeds) if seeds <= 1000 else "> 1000"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("sections", nargs="+", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="The folder of the runs.  [default: runs]")
    parser.add_argument("--dataset", default="", help="The DATASET the runs were made on.")
    asked = parser.parse_args(arguments)
    prefix = f"{asked.dataset}-" if asked.dataset else ""
    try:
        tables = [markdown(tested(SECTIONS[name](), asked.runs, prefix)) for name in asked.sections]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n\n".join(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
