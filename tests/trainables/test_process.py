"""What a process does to itself before it simulates: memory it keeps, and how it computes on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from trainables import process, split
from trainables.data import load
from trainables.process import CONTEXT

_FAULTS = """
import resource, sys, torch
from trainables import process
if sys.argv[1] == "kept": process.keep_memory()
def fault():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.empty(2 << 20).fill_(1.0) for _ in range(20)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(fault() for _ in range(4)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="settings of the GNU C library")
def test_freed_memory_is_kept() -> None:
    """Twenty blocks of 8 MiB at once, again and again: 2048 pages are got anew for each, or for none."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}

    def faults(word: str) -> int:
        return int(subprocess.run([sys.executable, "-c", _FAULTS, word], capture_output=True, text=True, check=True, env=bare).stdout)

    assert faults("kept") < 100 and faults("bare") > 10_000


@pytest.fixture
def flags() -> Iterator[None]:
    """Leaves torch's settings as they were."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
        before = torch.backends.cuda.matmul.allow_tf32
        yield
        torch.backends.cuda.matmul.allow_tf32 = before


def test_a_part_of_a_gpu_is_its_part_of_the_memory_less_a_context(flags: None, monkeypatch: pytest.MonkeyPatch) -> None:
    total = 80 << 30
    asked: list[float] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=total))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", asked.append)
    for share in (0.25, 1.0, 2.0, 0.005):
        process.use_gpu(share)
    assert asked == [0.25 - CONTEXT / total, 1.0, 1.0, 0.01]
    assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32


def test_a_gpu_holds_one_data_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "_MOVED", {})
    source, elsewhere = load("digits"), torch.device("meta")
    first = split._images(source, elsewhere)
    assert split._images(source, elsewhere) is first and len(split._MOVED) == 1
    other = SimpleNamespace(hash="another", train_x=source.train_x[:3], test_x=source.test_x[:2])
    assert len(split._images(other, elsewhere).train) == 3 and len(split._MOVED) == 1  # type: ignore[arg-type]
    split._images(source, torch.device("cpu"))
    assert len(split._MOVED) == 1, "on a CPU they are mapped, not moved"
