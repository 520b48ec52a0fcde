"""Recording tables: what is declared can be simulated, what ended is kept, an interruption changes nothing."""

from __future__ import annotations

import json
import math
import sys
import time
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import curve_table
from benchmarks.tables import auto_specs, points
from benchmarks.tables.auto_specs import AUTO_SPECS
from benchmarks.tables.lines import RECORDED, Curve, Lines, declaration
from benchmarks.tables.record import Recording, record, simulate, specs
from benchmarks.tables.specs import SPECS, Spec
from fedtune.options import MAX_SEED, MAX_SEEDS, AutoRequest
from fedtune.planning import auto_budget
from fedtune.planning.auto_plan import plan_auto
from fedtune.record.experiment import FINAL_SEEDS
from search_spaces.errors import UserError
from trainables import registry

ROOT = Path(__file__).resolve().parents[2]
TOY = Spec("toy", "Toy", (("fedavg", "default"),), 4, 3, 2)
EVERY = SPECS | AUTO_SPECS

#: A process that simulates nothing: its values tell configuration, seed and round. It dies at the federation that it is
#: told, and waits before each.
PRETEND = """
import json, sys, time
dies, waits, others = json.loads(sys.argv[1])
for line in sys.stdin:
    place, seed = json.loads(line)
    if [place, seed] == dies:
        sys.exit(1)
    time.sleep(waits)
    curve = [0.1 * place + 0.01 * (seed % 7) + 0.001 * round_ for round_ in range(2)]
    also = {name: [n + v for v in curve] for n, name in enumerate(others)}
    print(json.dumps([curve, [v / 2 for v in curve], 1.0, also]), flush=True)
"""


def pretend(dies: tuple[int, int] | None = None, waits: float = 0.0, others: tuple[str, ...] = ()) -> tuple[str, ...]:
    return sys.executable, "-c", PRETEND, json.dumps([dies, waits, others])


def keys(configurations: int = 4, seeds: int = 3) -> list[tuple[int, int]]:
    return [(c, seed) for seed in TOY.seed_numbers[:seeds] for c in range(configurations)]


def run(lines: Lines, wanted: list[tuple[int, int]], command: tuple[str, ...], processes: int = 1) -> None:
    Recording(lines, wanted, time.monotonic() + 60, command).run(processes)


def test_every_declared_configuration_can_be_simulated() -> None:
    for name, spec in EVERY.items():
        found = spec.points()
        assert len(found) == spec.configurations and all(spec.space.contains(values) for values in found), name
        assert len({json.dumps(values, sort_keys=True) for values in found}) == spec.configurations, name
        for values in found:
            method, complete = spec.federation(values)
            assert method == values.get("method", spec.method) and complete["rounds"] == spec.rounds, name
            assert all(complete[key] == value for key, value in values.items() if key != "method"), name
        assert spec.space == type(spec.space).from_json(json.loads(json.dumps(spec.space.to_json()))), name


@pytest.mark.parametrize("dataset", auto_specs.CONDITIONS)
def test_a_method_is_recorded_under_the_conditions_that_auto_gives_it(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `fedtune auto` plans under these conditions: the space, and every parameter of every federation."""
    costs = {"seconds": 1.0, "seed-rounds": 1.0, "bytes": 1.0, "bytes_up": 1.0}
    monkeypatch.setattr(auto_budget, "measured", lambda *given, **more: dict(costs))
    # What the small profile of `auto` chooses otherwise: a table has the test metrics of every round.
    declared = {key: registry.declared("fedavg")[key].default for key in ("validation_fraction", "eval_test")}
    conditions = tuple(f"{key}={value}" for key, value in (auto_specs.CONDITIONS[dataset] | declared).items())
    asked = {"budget": "999rounds", "rounds": auto_specs.ROUNDS, "set": conditions, "name": tmp_path / "auto"}
    made = plan_auto(AutoRequest(methods=auto_specs.METHODS, **asked))
    assert [planned.experiment.method for planned in made.searches] == [*auto_specs.METHODS]
    for planned in made.searches:
        e = planned.experiment
        spec = AUTO_SPECS[f"auto/{dataset}/{e.method}"]
        assert spec.space.search == planned.space.search
        assert spec.space.declared_point() == planned.space.declared_point() is not None
        for values in spec.points(3):
            complete = registry.resolve(e.method, {**e.values, "rounds": e.rounds, **values})
            assert spec.federation(values) == (e.method, complete)


def test_names_of_tables_may_be_families() -> None:
    assert [spec.name for spec in specs([])] == [*EVERY]
    assert [spec.name for spec in specs(["auto", "fedkf"])] == [*AUTO_SPECS, "fedkf"]
    assert {spec.name for spec in specs(["auto/digits", "auto/digits/moon"])} == {
        f"auto/digits/{method}" for method in auto_specs.METHODS
    }
    for name in ("aut", "auto/cifar10", "dfrd"):
        with pytest.raises(UserError, match=f"{name} is no table; there are fedavg, .*, mnist, auto, auto/digits, "):
            specs([name])


def test_a_tables_seeds_belong_to_no_search_and_to_no_final_run_of_small_seed() -> None:
    """A search of seed n has n · 1000 + k; tables begin at seed 500,000 of these, which no default and no document has,
    and end before final runs begin."""
    for spec in EVERY.values():
        assert min(spec.seed_numbers) >= 500_000 * MAX_SEEDS and max(spec.seed_numbers) < FINAL_SEEDS
    assert MAX_SEED < FINAL_SEEDS // MAX_SEEDS


def test_a_configuration_is_a_point_of_the_cube_and_back() -> None:
    for name, spec in SPECS.items():
        space = spec.space
        for values in spec.points(20) if spec.draw == "grid" else points.random(space, 100, seed=1):
            point = points.to_unit(space, values)
            assert point.shape == (points.coordinates(space),) and ((point >= 0) & (point <= 1)).all(), name
            assert points.from_unit(space, point) == pytest.approx(values), name


def test_fewer_configurations_are_the_first_of_more() -> None:
    for draw in (points.sobol, points.random):
        assert draw(TOY.space, 5) == draw(TOY.space, 150)[:5] != draw(TOY.space, 5, 1)


def test_a_federation_of_a_table_is_that_of_the_engine(toy: Path) -> None:
    from trainables.simulation.replicates import Replicates

    spec = Spec(
        "toy",
        "Toy",
        (("fedavg", "default"),),
        2,
        1,
        2,
        values={"dataset": str(toy), "clients": 2, "partition": "iid", "model": "lenet_code", "min_samples": 1},
        also=("val_wlp",),
    )
    values = {"lr": 0.05, "local_steps": 5, "batch_size": 16, "momentum": 0.0}
    found = simulate(spec, values, 3)
    engine = Replicates("fedavg", spec.federation(values)[1], (3,))
    rows = [engine.step()[0] for _ in range(2)]
    assert found.validation == tuple(row["val_global_accuracy"] for row in rows)
    assert found.test == tuple(row["global_accuracy"] for row in rows) and found.seconds > 0
    assert found.also == {name: tuple(row[name] for row in rows) for name in ("val_wlp", "wlp")}
    diverging = simulate(spec, values | {"lr": 1e30}, 3)
    assert np.isnan(diverging.validation[-1]) and len(diverging.validation) == 2
    assert np.isnan([diverging.also["val_wlp"][-1], diverging.also["wlp"][-1]]).all()


def test_whole_seeds_come_first_and_only_they_are_in_the_table(tmp_path: Path) -> None:
    lines = Lines(TOY, tmp_path, tmp_path)
    assert lines.write(4) is None
    with pytest.raises(RuntimeError, match=r"configuration 1, seed 500000001 ended"):
        run(lines, keys(), pretend(dies=(1, TOY.seed_numbers[1])))
    assert [*Lines(TOY, tmp_path, tmp_path).curves] == keys()[:5], "what had ended is kept, seed by seed"
    table = lines.write(4)
    assert table is not None and table.seeds == TOY.seed_numbers[:1] and len(table.configurations) == 4
    run(lines, keys(), pretend(), processes=3)
    found = lines.write(4)
    assert found is not None and found.seeds == TOY.seed_numbers
    for c, s, r in np.ndindex(4, 3, 2):
        assert found.validation[c, s, r] == 0.1 * c + 0.01 * (TOY.seed_numbers[s] % 7) + 0.001 * r
        assert found.test[c, s, r] == found.validation[c, s, r] / 2
    stored = curve_table.load(lines.table)
    assert stored.card["made"][0]["federations"] == 12 and stored.card["made"][0]["seconds"] == 24
    assert stored.space.name == "default" and list(stored.configurations) == TOY.points()


def test_an_interrupted_recording_is_the_whole_one(tmp_path: Path) -> None:
    whole, parts = Lines(TOY, tmp_path / "a", tmp_path / "a"), Lines(TOY, tmp_path / "b", tmp_path / "b")
    run(whole, keys(), pretend())
    whole.write(4)
    run(parts, keys()[:3], pretend())
    with parts.path.open("ab") as file:
        file.write(b'{"configuration": 3, "se')  # a kill while it was written
    again = Lines(TOY, tmp_path / "b", tmp_path / "b")
    assert [*again.curves] == keys()[:3]
    run(again, keys()[:9], pretend())
    assert again.write(4) is not None
    again.path.unlink()  # the lines are gone: it goes on from the table, which has two whole seeds
    last = Lines(TOY, tmp_path / "b", tmp_path / "b")
    assert [*sorted(last.curves)] == sorted(keys()[:8])
    run(last, keys(), pretend())
    last.write(4)
    assert (tmp_path / "b" / "toy.npz").read_bytes() == (tmp_path / "a" / "toy.npz").read_bytes()
    made = curve_table.load(last.table).card["made"]
    assert [entry["federations"] for entry in made] == [8, 4], "said once, whoever recorded it"


def test_other_metrics_are_kept_beside_the_curves(tmp_path: Path) -> None:
    spec = Spec("toy", "Toy", (("fedavg", "default"),), 4, 3, 2, also=("val_wlp",))
    assert spec.others == ("val_wlp", "wlp") and declaration(spec) != declaration(TOY)
    lines = Lines(spec, tmp_path, tmp_path)
    run(lines, keys(4, 2), pretend(others=spec.others))
    assert Lines(spec, tmp_path, tmp_path).curves == lines.curves, "read again from its lines"
    made = lines.write(4)
    assert made is not None and [*made.also] == [*spec.others]
    for n, name in enumerate(spec.others):
        assert np.array_equal(made.also[name], n + made.validation)
    lines.path.unlink()
    from_table = Lines(spec, tmp_path, tmp_path)
    for key, curve in from_table.curves.items():
        assert curve.also["wlp"] == pytest.approx(lines.curves[key].also["wlp"], abs=1e-4)


def test_the_best_get_further_seeds_in_a_second_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four configurations over three seeds, of which the last is the best but diverged once, the two next ones get
    two more; interrupted in between, or without its lines, the recording comes to the same."""
    spec = Spec("toy", "Toy", (("fedavg", "default"),), 4, 3, 2, best=2, further=2)
    lines = Lines(spec, tmp_path, tmp_path)
    assert declaration(spec) == declaration(TOY) and lines.second_stage() == ()
    monkeypatch.setattr(Recording, "__init__", partialmethod(_pretended, Recording.__init__))
    lines.add((3, spec.seed_numbers[0]), Curve((0.3, math.nan), (0.1, math.nan), 1.0))
    made = record(lines, configurations=4, seeds=3, processes=1)
    assert lines.second_stage() == (2, 1) and made is not None
    assert made.seeds == (*spec.seed_numbers, *spec.further_seeds) and made.whole.sum() == 4 * 3 + 2 * 2
    assert made.whole[1:3].all() and not made.whole[[0, 3], 3:].any()
    assert made.validation[2, 4, 1] == 0.2 + 0.01 * (spec.further_seeds[1] % 7) + 0.001
    assert curve_table.load(lines.table).whole.sum() == 16
    lines.path.unlink()
    again = Lines(spec, tmp_path, tmp_path)
    assert {*again.curves} == {*lines.curves} and again.second_stage() == (2, 1)


def _pretended(self: Recording, init: Any, lines: Lines, wanted: Any, deadline: float) -> None:
    init(self, lines, wanted, deadline, pretend())


def test_more_configurations_take_over_what_fewer_had(tmp_path: Path) -> None:
    lines = Lines(TOY, tmp_path, tmp_path)
    run(lines, keys(2, 3), pretend())
    assert lines.write(2) is not None
    run(lines, keys(4, 1), pretend())
    assert len(lines.curves) == 8 and lines.write(4) is None, "the smaller table holds more federations: it stays"
    assert curve_table.load(lines.table).validation.shape == (2, 3, 2)
    run(lines, keys(), pretend())
    assert lines.write(4) is not None and curve_table.load(lines.table).validation.shape == (4, 3, 2)


def test_another_declaration_is_not_mixed_in(tmp_path: Path) -> None:
    Lines(TOY, tmp_path, tmp_path)
    for other in (
        Spec("toy", "Toy", (("fedavg", "default"),), 4, 3, 3),
        Spec("toy", "Toy", (("fedavg", "default"),), 4, 3, 2, values={"omega": 1.0}),
        Spec("toy", "Toy", (("fedavg", "default"),), 4, 3, 2, draw="random"),
        Spec("toy", "Toy", (("fedprox", "default"),), 4, 3, 2),
    ):
        assert declaration(other) != declaration(TOY)
        with pytest.raises(UserError, match="another declaration"):
            Lines(other, tmp_path, tmp_path)
    more = Spec("toy", "Another title", (("fedavg", "default"),), 8, 9, 2)
    assert Lines(more, tmp_path, tmp_path).curves == {}, "more of the same is the same table"


def test_every_declared_table_is_recorded_whole_and_no_other() -> None:
    found = {path.relative_to(RECORDED).with_suffix("").as_posix() for path in RECORDED.rglob("*.npz")}
    assert found == EVERY.keys()
    for name, spec in ((name, EVERY[name]) for name in found):
        path = RECORDED / f"{name}.npz"
        table = curve_table.load(path)
        assert table.card["settings"]["declaration"] == declaration(spec), name
        seeds = (*spec.seed_numbers, *spec.further_seeds)
        assert table.validation.shape == (spec.configurations, len(seeds), spec.rounds), name
        assert list(table.configurations) == spec.points() and table.seeds == seeds, name
        assert tuple(table.also) == spec.others, name
        whole = table.whole
        assert whole[:, : spec.seeds].all() and (whole[:, spec.seeds :].sum(axis=0) == spec.best).all(), name
        assert (whole[:, spec.seeds :].sum(axis=1) % max(spec.further, 1) == 0).all(), "of the best all further seeds"
        assert sum(entry["federations"] for entry in table.card["made"]) == whole.sum(), name
        assert np.isfinite(table.validation[whole]).mean() > 0.5 and np.isfinite(table.seconds[whole]).mean() > 0.5, (
            name
        )
        assert path.stat().st_size < 2**20, name
