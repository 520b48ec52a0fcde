"""Pictures of an attack: what stands where, in the grid and on the page."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis.report.attack import COLUMNS, RebuiltImage, attack_picture, pixels, write_page, write_png
from search_spaces.errors import UserError


def pair(shape: tuple[int, int, int], seed: int = 0, caption: str = "client 0, class a") -> RebuiltImage:
    rng = np.random.default_rng(seed)
    return RebuiltImage(rng.random(shape), rng.random(shape), 12.345, caption)


def found_at(sheet: np.ndarray, picture: np.ndarray) -> list[tuple[int, int]]:
    h, w = picture.shape[:2]
    corner = np.argwhere((sheet == picture[0, 0]).all(axis=-1))
    return [
        (int(y), int(x))
        for y, x in corner
        if sheet[y : y + h, x : x + w].shape == picture.shape and (sheet[y : y + h, x : x + w] == picture).all()
    ]


@pytest.mark.parametrize(("shape", "factor"), [((1, 8, 8), 14), ((3, 32, 32), 3), ((1, 28, 28), 4), ((3, 200, 150), 1)])
def test_every_pair_stands_in_one_column(shape: tuple[int, int, int], factor: int) -> None:
    pairs = [pair(shape, seed) for seed in range(10)]
    sheet = np.asarray(attack_picture(pairs, "a title"))
    places = []
    for one in pairs:
        above, below = ((pixels(image).repeat(factor, 0).repeat(factor, 1)) for image in (one.original, one.recovered))
        ((y, x),) = found_at(sheet, above)
        ((y2, x2),) = found_at(sheet, below)
        assert x == x2 and y2 > y
        places.append((y, x))
    assert len({y for y, _ in places}) == 2 and len({x for _, x in places}) == COLUMNS
    assert places == sorted(places)


def test_pixels_clamp_and_spread_grey() -> None:
    image = np.array([[[-1.0, 0.5], [1.0, 2.0]]])
    assert pixels(image)[..., 0].tolist() == [[0, 128], [255, 255]] and pixels(image).shape == (2, 2, 3)
    colours = np.zeros((3, 1, 1))
    colours[2] = 1
    assert pixels(colours).tolist() == [[[0, 0, 255]]]
    assert pixels(np.stack([image[0], image[0] * 0])).shape == (2, 2, 3)


def test_the_page_holds_the_pictures_and_fetches_nothing(tmp_path: Path) -> None:
    pairs = [pair((1, 8, 8), caption="client 1, class <b>")]
    text = write_page(pairs, "Title & more", [("steps", "3")], tmp_path / "a.html").read_text()
    assert "Title &amp; more" in text and "class &lt;b&gt;" in text and "12.3 dB" in text and "<b>client" not in text
    shown = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(code))))
        for code in re.findall(r"data:image/png;base64,([^\"]+)", text)
    ]
    assert [picture.tolist() for picture in shown] == [
        pixels(pairs[0].original).tolist(),
        pixels(pairs[0].recovered).tolist(),
    ]
    assert not re.search(r"(src|href)=\"https?:", text)


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_png([pair((1, 8, 8))], "t", tmp_path / "file" / "a.png")
