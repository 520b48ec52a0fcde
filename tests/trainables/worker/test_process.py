"""What a process does to itself before it simulates: memory it keeps, and how it computes on a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from fedtune.machine import cluster
from trainables.data import load
from trainables.simulation import federated_data
from trainables.worker import memory, process
from trainables.worker.process import CONTEXT


def raised(first: Exception, second: str, *, hides: bool = False) -> RuntimeError:
    """An error of that text that came as a block was left because of the first one."""

    @contextlib.contextmanager
    def capture() -> Iterator[None]:
        try:
            yield
        finally:
            error = RuntimeError(second)
            error.__suppress_context__ = hides
            raise error

    with pytest.raises(RuntimeError) as caught, capture():
        raise first
    return caught.value


def test_memory_that_did_not_suffice_for_recording_a_step_is_told_from_other_errors() -> None:
    """CUDA says of a recording that ended early no more than that it is invalid."""
    invalid = "CUDA error: operation failed due to a previous error during capture"
    assert process.is_out_of_memory(raised(torch.OutOfMemoryError("CUDA out of memory."), invalid))
    assert process.is_out_of_memory(MemoryError())
    assert process.is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert not process.is_out_of_memory(raised(ValueError("a shape"), invalid))
    assert not process.is_out_of_memory(raised(MemoryError(), "another matter", hides=True))
    assert not process.is_out_of_memory(ValueError("out of memory"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="settings of the GNU C library")
def test_freed_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the variables say with which Ray's processes are started; the C library takes each setting."""
    library = ctypes.CDLL(None)
    told: dict[int, int] = {}

    def mallopt(option: int, value: int) -> int:
        told[option] = value
        done: int = library.mallopt(option, value)
        assert done == 1
        return done

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    memory.keep_memory()
    threshold, trim, pad = (
        int(cluster.ENVIRONMENT[f"MALLOC_{name}_"]) for name in ("MMAP_THRESHOLD", "TRIM_THRESHOLD", "TOP_PAD")
    )
    assert told == {-3: threshold, -1: min(trim, 2**31 - 1), -2: pad}


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
    monkeypatch.setattr(federated_data, "_MOVED", {})
    source, elsewhere = load("digits"), torch.device("meta")
    first = federated_data._images(source, elsewhere)
    assert federated_data._images(source, elsewhere) is first and len(federated_data._MOVED) == 1
    other = SimpleNamespace(hash="another", train_x=source.train_x[:3], test_x=source.test_x[:2])
    assert len(federated_data._images(other, elsewhere).train) == 3 and len(federated_data._MOVED) == 1  # type: ignore[arg-type]
    federated_data._images(source, torch.device("cpu"))
    assert len(federated_data._MOVED) == 1, "on a CPU they are mapped, not moved"
