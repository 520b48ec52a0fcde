"""docs/published-settings.md: what it says that entries of `fedtune reproduce` run is what they would run."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from analysis.reproduce.declaration import declared, known
from fedtune.options import ReproduceRequest
from fedtune.planning.reproduction import plan_reproduction
from trainables import models, registry
from trainables.generators.feature import FeatureGenerator

PAGE = (Path(__file__).resolve().parents[2] / "docs/published-settings.md").read_text(encoding="utf-8")
#: `name=value`, `name=value, value`, `method, method: name=value`
SETTING = re.compile(r"`(?:([a-z, ]+): )?(\w+)=([^`]+)`")
#: Of an entry itself, not of its methods.
OWN = ("seeds", "readout")
Ran = dict[tuple[str, str], set[Any]]


class Section(NamedTuple):
    """A heading of the page, with the entries and the data set that it speaks of."""

    paper: str
    title: str
    entries: tuple[str, ...]
    dataset: str
    settings: list[tuple[str, str, str]]


def sections() -> list[Section]:
    found = []
    for paper in PAGE.split("\n## ")[1:]:
        for part in paper.split("\n### ")[1:]:
            title, _, text = part.partition("\n")
            entries = tuple(name for name in re.findall(r"`([\w-]+)`", text) if name in known())
            dataset = re.search(r"\bon `(\w+)`", text)
            assert entries and dataset, title
            found.append(Section(paper.partition("\n")[0], title, entries, dataset[1], SETTING.findall(text)))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs would be made; one, so that each entry is planned once."""
    return tmp_path_factory.mktemp("planned")


@cache
def runs(entries: tuple[str, ...], dataset: str, folder: Path) -> Ran:
    """By method and parameter, the values of all runs that the entries plan; planning writes nothing."""
    found: Ran = defaultdict(set)
    for name in entries:
        for part in plan_reproduction(ReproduceRequest(name, dataset=dataset, runs_dir=str(folder))).parts:
            for key, value in part.values().items():
                found[part.row.method, key].add(value)
    return found


def meant(settings: list[tuple[str, str, str]], key: str, methods: set[str]) -> set[str]:
    """The methods that a setting without methods speaks of: those that no other setting of the parameter names."""
    return methods - {name for named, other, _ in settings if other == key for name in named.split(", ")}


@pytest.mark.parametrize("section", sections(), ids=lambda one: one.title)
def test_what_the_page_says_of_an_entry_is_what_it_plans(section: Section, folder: Path) -> None:
    ran = runs(section.entries, section.dataset, folder)
    for named, key, text in section.settings:
        said = [yaml.safe_load(value) for value in text.split(", ")]
        if key in OWN:
            assert {getattr(declared(name), key) for name in section.entries} == set(said), key
            continue
        having = {method for method, other in ran if other == key}
        methods = set(named.split(", ")) if named else meant(section.settings, key, having)
        assert methods and methods <= having, (named, key)
        values = set().union(*(ran[method, key] for method in methods))
        convert = registry.declared(min(methods))[key].convert
        assert values == {convert(value, key) for value in said}, (named, key)


@pytest.mark.parametrize("paper", sorted({one.paper for one in sections()}))
def test_every_value_that_an_entry_changes_is_on_the_page(paper: str, folder: Path) -> None:
    """Neither a profile nor an entry can be changed, and the page left as it was."""
    parts = [one for one in sections() if one.paper == paper]
    settings = [setting for one in parts for setting in one.settings]
    for one in parts:
        for (method, key), values in runs(one.entries, one.dataset, folder).items():
            if values != {registry.declared(method)[key].default}:
                named = {name for names, other, _ in settings if other == key for name in names.split(", ")}
                assert method in named or "" in named, (one.title, method, key, values)


def rows() -> list[tuple[str, str, str]]:
    """Entry, data set and settings of every line below `Other data sets`."""
    text = PAGE.partition("\n## Other data sets\n")[2].partition("\n## ")[0]
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    return [(name, line[2].strip(" `"), line[3]) for line in lines for name in re.findall(r"`([\w-]+)`", line[1])]


@pytest.mark.parametrize(("name", "dataset"), sorted({(name, dataset) for name, dataset, _ in rows()}))
def test_what_the_page_says_of_another_data_set_is_declared(name: str, dataset: str) -> None:
    said: dict[str, Any] = {}
    for _, _, text in (row for row in rows() if row[:2] == (name, dataset)):
        for method, key, value in SETTING.findall(text):
            (said.setdefault(method, {}) if method else said)[key] = yaml.safe_load(value)
    assert declared(name).datasets[dataset] == said


def size(name: str, *shape: int) -> int:
    model = models.build(name, (shape[0], shape[1], shape[1]), 10)
    return sum(parameter.numel() for parameter in model.parameters())


def test_sizes_and_traffic_on_the_page_are_those_of_our_models() -> None:
    """What crosses the wire is held to these formulas by the tests of DHF, FedProto and FedMD-CG."""
    deep = {name: size(name, 1, 28) for name in ("lenet_code_64", "lenet5_paper", "cnn2", "cnn3", "resnet10")}
    model = models.build("cnn2", (1, 28, 28), 10)
    prototypes, head = 10 * model.feature_width, sum(parameter.numel() for parameter in model.head.parameters())
    split = models.build("lenet_code_64", (1, 28, 28), 10)
    classifier = sum(parameter.numel() for parameter in split.head.parameters())
    generator = sum(parameter.numel() for parameter in FeatureGenerator(split.feature_width, 10, 128).parameters())
    for number in (
        *deep.values(),
        size("cnn2", 3, 32),
        size("cnn", 1, 32),
        *(prototypes, head, prototypes + head + 10),
        *(generator, classifier, generator + classifier),
    ):
        assert re.search(rf"\b{number:,}\b", PAGE), f"{number:,}"
    # DHF Sec. 6.2: 0.01 M, 0.005 M and 2.25 M.
    assert (round((prototypes + head + 10) / 1e6, 2), round(prototypes / 1e6, 3)) == (0.01, 0.005)
    assert f"{4 * deep['cnn2'] / 2**20:.2f} MiB" in PAGE and round(deep["cnn2"] / 1e6, 2) != 2.25
    assert f"generator is {generator // deep['lenet_code_64']} times the whole model" in PAGE
