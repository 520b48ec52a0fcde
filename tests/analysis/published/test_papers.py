"""The published numbers as files, and what may be said about ours beside them."""

from __future__ import annotations

import math
from importlib import resources

import pytest

from analysis.published import papers
from search_spaces.metrics import METRICS

FILES = sorted(
    f.name.removesuffix(".csv")
    for f in (resources.files("analysis") / "published").iterdir()
    if f.name.endswith(".csv")
)
#: Over how many runs a paper's ± is; FedKF and DHF do not say.
SEEDS = {"DFRD": 3, "FedKF": 0, "FedMD-CG": 5, "DHF": 0}


@pytest.mark.parametrize("name", FILES)
def test_every_line_is_a_number_or_a_region(name: str) -> None:
    lines = papers.published(name)
    assert lines
    for line in lines:
        assert line.metric in METRICS
        if line.region:
            assert math.isnan(line.mean) and any(c.sign in "<>" for c in line.settings)
        else:
            # Per cent, or rounds of the thousand that there were.
            most = 1000 if line.metric == "rounds_to_target" else 100
            assert 0 < line.mean <= most and 0 <= line.std < 50
            assert line.seeds == SEEDS[line.table.split(",")[0]]
    keys = [(p.table, p.method, p.dataset, p.settings, p.metric) for p in lines]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("name", "method", "dataset", "settings", "metric", "mean", "std"),
    [
        ("dfrd_tab1", "dfrd", "cifar100", {"omega": 0.1, "base": "none"}, "local_accuracy", 14.15, 0.32),
        ("dfrd_tab5", "dfrd", "cifar10", {"use_ema": False}, "global_accuracy", 19.80, 2.25),
        ("fedkf_tab5_7", "qffl", "emnist_letters32", {"omega": 0.01}, "fm", 0.03128, 0.00784),
        (
            "fedmdcg_tab12_14",
            "fedmdcg",
            "emnist_digits",
            {"lambda1": 1.0, "lambda4": 0.0, "lambda5": 0.0, "lambda6": 1.0},
            "g_acc_virtual",
            80.66,
            3.45,
        ),
        ("dhf_tab1_3", "dense", "cifar100", {"partition": "pathological"}, "p_acc_global", 2.78, 0.05),
        ("dhf_tab4", "dhf", "cifar10", {"target": 0.85}, "rounds_to_target", 15.40, 1.02),
    ],
)
def test_cells_read_from_the_paper(
    name: str, method: str, dataset: str, settings: dict[str, object], metric: str, mean: float, std: float
) -> None:
    found = [
        p
        for p in papers.published(name)
        if (p.method, p.dataset, p.metric) == (method, dataset, metric)
        and settings.items() <= {c.key: c.value for c in p.settings}.items()
    ]
    assert [(p.mean, p.std) for p in found] == [(mean, std)]


def test_the_heat_map_of_figure_5_has_no_numbers() -> None:
    assert all(p.region for p in papers.published("dfrd_fig5"))


@pytest.mark.parametrize(
    ("condition", "config", "holds"),
    [
        ("rho>=40", {"rho": 80}, True),
        ("rho>=40", {"rho": 5}, False),
        ("omega=0.1", {"omega": 0.1}, True),
        ("omega=0.1", {}, False),
        ("base=fedrolex", {"base": "fedavg"}, False),
        ("use_ema=false", {"use_ema": False}, True),
        ("use_ema=false", {"use_ema": True}, False),
        ("alpha<1.25", {"alpha": 1.25}, False),
        ("beta_div=0", {"beta_div": 0.0}, True),
    ],
)
def test_conditions(condition: str, config: dict[str, object], holds: bool) -> None:
    assert papers._condition(condition).holds(config) is holds
