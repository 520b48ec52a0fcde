"""Options, tiers and fixtures that the tests of the product and those of the benchmarks share."""

from __future__ import annotations

import gc
import os
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tiers
from tests.toy import write_toy


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, metavar="N", help="about one test of N, the same ones every time")
    parser.addoption("--record-durations", type=Path, metavar="FOLDER", help="write there what each test takes")
    parser.addoption("--order", metavar="TEXT", help="files and functions in an order drawn with this seed")


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C acts as in a terminal. A shell lets what it starts in the background ignore it, the commands that tests
    start would inherit that, and their searches would run on for good."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = config.getoption("record_durations")
    if folder and (os.environ.get("PYTEST_XDIST_WORKER") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(tiers.Recorder(folder))
    gc.disable()  # until all is collected: imports make much that stays, and nothing to be thrown away


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Says of each test in which tier it is, leaves out what is not in the sample that `--every` asks for, and begins
    with the files that take longest: one begun at the end would leave the other processors without work."""
    known = tiers.recorded()
    tiers.mark(items, known)
    every = config.getoption("every")
    config.hook.pytest_deselected(items=[item for item in items if zlib.crc32(item.nodeid.encode()) % every])
    items[:] = [item for item in items if not zlib.crc32(item.nodeid.encode()) % every]
    if seed := config.getoption("order"):
        items.sort(key=lambda item: zlib.crc32(f"{seed} {item.nodeid.partition('[')[0]}".encode()))
        items.sort(key=lambda item: zlib.crc32(f"{seed} {item.path}".encode()))
        return
    weights: Counter[Path] = Counter()
    expression = config.getoption("markexpr")
    for item in items:
        if "not slow" not in expression or not (item.get_closest_marker("slow") or item.get_closest_marker("nightly")):
            weights[item.path] += known.get(item.nodeid, 0.0)
    for path in {item.path for item in items}:
        weights[path] += known.get(path.relative_to(config.rootpath).as_posix(), 0.0)
    items.sort(key=lambda item: -weights[item.path])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Names what took long and is not known to be slow, as new tests."""
    if config.getoption("record_durations"):
        return
    known = tiers.recorded()
    taken: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport) and report.nodeid not in known:
            taken[report.nodeid] += report.duration
    for name, seconds in taken.most_common():
        if seconds > 10 * tiers.SLOW:
            terminalreporter.line(f"{name} took {seconds:.0f} s: `make durations` records what is slow.")


@pytest.fixture
def hang_up() -> Iterator[None]:
    """A hang-up acts in the test and in what it starts, under `nohup` too, which the tests as a whole obey."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """`fedtune` with these words, in this process: its exit code, what it prints, and what it prints to stderr."""
    from fedtune.cli import main

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedtune", *words])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny separable data set as an .npz file."""
    return write_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of somebody who has named no file of their own on this machine, whose cache is empty."""
    from trainables import own_code

    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    own_code.forget()
    yield tmp_path
    own_code.forget()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray for all tests of a session, started as for a search; starting it takes seconds. Its two GPUs are declared
    only, for tests of placement."""
    from fedtune.machine import cluster
    from fedtune.machine.private_ray import private_folder, started
    from tests.fedtune import fake

    os.environ.update(cluster.ENVIRONMENT)
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(fake)
    with private_folder() as folder, started(folder, cores=8, with_gpus=True, num_gpus=2):
        yield


@pytest.fixture(scope="session")
def forks() -> None:
    """The process from which `tests/forked.py` forks commands has its imports; they take seconds."""
    from tests import forked

    forked.run(["-c", ""], cwd=Path.cwd())


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, a `tests.analysis.browser.Shown`, for tests that carry the marks `BROWSER`."""
    from tests.analysis.browser import Browsing

    with Browsing() as shown:
        yield shown


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
