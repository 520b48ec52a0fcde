"""Tables of curves: what was coded is read back to the stated step, twice is the same bits, damage is noticed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import curve_table
from analysis.curve_table import MISSING, STEPS, CurveTable, card_path, decode, encode, load, save, value_range
from search_spaces.errors import UserError

CARD: dict[str, Any] = {
    "name": "toy",
    "method": "fedavg",
    "space": {"name": "two"},
    "settings": {"omega": 0.1},
    "dataset": "digits",
    "metric": {"validation": "val_global_accuracy", "test": "global_accuracy"},
    "direction": "maximize",
    "how": "Made up.",
    "made": [],
}


def table(low: float = 0.0, high: float = 1.0) -> CurveTable:
    rng = np.random.default_rng(0)
    validation, test = rng.uniform(low, high, (2, 5, 3, 4))
    validation[1, 2, 3:] = test[1, 2, 3:] = np.nan
    return CurveTable(
        CARD,
        tuple({"lr": 0.1 * n, "model": "cnn"} for n in range(5)),
        (7, 8, 9),
        validation,
        test,
        rng.uniform(0.1, 2.0, (5, 3)).astype(np.float32),
    )


def test_a_table_is_read_back_to_half_a_step(tmp_path: Path) -> None:
    made = table()
    card = save(made, tmp_path / "toy.npz")
    found = load(tmp_path / "toy.npz")
    for name in curve_table.CURVES:
        there, back = getattr(made, name), getattr(found, name)
        assert np.array_equal(np.isnan(there), np.isnan(back)) and np.isnan(back).sum() == 1
        assert np.nanmax(np.abs(there - back)) <= 0.5 / STEPS * (1 + 1e-9)
        assert np.nanmax(np.abs(there - back)) > 0  # so the bound says something
    assert np.array_equal(found.seconds, made.seconds)
    assert found.configurations == made.configurations and found.seeds == made.seeds and found.rounds == 4
    assert found.card == card == json.loads(card_path(tmp_path / "toy.npz").read_text())
    assert list(card) == list(curve_table.CARD), "a card says what its description says, in that order"


def test_other_metrics_stand_beside_the_curves(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    others = {"val_wlp": rng.uniform(0, 1, (5, 3, 4)), "bytes_up": rng.uniform(1e5, 2e5, (5, 3, 4))}
    made = dataclasses.replace(table(), also=others)
    card = save(made, tmp_path / "toy.npz")
    found = load(tmp_path / "toy.npz")
    assert card["range"]["also_val_wlp"] == [0.0, 1.0] and [*found.also] == [*others]
    for name, span in (("val_wlp", 1.0), ("bytes_up", 1e5)):
        assert 0 < np.abs(found.also[name] - others[name]).max() <= 0.5 * span / STEPS * (1 + 1e-9)
    save(found, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "toy.npz").read_bytes()
    with pytest.raises(ValueError, match="those of val_wlp"):
        dataclasses.replace(made, also={"val_wlp": others["val_wlp"][:4]})


def test_what_was_stopped_is_told_from_what_diverged(tmp_path: Path) -> None:
    """Both have no values to the end; a table of whole federations has no further array."""
    save(table(), tmp_path / "whole.npz")
    with np.load(tmp_path / "whole.npz") as archive:
        assert "measured" not in archive.files and load(tmp_path / "whole.npz").whole.all()
    rounds = np.full((5, 3), 4, dtype=np.uint16)
    rounds[2, 1], rounds[4, 0] = 2, 0
    save(dataclasses.replace(table(), measured=rounds), tmp_path / "toy.npz")
    found = load(tmp_path / "toy.npz")
    assert np.array_equal(found.measured, rounds) and [*zip(*np.nonzero(~found.whole), strict=True)] == [(2, 1), (4, 0)]
    with pytest.raises(ValueError, match="rounds that were measured"):
        dataclasses.replace(found, measured=rounds + 1)


def test_what_was_read_is_written_again_bit_for_bit(tmp_path: Path) -> None:
    save(table(-3.0, 40.0), tmp_path / "a.npz")
    save(load(tmp_path / "a.npz"), tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_every_code_is_a_value_that_has_that_code() -> None:
    codes = np.arange(MISSING + 1, dtype=np.uint16)
    for low, high in ((0.0, 1.0), (-2.5, 17.25), (0.1, 0.3)):
        values = decode(codes, low, high)
        assert np.isnan(values[MISSING]) and not np.isnan(values[:MISSING]).any()
        assert np.array_equal(encode(values, low, high), codes)


def test_shares_of_samples_keep_their_order_and_their_draws() -> None:
    """Accuracies of 143 and of 359 images: equal ones stay equal, unequal ones unequal."""
    for images in (143, 359):
        shares = np.arange(images + 1) / images
        assert (np.diff(decode(encode(shares, 0.0, 1.0), 0.0, 1.0)) > 0).all()


def test_accuracies_always_have_the_same_codes_and_other_values_span_theirs() -> None:
    assert value_range(np.array([0.2, np.nan, 0.4])) == (0.0, 1.0)
    assert value_range(np.array([np.nan])) == (0.0, 1.0)
    assert value_range(np.array([3.0, -1.0, np.inf])) == (-1.0, 3.0)
    assert value_range(np.array([3.0, 3.0])) == (3.0, 4.0)
    with pytest.raises(ValueError, match="outside"):
        encode(np.array([1.5]), 0.0, 1.0)


def test_the_arrays_must_belong_together() -> None:
    made = table()
    with pytest.raises(ValueError, match="5 configurations and 2 seeds"):
        dataclasses.replace(made, seeds=(7, 8))


def damage_card(path: Path, **changes: Any) -> None:
    card = json.loads(card_path(path).read_text())
    card_path(path).write_text(json.dumps({k: v for k, v in (card | changes).items() if v is not None}))


@pytest.mark.parametrize(
    ("hurt", "words"),
    [
        (lambda path: path.unlink(), "cannot be read: No such file"),
        (lambda path: card_path(path).unlink(), "card .* cannot be read: No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "damaged"),
        (lambda path: path.write_bytes(b"PK"), "damaged"),
        (lambda path: card_path(path).write_text("{half"), "not JSON"),
        (lambda path: card_path(path).write_text("[]"), "lacks 'table'"),
        (lambda path: damage_card(path, table=2), "version 2, and this fedtune reads version 1"),
        (lambda path: damage_card(path, seeds=None), "lacks 'seeds'"),
        (lambda path: damage_card(path, seeds=[1]), "does not fit"),
        (lambda path: damage_card(path, range={}), "does not fit"),
        (lambda path: save(table(0.0, 0.5), path) and damage_card(path, sha256="0"), "not the one that toy.json"),
        (
            lambda path: np.savez(path, validation=np.array([object()]), test=np.zeros(1), seconds=np.zeros(1)),
            "damaged, or was not written by fedtune",
        ),
    ],
)
def test_what_is_no_table_is_said_in_one_sentence(tmp_path: Path, hurt: Any, words: str) -> None:
    path = tmp_path / "toy.npz"
    save(table(), path)
    hurt(path)
    with pytest.raises(UserError, match=words) as caught:
        load(path)
    assert len(caught.value.problems) == 1 and caught.value.problems[0].endswith(".")


def test_a_kill_between_the_two_files_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "toy.npz"
    save(table(), path)
    before = card_path(path).read_bytes()
    save(table(0.0, 0.5), path)
    card_path(path).write_bytes(before)
    with pytest.raises(UserError, match="not the one"):
        load(path)
