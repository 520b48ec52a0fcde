"""Fixtures shared by all tests."""

from __future__ import annotations

import signal
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.toy import write_toy


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, metavar="N", help="about one test of N, the same ones every time")


def pytest_configure() -> None:
    """Ctrl-C acts as in a terminal. A shell lets what it starts in the background ignore it, the commands that tests
    start would inherit that, and their searches would run on for good."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not in the sample that `--every` asks for, and begins with what takes long: a long file
    begun at the end would leave the other processors without work. A slow test takes about twenty times as long as
    another one on average, one of a whole search on Ray ten times."""
    every = config.getoption("every")
    config.hook.pytest_deselected(items=[item for item in items if zlib.crc32(item.nodeid.encode()) % every])
    items[:] = [item for item in items if not zlib.crc32(item.nodeid.encode()) % every]
    weights: Counter[Path] = Counter()
    for item in items:
        on_ray = "ray_cluster" in getattr(item, "fixturenames", ())
        weights[item.path] += 20 if item.get_closest_marker("slow") else 10 if on_ray else 1
    items.sort(key=lambda item: -weights[item.path])


@pytest.fixture
def hang_up() -> Iterator[None]:
    """A hang-up acts in the test and in what it starts, under `nohup` too, which the tests as a whole obey."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny separable data set as an .npz file."""
    return write_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def float64() -> Iterator[None]:
    """The code under test computes in float64: it is compared with its equation to nine digits, on every processor."""
    from tests.float64 import in_float64

    with in_float64():
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Bits are compared between runs: the number of threads is fixed."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def optunas_versions_once() -> Iterator[None]:
    """Optuna reads the list of its storage's versions, some ten modules of its own, at every opening of a study: half
    of what the tests of the queue would do. It is the same for a whole process, so it is read once."""
    from optuna.storages._rdb.storage import _VersionManager

    with pytest.MonkeyPatch.context() as patch:
        script: list[Any] = []
        read = _VersionManager._create_alembic_script

        def once(manager: _VersionManager) -> Any:
            if not script:
                script.append(read(manager))
            return script[0]

        patch.setattr(_VersionManager, "_create_alembic_script", once)
        yield
