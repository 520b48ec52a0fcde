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

from tests.contracts.test_methods import METHODS, light, same, simulate, state_of, untimed
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


#: Methods whose servers need more than sums of the uploads, by what they do with them.
NEED_ALL = {
    "learns from the clients' models": ("dense", "dfrd", "fedftg", "fedgen", "fedcg", "fedmdcg", "dhf"),
    "compares the clients' models": ("fedamp",),
    "keeps what each client sent": ("fedkf", "fedfomo", "feddistill"),
    "goes over all prototypes again and again": ("fedgh", "fedtgp"),
}
ONE_PASS = [name for name in METHODS if registry.method(name).reads_once(registry.configured(name, {}).config)]


@pytest.mark.parametrize("name", METHODS)
def test_a_server_that_needs_sums_only_goes_over_the_uploads_once(name: str) -> None:
    listed = {method for methods in NEED_ALL.values() for method in methods}
    assert (name in ONE_PASS) != (name in listed), (
        f"{name} must either say `one_pass=True`, where its server needs sums of the uploads only, or be in NEED_ALL "
        "with what else that does."
    )


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("name", ONE_PASS)
def test_clients_one_by_one_are_all_of_them_at_once(name: str, share: float, toy: Path) -> None:
    """Rows and states are the same bits where each client trains when the server asks for its upload; also where slow
    clients do half of their steps, or what they send is lost."""
    more = {"local_steps": 3, "stragglers": 0.5, "straggler_work": share, "active_clients": 3} | light(name)
    one, all_ = (simulate(name, toy, 0, **more)[0] for _ in range(2))
    assert one.goes_one_by_one()
    all_.method = replace(all_.method, one_pass=False)
    for _ in range(3):
        row = one.run_round()
        assert untimed(row) == untimed(all_.run_round())
        assert row["seconds"] == pytest.approx(sum(value for key, value in row.items() if key.startswith("seconds_")))
    assert same(state_of(one), state_of(all_))


@pytest.mark.parametrize("name", ONE_PASS)
def test_while_a_client_trains_what_one_other_has_sent_is_there_at_most(name: str, toy: Path) -> None:
    """Of what was handed back no tensor is left, but for those that the client keeps itself or that it knew before: a
    server that adds up and keeps the uploads fails."""
    s, _ = simulate(name, toy, 0)
    train, handed_back, alive = s._client, list[list[weakref.ref[Tensor]]](), list[int]()

    def watched(call: Any) -> ClientResult:
        alive.append(sum(any(tensor() is not None for tensor in one) for one in handed_back))
        result = train(call)
        known = {} if call.job is None else dict(call.job.ahead)
        kept = {id(tensor) for _, tensor in tensors([to_tree(result.client_state), known], "")}
        models = [result.upload, result.model, dict(result.others)]
        # Whole numbers, such as the count of batches, are those of the first client.
        sent = [t for one in models for _, t in tensors(one, "") if t.is_floating_point() and id(t) not in kept]
        handed_back.append([weakref.ref(tensor) for tensor in sent])
        return result

    s._client = watched  # type: ignore[method-assign]
    s.run_round()
    assert len(alive) == 4 and max(alive) <= 1
    if name == "fedavg":  # so that the test can tell
        assert alive == [0, 1, 1, 1]
        kept: list[Any] = []
        server = s.method.server

        def keeping(config: Any, fed: Any, state: Any, uploads: Any, rng: Any) -> Any:
            return server(config, fed, state, KeptUploads(uploads, kept), rng)

        s.method, handed_back[:], alive[:] = replace(s.method, server=keeping), [], []
        s.run_round()
        assert alive == [0, 1, 2, 3]


class KeptUploads:
    """Uploads of which a server keeps what it has seen."""

    def __init__(self, uploads: Any, kept: list[Any]) -> None:
        self.uploads, self.kept = uploads, kept

    def __iter__(self) -> Iterator[Any]:
        for upload in self.uploads:
            self.kept.append(upload)
            yield upload


@pytest.mark.parametrize("name", ["fednova", "qffl"])
def test_what_clients_know_before_they_train_is_what_they_send(name: str, toy: Path) -> None:
    """A server that weighs models by something of all clients asks for that first; each client trains once for it."""
    s, _ = simulate(name, toy, 0, stragglers=0.5, straggler_work=0.5, local_epochs=1)
    server, told = s.method.server, list[dict[int, dict[str, Tensor]]]()

    def watched(config: Any, fed: Any, state: Any, uploads: Any, rng: Any) -> Any:
        told.append({upload.client: dict(upload.payload) for upload in uploads.ahead()})
        return server(config, fed, state, uploads, rng)

    whole, _ = simulate(name, toy, 0, stragglers=0.5, straggler_work=0.5, local_epochs=1)
    s.method = replace(s.method, server=watched)
    row = s.run_round()
    _, results = whole.exchange()
    assert {client: result.upload.keys() & told[0][client].keys() for client, result in results.items()} == {
        client: known.keys() for client, known in told[0].items()
    }
    assert all(torch.equal(results[c].upload[key], t) for c, known in told[0].items() for key, t in known.items())
    assert len({float(next(iter(known.values()))) for known in told[0].values()}) > 1
    assert row["bytes_up"] == sum(t.nbytes for result in results.values() for t in result.upload.values())


def test_a_server_that_goes_over_the_uploads_twice_is_told(toy: Path) -> None:
    s, _ = simulate("fedgen", toy, 0)
    s.method = replace(s.method, one_pass=True)
    with pytest.raises(TypeError, match="a second time, and its method says `one_pass`"):
        s.run_round()
    with pytest.raises(TypeError, match="by its place"):
        OnePass(1, iter(()), list)[0]
    late = OnePass(1, iter(()), list)
    assert list(late) == []
    with pytest.raises(TypeError, match="after it has asked for the uploads"):
        late.ahead()


def test_a_cache_of_models_needs_them_all(toy: Path) -> None:
    assert not simulate("fedavg", toy, 0, model_cache=True)[0].goes_one_by_one()
    assert not simulate("fedavg", toy, 0, readout="oca")[0].goes_one_by_one()
