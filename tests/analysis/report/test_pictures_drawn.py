"""Pictures on the page as a browser draws them: no text is clipped or overlaps, wide and at 420 px, bright and dark,
and on paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.report import build
from search_spaces import kept_images
from tests.analysis.browser import BROWSER, Shown
from tests.analysis.figures import kept
from tests.analysis.figures.test_attack import attacked
from tests.analysis.report.test_drawn import VIEWS, faults

pytestmark = BROWSER

CLASSES, SEED = 12, 7


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with images of two generators, mean images, decision boundaries, features and an attack."""
    folder = tmp_path_factory.mktemp("pictures") / "run"
    rng = np.random.default_rng(0)

    def images(*shape: int) -> np.ndarray:
        return rng.integers(0, 256, (*shape, 1, 8, 8), dtype=np.uint8)

    attacked(root, folder, "A method of a long name", "digits", images(5))
    plane = np.add.outer(np.arange(kept_images.SIDE), np.arange(kept_images.SIDE)) // kept_images.SIDE
    for round_ in range(1, 31):
        arrays = {"plane": plane, "teacher": plane.T}
        for source in kept_images.SOURCES:
            arrays |= {source: images(CLASSES, 8), f"{source}_mean": images(CLASSES)}
            arrays[f"{source}_count"] = np.full(CLASSES, 64)
        arrays |= {"features": rng.integers(-9000, 9000, (CLASSES, 64, 2)), "features_share": np.array([310, 120])}
        arrays |= {"features_seen": rng.integers(-9000, 9000, (300, 2)), "features_labels": np.arange(300) % CLASSES}
        kept.write(folder, SEED, round_, arrays)
    of_data = {"data": images(CLASSES, 8), "data_mean": images(CLASSES), "data_count": np.full(CLASSES, 50)}
    points = {"data_points": rng.integers(0, 256, (90, 2), dtype=np.uint8), "data_labels": np.arange(90) % 3}
    kept.write(folder, SEED, None, of_data | points)
    return build(folder, folder.parent / "page.html")


@VIEWS
def test_nothing_is_clipped_or_overlaps(width: int, dark: bool, paper: bool, page: Path, browser: Shown) -> None:
    text = page.read_text()
    for name in ("images", "averages", "boundary", "features", "attack", "partition"):
        assert f'data-figure="{name}"' in text
    assert faults(browser, page, width, dark, paper) == []
