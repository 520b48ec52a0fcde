"""Data that are no images of bytes: tables, vectors, labels in words, floats that are standardised already, images of
16 bits and of several sizes. What is stored, what models are fed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from search_spaces.errors import UserError
from trainables import data, models
from trainables.federation import FederationConfig, normalise
from trainables.simulation import federated_data
from trainables.simulation.replicates import Replicates
from trainables.zoo import Card, load_model, save_model


def people(rows: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    made = pd.DataFrame({"age": rng.normal(50, 9, rows), "smokes": rng.random(rows) < 0.3, "sites": 7})
    return made.assign(
        y=rng.choice(["ill", "well"], rows), ward=rng.choice([30, 4, 11], rows, p=[0.6, 0.3, 0.1]).astype(int)
    )


def written(folder: Path, frame: pd.DataFrame, name: str = "people.csv") -> str:
    path = folder / name
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)
    return str(path)


def fed_to_models(of: data.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """All samples, training before test, as models are fed them, and their labels."""
    mean, std = (torch.tensor(value, dtype=torch.float32) for value in (of.mean, of.std))
    x = torch.from_numpy(np.concatenate([of.train_x, of.test_x]))
    return normalise(x, mean, std).numpy(), np.concatenate([of.train_y, of.test_y])


def test_a_table_is_its_rows_standardised_by_the_training_part(tmp_path: Path) -> None:
    frame = people()
    found = data.load(written(tmp_path, frame) + "?label=y&client=ward")
    assert (found.kind, found.shape, found.class_names, found.owners) == (
        *("vectors", (3, 1, 1)),
        *(("ill", "well"), ("4", "11", "30")),
    )
    # Every row is there once, with its label and its client.
    stored = np.concatenate([found.train_x, found.test_x])[:, :, 0, 0]
    rows = np.column_stack(
        [
            stored,
            np.concatenate([found.train_y, found.test_y]),
            np.concatenate([found.train_owner, found.test_owner]),
        ]
    )
    wanted = frame.assign(y=(frame.y == "well"), ward=frame.ward.map({4: 0, 11: 1, 30: 2}))
    wanted = wanted.astype(np.float32).to_numpy(np.float64)
    np.testing.assert_array_equal(rows[np.lexsort(rows.T)], wanted[np.lexsort(wanted.T)])
    # A fifth of every class of every client is for testing.
    sizes = frame.groupby(["y", "ward"]).size()
    for (label, ward), size in sizes.items():
        mine = (found.test_y == ["ill", "well"].index(label)) & (found.test_owner == [4, 11, 30].index(ward))
        assert mine.sum() == max(1, round(0.2 * size))
    train = np.asarray(found.train_x[:, :, 0, 0], dtype=np.float64)
    np.testing.assert_allclose(found.mean, train.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.std, [train[:, 0].std(), train[:, 1].std(), 1.0], rtol=1e-12)
    x, _ = fed_to_models(found)
    np.testing.assert_allclose(
        x[: len(train), 0, 0, 0], (train[:, 0] - train[:, 0].mean()) / train[:, 0].std(), atol=1e-5
    )
    assert not x[:, 2].any(), "a feature that never changes"


def test_parquet_and_csv_are_the_same_data(tmp_path: Path) -> None:
    frame = people().assign(age=lambda f: f.age.round(3))
    both = [
        data.load(written(tmp_path, frame, f"people{end}") + "?label=y&client=ward") for end in (".csv", ".parquet")
    ]
    assert both[0].hash == both[1].hash
    assert data.load(written(tmp_path, frame.assign(ward=1)) + "?label=y&client=ward").hash != both[0].hash


def test_clients_of_the_data_hold_their_own_rows(tmp_path: Path) -> None:
    reference = written(tmp_path, people()) + "?label=y&client=ward"
    source = data.load(reference)
    config = FederationConfig(dataset=reference, partition="natural", clients=3)
    fed, made = federated_data.build(config, 0, torch.device("cpu"))
    assert (fed.model, fed.kind, fed.clients) == ("mlp", "vectors", 3)
    assert (made.class_names, made.client_names) == (("ill", "well"), ("4", "11", "30"))
    owner = np.concatenate([source.train_owner, source.test_owner])
    for client in made.clients:
        assert set(owner[client.indices.numpy()].tolist()) == {client.client}
        assert int(client.indices.max()) < len(source.train_y), "no row of the test part"
    assert made.validation is not None and made.validation.own is not None and made.test.own is not None
    for part in (made.validation, made.test):
        for client, own in enumerate(part.own or ()):
            assert set(owner[part.indices[own].numpy()].tolist()) == {client}
    held = [set(client.indices.tolist()) for client in made.clients]
    assert sum(map(len, held)) + len(made.validation.indices) == len(source.train_y)
    assert not set.union(*held) & set(made.validation.indices.tolist())
    again = federated_data.build(config, 0, torch.device("cpu"))[1]
    other = federated_data.build(config, 1, torch.device("cpu"))[1]
    assert made.fingerprint == again.fingerprint != other.fingerprint, "the validation share is drawn by the seed"


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({}, "", "label must be the column that holds the classes, got none .* Its columns are age, smokes"),
        ({}, "?label=yy", r"label must be the name of a column, got 'yy' .* Did you mean 'y'"),
        ({}, "?label=y&client=y", "client must be another column than label"),
        ({}, "?label=y&colour=2", "A data set of your own must be followed by label=, client="),
        ({}, "?label=y&resize=8", "resize must be left out for a .csv file"),
        ({"age": "old"}, "?label=y", "The column 'age' must be of numbers, as every feature is, got 'old'"),
        ({"age": np.nan}, "?label=y", "The column 'age' must be finite everywhere, got 240 of 240 that are missing"),
        ({"y": None}, "?label=y", "y must be .*, got .*"),
        ({"y": 0.5}, "?label=y", "y must be whole numbers, words, or true and false, and nowhere missing, got 0.5"),
        ({"y": 1}, "?label=y", "A data set must be of at least 2 classes, got only 1"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used(tmp_path: Path, change: dict[str, object], options: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        data.load(written(tmp_path, people().assign(**change)) + options)


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    for name, content in (("a.csv", b""), ("b.csv", b'a,b\n1,2,3\n4,"5'), ("c.parquet", b"PAR1 and no more")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=r"data set must be a complete"):
            data.load(f"{tmp_path / name}?label=b")


def test_the_numbers_of_the_rows_are_no_feature(tmp_path: Path) -> None:
    people().to_csv(tmp_path / "a.csv")
    with pytest.raises(
        UserError, match=r"Every column must be named in the first line, got one without a name .*a\.csv"
    ):
        data.load(f"{tmp_path / 'a.csv'}?label=y")


def test_clients_must_be_those_of_the_data(tmp_path: Path) -> None:
    path = written(tmp_path, people())
    for options, clients, said in (
        ("label=y&client=ward", 5, "clients must be 3, the clients of people.csv.*, in the partition natural, got 5"),
        ("label=smokes", 3, "must be"),
    ):
        with pytest.raises(UserError, match=said):
            config = FederationConfig(dataset=f"{path}?{options}", partition="natural", clients=clients)
            federated_data.build(config, 0, torch.device("cpu"))
    np.savez(tmp_path / "v.npz", x=np.eye(60, 5), y=np.arange(60) % 3)
    with pytest.raises(UserError, match="partition must be another one for data that do not say whose each sample is"):
        config = FederationConfig(dataset=str(tmp_path / "v.npz"), partition="natural", clients=3)
        federated_data.build(config, 0, torch.device("cpu"))


def test_vectors_and_their_clients_in_an_npz_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y, who = rng.random((90, 4)), rng.permutation(90) % 3, np.array(["b", "a"])[rng.permutation(90) % 2]
    np.savez(tmp_path / "v.npz", x=x, y=y, who=who)
    found = data.load(f"{tmp_path / 'v.npz'}?client=who")
    assert (found.kind, found.shape, found.owners) == ("vectors", (4, 1, 1), ("a", "b"))
    stored = np.concatenate([found.train_x, found.test_x])[:, :, 0, 0]
    assert {tuple(row) for row in stored.tolist()} == {tuple(row) for row in x.astype(np.float32).tolist()}
    where = {tuple(row): i for i, row in enumerate(x.astype(np.float32).tolist())}
    places = [where[tuple(row)] for row in found.test_x[:, :, 0, 0].tolist()]
    assert [found.owners[i] for i in found.test_owner] == who[places].tolist()
    np.savez(tmp_path / "p.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    assert len(data.load(str(tmp_path / "p.npz")).test_y) == 30


@pytest.mark.parametrize("labels", [["cat", "dog"], [True, False], [b"cat", b"dog"], [2.0, 7.0]])
def test_labels_keep_their_names(tmp_path: Path, labels: list[object]) -> None:
    y = np.array(labels)[np.arange(40) % 2]
    np.savez(tmp_path / "w.npz", x=np.arange(40 * 4).reshape(40, 2, 2).astype(np.uint8), y=y)
    found = data.load(str(tmp_path / "w.npz"))
    names = {bool: ("False", "True"), float: ("2", "7")}.get(type(labels[0]), ("cat", "dog"))
    assert found.class_names == names
    at = {tuple(image.ravel().tolist()): i for i, image in enumerate(np.arange(160).reshape(40, 4).astype(np.uint8))}
    for image, label in zip(found.train_x, found.train_y, strict=True):
        word = y[at[tuple(image.ravel().tolist())]]
        word = word.decode() if isinstance(word, bytes) else str(int(word) if isinstance(word, float) else word)
        assert found.class_names[label] == word


def test_standardised_floats_are_fed_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(50, 3, 4)).astype(np.float32)
    np.savez(tmp_path / "s.npz", x_train=x, y_train=np.arange(50) % 5, x_test=3 * x[:10], y_test=np.arange(10) % 5)
    found = data.load(str(tmp_path / "s.npz"))
    fed, _ = fed_to_models(found)
    np.testing.assert_allclose(fed[:50, 0], x, atol=2e-6)
    assert found.train_x.min() >= 0 and found.train_x.max() <= 1, "generators in [0, 1] have the range of the data"
    np.testing.assert_allclose([found.offset, found.offset + found.scale], [x.min(), x.max()], rtol=1e-6)
    card = Card("cnn", found.shape, 5, found.mean, found.std, {}, "batch", found.kind, found.offset, found.scale)
    np.testing.assert_allclose(card.normalise(torch.from_numpy(x[:, None])).numpy(), x[:, None], atol=2e-6)
    assert Card.from_json(card.to_json()) == card


def test_images_of_16_bits_are_scaled_by_their_format(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 65536, (12, 5, 6)).astype(np.uint16)
    for i, image in enumerate(pixels):
        path = tmp_path / "scans" / "ab"[i % 2] / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    y = np.arange(12) % 2
    np.savez(tmp_path / "scans.npz", x=pixels[np.argsort(y, kind="stable")], y=np.sort(y))
    folder, arrays = data.load(str(tmp_path / "scans")), data.load(str(tmp_path / "scans.npz"))
    for found in (folder, arrays):
        every = np.sort(np.concatenate([found.train_x, found.test_x]).ravel())
        np.testing.assert_allclose(every, np.sort(pixels.ravel()) / 65535, rtol=1e-6)
        train = np.asarray(found.train_x, dtype=np.float64)
        np.testing.assert_allclose([*found.mean, *found.std], [train.mean(), train.std()], rtol=1e-9)
        assert (found.kind, found.scale) == ("images", 65535)
    np.testing.assert_array_equal(folder.train_x, arrays.train_x)
    Image.new("RGB", (6, 5)).save(tmp_path / "scans" / "a" / "x.png")
    with pytest.raises(UserError, match=r"Images must be all grey where some have 16 bits per channel, got colour"):
        data.load(str(tmp_path / "scans"))


def test_images_of_several_sizes_are_brought_to_one(tmp_path: Path) -> None:
    for i in range(8):
        path = tmp_path / "photos" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8 + i, 9), 10 * i).save(path)
    with pytest.raises(UserError, match=r"Images must be of one size, 8×9 like 0.png, got .* Give --set resize=32"):
        data.load(str(tmp_path / "photos"))
    found = data.load(f"{tmp_path / 'photos'}?resize=6x4")
    assert found.shape == (1, 6, 4)
    assert sorted(np.concatenate([found.train_x, found.test_x]).mean((1, 2, 3)).tolist()) == [
        10.0 * i for i in range(8)
    ]
    assert data.load(f"{tmp_path / 'photos'}?resize=5").shape == (1, 5, 5)
    for wrong in ("0", "5x5x5", "x", "99999"):
        with pytest.raises(UserError, match="resize must be a size such as 32"):
            data.load(f"{tmp_path / 'photos'}?resize={wrong}")


def letters(rows: int = 300, length: int = 6) -> dict[str, np.ndarray]:
    """Sequences whose last letter is the class."""
    x = np.random.default_rng(5).integers(0, 4, (rows, length)).astype(np.int16)
    return {"x": x, "y": np.array(["A", "C", "G", "T"])[x[:, -1]]}


def saved(folder: Path, **arrays: np.ndarray) -> str:
    np.savez(folder / "letters.npz", **arrays)  # type: ignore[arg-type]
    return str(folder / "letters.npz")


def test_whole_numbers_of_two_dimensions_are_tokens_unless_said_otherwise(tmp_path: Path) -> None:
    arrays = letters()
    path = saved(tmp_path, **arrays)
    found = data.load(path)
    assert (found.kind, found.shape, found.vocabulary, found.class_names) == (
        *("tokens", (6, 1, 1), 4),
        ("A", "C", "G", "T"),
    )
    x, y = fed_to_models(found)
    rows, wanted = x[:, :, 0, 0], np.column_stack([arrays["x"], arrays["x"][:, -1]])
    assert x.dtype == np.float32
    np.testing.assert_array_equal(np.unique(np.column_stack([rows, y]), axis=0), np.unique(wanted, axis=0))
    vectors = data.load(path + "?samples=vectors")
    assert (vectors.kind, vectors.vocabulary) == ("vectors", 0) and vectors.std != found.std
    assert data.load(saved(tmp_path, vocabulary=np.array(30), **arrays)).vocabulary == 30
    words = np.array(["a", "c", "g", "t", "<unknown>"])
    assert data.load(saved(tmp_path, vocabulary=words, **arrays)).vocabulary == 5
    floats = saved(tmp_path, x=arrays["x"].astype(np.float32), y=arrays["y"])
    assert data.load(floats).kind == "vectors" and data.load(floats + "?samples=tokens").kind == "tokens"


@pytest.mark.parametrize(
    ("change", "samples", "said"),
    [
        (
            {"x": np.full((9, 3), -1)},
            "",
            r"x must be tokens in 0 … 1048575, got values from -1 to -1 .*samples=vectors",
        ),
        ({"vocabulary": np.array(3)}, "", r"x must be tokens in 0 … 2, got values from 0 to 3"),
        ({"vocabulary": np.array(0)}, "", "vocabulary must be of 1 to 1048576 tokens, got 0"),
        ({"vocabulary": np.array(2.5)}, "", "vocabulary must be the number of tokens, or their list, got float64"),
        ({"x": np.full((9, 3), 0.5)}, "tokens", "x must be whole numbers, as tokens are, got float64"),
        ({}, "words", "Unknown kind of samples 'words'"),
        ({"x": np.zeros((9, 4, 4), np.uint8)}, "tokens", "samples must be left out for images, got 'tokens'"),
    ],
)
def test_what_is_no_token_is_one_sentence(
    tmp_path: Path, change: dict[str, np.ndarray], samples: str, said: str
) -> None:
    arrays = letters(9) | change
    with pytest.raises(UserError, match=said):
        data.load(saved(tmp_path, **arrays) + (f"?samples={samples}" if samples else ""))


def test_a_federation_of_sequences_learns_with_the_small_network(tmp_path: Path) -> None:
    path = saved(tmp_path, **letters())
    values = {
        "dataset": path,
        "clients": 3,
        "omega": 100.0,
        "lr": 0.5,
        "local_steps": 30,
        "batch_size": 32,
        "rounds": 3,
    }
    trained = Replicates("fedavg", values, (0,))
    assert trained.simulations[0].fed.model == "lstm"
    assert trained.partition()["classes"] == ["A", "C", "G", "T"] and trained.partition()["clients"] == []
    rows = [trained.step()[0] for _ in range(3)]
    assert rows[-1]["global_accuracy"] > 0.9, "a quarter would be guessed"
    params, card = trained.models()[0]
    save_model(tmp_path / "model.safetensors", params, card)
    model, card = load_model(tmp_path / "model.safetensors")
    tokens = torch.from_numpy(letters()["x"][:50])
    classes = model(card.normalise(tokens)).argmax(1)
    assert (classes == tokens[:, -1]).double().mean() > 0.9
    with pytest.raises(UserError, match="holds tokens, and dfrd, which generates images, needs images"):
        Replicates("dfrd", {"dataset": path}, (0,))
    for name in ("cnn", "mlp"):
        with pytest.raises(UserError, match=f"model must be auto, lstm or one of your own for tokens.*got '{name}'"):
            Replicates("fedavg", {"dataset": path, "model": name}, (0,))
    with pytest.raises(UserError, match="model must be another one for digits, which holds no sequences of tokens"):
        Replicates("fedavg", {"dataset": "digits", "model": "lstm"}, (0,))


def test_an_own_network_is_fed_tokens_as_whole_numbers(workplace: Path) -> None:
    (workplace / "bag.py").write_text(
        "import torch\n\n\nclass Bag(torch.nn.Module):\n    def __init__(self, vocabulary, length, classes):\n"
        "        super().__init__()\n        self.words = torch.nn.Embedding(vocabulary, 8 * length)\n"
        "        self.head = torch.nn.Linear(8 * length, classes)\n\n"
        "    def forward(self, x):\n        return self.head(self.words(x).mean(1))\n"
    )
    values = {"dataset": saved(workplace, **letters()), "model": models.named(f"{workplace}/bag.py:Bag"), "clients": 3}
    trained = Replicates("fedavg", values, (0,))
    assert trained.step()[0]["train_loss"] > 0
    assert trained.simulations[0].fed.network().state_dict()["body.words.weight"].shape == (4, 48)
