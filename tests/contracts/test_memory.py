"""What clients send and what is kept holds no more memory than its own numbers: a view would keep all of the tensor
alive that it was cut from, and a checkpoint would write all of it. Where a server needs sums only, it holds one upload
at a time."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contracts.test_methods import METHODS, same, simulate, state_of, untimed
from trainables import registry
from trainables.simulation.checkpoint import to_tree
from trainables.wire import ClientResult, OnePass


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


ONE_PASS = [name for name in METHODS if registry.method(name).reads_once(registry.configured(name, {}).config)]


@pytest.mark.parametrize("name", ONE_PASS)
def test_clients_one_by_one_are_all_of_them_at_once(name: str, toy: Path) -> None:
    """Rows and states are the same bits where each client trains when the server asks for its upload."""
    more = {"local_steps": 3, "stragglers": 0.5, "straggler_work": 0.0, "active_clients": 3}
    one, all_ = (simulate(name, toy, 0, **more)[0] for _ in range(2))
    assert one.goes_one_by_one()
    all_.method = replace(all_.method, one_pass=False)
    for _ in range(3):
        row = one.run_round()
        assert untimed(row) == untimed(all_.run_round())
        assert row["seconds"] == pytest.approx(sum(value for key, value in row.items() if key.startswith("seconds_")))
    assert same(state_of(one), state_of(all_))


def test_while_a_client_trains_one_upload_is_there_at_most(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s, _ = simulate("fedavg", toy, 0, model_cache=False)
    train, handed_back, alive = s.method.client, list[weakref.ref[Tensor]](), list[int]()

    def watched(*work: Any) -> ClientResult:
        alive.append(sum(reference() is not None for reference in handed_back))
        result = train(*work)
        handed_back.append(weakref.ref(result.upload["model/" + next(iter(s.global_model() or {}))]))
        return result

    s.method = replace(s.method, client=watched)
    s.run_round()
    assert alive == [0, 1, 1, 1]


def test_a_server_that_goes_over_the_uploads_twice_is_told(toy: Path) -> None:
    s, _ = simulate("qffl", toy, 0, q=1.0)
    s.method = replace(s.method, one_pass=True)
    with pytest.raises(TypeError, match="a second time, and its method says `one_pass`"):
        s.run_round()
    with pytest.raises(TypeError, match="by its place"):
        OnePass(1, iter(()))[0]


def test_a_cache_of_models_needs_them_all(toy: Path) -> None:
    assert not simulate("fedavg", toy, 0, model_cache=True)[0].goes_one_by_one()
    assert not simulate("fedavg", toy, 0, readout="oca")[0].goes_one_by_one()
