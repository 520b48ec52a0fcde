"""Saved models: the card that is written is the card that is read, and a missing half or another version is named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from search_spaces.errors import UserError
from trainables import models
from trainables.params import take
from trainables.zoo import Card, hash_of, load_model, save_model, unreadable

CARD = Card(
    "cnn_small",
    (1, 8, 8),
    3,
    (0.1306604762738429,),
    (0.3,),
    {"method": "fedavg", "seed": 7, "round": 2, "metrics": {"global_accuracy": 0.5}},
)


def saved(folder: Path) -> Path:
    path = folder / "model-7.safetensors"
    save_model(path, take(models.build(CARD.model, CARD.shape, CARD.classes)), CARD)
    return path


def test_a_model_and_its_card_come_back_as_they_were(tmp_path: Path) -> None:
    model, card = load_model(saved(tmp_path))
    assert card == CARD and card.mean.shape == (1, 1, 1) and float(card.mean) == pytest.approx(0.1306604762738429)
    original = models.build(CARD.model, CARD.shape, CARD.classes)
    assert not model.training and all(
        torch.equal(tensor, original.state_dict()[name]) for name, tensor in model.state_dict().items()
    )
    assert {path.name for path in tmp_path.iterdir()} == {"model-7.safetensors", "model-7.json"}


def test_weights_of_which_bytes_were_lost_are_refused(tmp_path: Path) -> None:
    """A file of weights is whole in its form whatever numbers it holds, so the card says which they were."""
    path = saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-40] + bytes(40))
    with pytest.raises(UserError, match="its weights are not those that its card was written for") as told:
        load_model(path)
    assert str(path) in str(told.value) and str(told.value).endswith(".")


def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    for damaged in (b"", content[:100], content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="cannot be read as a model: ") as told:
            load_model(path)
        assert str(told.value).endswith(".") and len(told.value.problems) == 1
    assert str(unreadable(path, "a model", ValueError())) == f"{path} cannot be read as a model: ValueError."


def test_the_hash_tells_names_shapes_and_values_apart() -> None:
    x = torch.arange(6, dtype=torch.float32)
    others = [{"b": x}, {"a": x.reshape(2, 3)}, {"a": x + 1}, {"a": x.int()}, {"a": x, "b": x}]
    assert len({hash_of({"a": x}), *map(hash_of, others)}) == 6
    assert hash_of({"a": x, "b": -x}) == hash_of({"b": -x, "a": x.clone()})
    assert hash_of({"a": x.bfloat16(), "n": torch.tensor(3)}) != hash_of({"a": x.bfloat16(), "n": torch.tensor(4)})


def test_running_statistics_come_back_and_make_an_image_independent_of_the_others(tmp_path: Path) -> None:
    original = models.build(CARD.model, CARD.shape, CARD.classes, batch_norm="running")
    images = torch.rand(16, *CARD.shape, generator=torch.Generator().manual_seed(0))
    original.train()(images)
    path = tmp_path / "model-7.safetensors"
    save_model(path, take(original), dataclasses.replace(CARD, batch_norm="running"))
    model, card = load_model(path)
    assert card.batch_norm == "running"
    kept = model.state_dict()
    statistics = [name for name in kept if "running" in name]
    assert statistics and all(torch.equal(kept[name], original.state_dict()[name]) for name in statistics)
    assert not torch.equal(kept[statistics[0]], torch.zeros_like(kept[statistics[0]])), "the batch has moved them"
    with torch.no_grad():
        assert torch.allclose(model(images)[:1], model(images[:1]), atol=1e-5)
        plain, _ = load_model(saved(tmp_path))
        assert not torch.allclose(plain(images)[:1], plain(images[:1]), atol=1e-2)


def test_a_missing_half_another_version_and_another_kind_of_file_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path)
    note = path.with_suffix(".json")
    content = json.loads(note.read_text())
    assert content["version"] == 2 and content["mean"] == [0.1306604762738429] and content["round"] == 2
    for other in (1, 99):
        note.write_text(json.dumps(content | {"version": other}))
        with pytest.raises(UserError, match=f"has version {other} and this fedtune reads version 2"):
            load_model(path)
    note.write_text(json.dumps({"version": 2, "shape": [1, 8]}))
    with pytest.raises(UserError, match="cannot be read as a model"):
        load_model(path)
    note.unlink()
    with pytest.raises(UserError, match="There is no file"):
        load_model(path)
