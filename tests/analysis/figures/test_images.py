"""Images and mean images of a run: the right one in its place, and nothing of a file that is not what it should be."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis.figures import averages, images
from analysis.figures._image_grid import image_grid
from analysis.labels import Labels
from analysis.runs import Run
from analysis.runs.images import images_of_run, read_images
from search_spaces import kept_images
from tests.analysis.figures import kept
from tests.analysis.figures.kept import SHAPE, grey, name_classes, of_round, with_images


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Run:
    return with_images(root, tmp_path / "run")


def test_a_row_per_generator_class_round_and_image(run: Run) -> None:
    assert images.needs([run]) is None
    table = images.data([run]).table.set_index(["source", "class", "round", "place"])["image"]
    assert len(table) == 2 * 2 * 2 + 2 * 2
    assert int(table["generator", 0, 1, 0].max()) == 10 and int(table["ema", 1, 3, 1].max()) == 60
    assert table["generator", 1, 3, 0] is not None and table["generator", 1, 3, 1] is None
    assert table["generator", 1, 3, 0].shape == SHAPE


def test_the_picture_has_each_image_in_its_place(run: Run) -> None:
    drawn = images.plot(images.data([run]), Labels())
    assert [a.text for a in drawn.layout.annotations] == ["<b>generator</b>", "<b>EMA generator</b>"]
    found = pixels(drawn.data[0].source)
    x, y = drawn.layout.xaxis, drawn.layout.yaxis
    assert list(x.ticktext) == ["1", "", "3", ""] and list(y.ticktext) == ["0", "1"]
    level = {(i, j): tuple(found[int(v), int(u)]) for i, v in enumerate(y.tickvals) for j, u in enumerate(x.tickvals)}
    assert level[0, 0] == level[1, 1] == (10, 10, 10, 255)
    assert level[0, 2] == level[0, 3] == level[1, 2] == (30, 30, 30, 255)
    assert level[1, 3][3] == 0  # not painted


def test_rows_and_columns_have_the_names_of_classes(run: Run) -> None:
    named = name_classes(run, ["a very long name", "dog"])
    assert list(images.plot(images.data([named]), Labels()).layout.yaxis.ticktext) == ["a very long…", "dog"]
    averaged = name_classes(with_originals(run), ["cat", "dog"])
    assert list(averages.plot(averages.data([averaged]), Labels()).layout.xaxis.ticktext) == ["cat", "dog"]


def with_originals(run: Run) -> Run:
    """Of two classes eight test images each, the first one of grey 100 · class, the next ones brighter by one."""
    originals = np.stack([np.stack([grey(100 * label + k) for k in range(8)]) for label in range(2)])
    means = {"data_mean": grey(200, 2), "data_count": np.array([50, 60])}
    kept.write(run.path, 7, None, {"data": originals, **means})
    return run


def test_original_images_are_the_first_panel(run: Run) -> None:
    drawing = images.data([with_originals(run)])
    own = drawing.table[drawing.table["source"] == "data"]
    # As many as a panel of a generator may have columns: two rounds of four images each.
    assert list(zip(own["class"], own["place"], strict=True)) == [(c, k) for c in (0, 1) for k in range(8)]
    assert "test images of each class" in drawing.note
    drawn = images.plot(drawing, Labels())
    titles = ["<b>original</b>", "<b>generator</b>", "<b>EMA generator</b>"]
    assert [a.text for a in drawn.layout.annotations] == titles
    assert drawn.layout.xaxis.title.text == "test images" and drawn.layout.xaxis2.title.text == "round"
    assert not any(drawn.layout.xaxis.ticktext) and list(drawn.layout.yaxis.ticktext) == ["0", "1"]
    found = pixels(drawn.data[0].source)
    x, y = drawn.layout.xaxis.tickvals, drawn.layout.yaxis.tickvals
    for label, v in enumerate(y):
        assert [int(found[int(v), int(u), 0]) for u in x] == [100 * label + k for k in range(8)]


def test_a_run_without_original_images_draws_the_generators_alone(run: Run) -> None:
    drawing = images.data([run])
    assert set(drawing.table["source"]) == {"generator", "ema"} and "riginal" not in drawing.note


def test_original_images_alone_are_no_picture_of_a_generator(root: Path, tmp_path: Path) -> None:
    run = with_originals(with_images(root, tmp_path / "run"))
    for path in (run.path / "trials" / "0000").glob("images-7-000*"):
        path.unlink()
    assert "--set keep_images=true" in str(images.needs([run]))


def test_rounds_are_drawn_evenly_and_the_last_one_is(root: Path, tmp_path: Path) -> None:
    run = with_images(root, tmp_path / "run")
    for round_ in range(4, 24):
        kept.write(run.path, 7, round_, of_round("generator", round_, [64, 64]))
    rounds = sorted(set(images.data([run]).table["round"]))
    assert len(rounds) == images.LIMIT and rounds[0] == 1 and rounds[-1] == 23


def test_of_large_images_fewer_classes_are_drawn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two rounds of two images each: 2 · 4 · 6 bytes for both classes.
    monkeypatch.setattr(images, "LARGEST", 47)
    drawing = images.data([with_originals(run)])
    assert set(drawing.table["class"]) == {0} and drawing.note.endswith("The first 1 of 2 classes are drawn.")
    assert "data" in set(drawing.table["source"])


def test_means_of_the_last_round_stand_beside_those_of_the_data(run: Run) -> None:
    assert averages.needs([run]) is None
    drawing = averages.data([run])
    table = drawing.table.set_index(["source", "class"])["mean"]
    assert {key: None if m is None else int(m.max()) for key, m in table.items()} == {
        ("data", 0): 200,
        ("data", 1): None,  # of too few training images
        ("generator", 0): 31,
        ("generator", 1): 31,
        ("ema", 0): 61,
        ("ema", 1): 61,
    }
    drawn = averages.plot(drawing, Labels())
    assert list(drawn.layout.yaxis.ticktext) == ["training data", "generator", "EMA generator"]


def test_without_images_both_say_what_they_need(loaded: dict[str, Run]) -> None:
    for figure in (images, averages):
        assert "--set keep_images=true" in str(figure.needs([loaded["final"]]))


def test_colour_images_keep_their_channels() -> None:
    red = np.zeros((3, 2, 2), dtype=np.uint8)
    red[0] = 255
    assert tuple(pixels(image_grid([[red]]).source)[0, 0]) == (255, 0, 0, 255)


def bomb() -> bytes:
    """A file whose array says that it has a hundred thousand million numbers."""
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        made, {"shape": (10**11,), "fortran_order": False, "descr": np.lib.format.dtype_to_descr(np.dtype(np.uint8))}
    )
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 half a file", "half copied"),
        ({"generator_mean.npy": bomb()}, "a bomb"),
        ({"generator_mean.npy": b"\x93NUMPY"}, "cut"),
        ({"generator_mean": grey(1, 2), "generator_count": np.array([1, 2, 3])}, "counts of other classes"),
        ({"generator_mean": grey(1, 2).astype(float), "generator_count": np.array([1, 2])}, "fractions"),
        ({"generator_mean": np.array([{}, {}]), "generator_count": np.array([1, 2])}, "objects"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_not_what_it_should_be_is_left_out(
    root: Path, tmp_path: Path, content: bytes | dict[str, bytes | np.ndarray], what: str
) -> None:
    run = with_images(root, tmp_path / "run")
    for path in (run.path / "trials" / "0000").glob("images-7-000*"):
        path.write_bytes(content if isinstance(content, bytes) else packed(content))
        assert not read_images(path), what
    assert images_of_run(run) is not None
    assert images.needs([run]) is not None and averages.needs([run]) is not None


def test_an_array_that_is_too_large_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "images-0-0001.npz"
    path.write_bytes(packed({"generator_mean.npy": bytes(2 * kept_images.BYTES + 1)}))
    assert path.stat().st_size < 10_000 and not read_images(path)


def packed(members: dict[str, bytes | np.ndarray]) -> bytes:
    file = io.BytesIO()
    arrays = {name: value for name, value in members.items() if isinstance(value, np.ndarray)}
    if arrays:
        np.savez(file, **arrays)  # type: ignore[arg-type]
        return file.getvalue()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    return file.getvalue()


def pixels(source: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))
