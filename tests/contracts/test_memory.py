"""What clients send and what is kept holds no more memory than its own numbers: a view would keep all of the tensor
alive that it was cut from, and a checkpoint would write all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contracts.test_methods import METHODS, simulate
from trainables.simulation.checkpoint import to_tree


def tensors(tree: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of nested values, and where it is."""
    if isinstance(tree, Tensor):
        yield name, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from tensors(value, f"{name}/{key}")
    elif isinstance(tree, list | tuple):
        for place, value in enumerate(tree):
            yield from tensors(value, f"{name}/{place}")


def views(tree: Any, name: str = "") -> list[str]:
    """Where the tensors are that are a part of a larger one."""
    found = tensors(tree, name)
    return [at for at, t in found if t.untyped_storage().nbytes() > t.numel() * t.element_size()]


def test_a_view_is_found() -> None:
    whole = torch.zeros(4, 3)
    assert views({"a": [whole, whole[1], whole[:, :2].clone()], "b": (whole.T,)}) == ["/a/1"]


@pytest.mark.parametrize("name", METHODS)
def test_nothing_that_clients_send_or_a_run_keeps_is_a_part_of_a_larger_tensor(name: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 1)
    _, results = s.exchange()
    kept = {"state": s.progress.state, "clients": s.progress.client_states}
    sent = {i: dict(result.upload) for i, result in results.items()}
    assert views(to_tree(kept)) + views(sent, "up") == []
