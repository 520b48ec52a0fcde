"""What every party knows, and the samples that a client has: positions, normalisation, weights by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainables import models
from trainables.federation import ClientData, Federation, Images, gather, normalise
from trainables.params import take

TRAIN, TEST = (
    torch.randint(0, 256, (n, 2, 3, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(n)) for n in (7, 4)
)
IMAGES = Images(TRAIN, TEST, "")
MEAN, STD = torch.tensor([0.25, 0.5]), torch.tensor([0.125, 2.0])
CPU = torch.device("cpu")


def federation(**changes: Any) -> Federation:
    return Federation(
        **{
            "seed": 5,
            "clients": 2,
            "sizes": (3, 4),
            "classes": 3,
            "shape": (1, 8, 8),
            "mean": (0.5,),
            "std": (0.5,),
            "model": "lenet_code",
            "widths": (1.0, 1.0),
            "rounds": 1,
        }
        | changes
    )


def client(positions: list[int], y: list[int]) -> ClientData:
    return ClientData(0, IMAGES, torch.tensor(positions), torch.tensor(y), 4, MEAN, STD, CPU)


@pytest.mark.parametrize(
    "positions",
    [[0, 6, 3], [7, 10, 7], [6, 7], [0, 7, 10, 6, 8, 1], [7], [6], [0]],
    ids=lambda p: "-".join(map(str, p)),
)
def test_images_are_those_of_training_then_of_testing(positions: list[int]) -> None:
    every = torch.cat([TRAIN, TEST])
    assert torch.equal(IMAGES[torch.tensor(positions)], every[positions])


def test_a_part_that_is_asked_alone_is_read_alone() -> None:
    """The test images of a data set are not touched while clients train, nor the other way round."""
    nothing: Any = None
    assert torch.equal(Images(TRAIN, nothing, "")[torch.tensor([0, 6])], TRAIN[[0, 6]])

    class Length:
        device = CPU

        def __len__(self) -> int:
            return len(TRAIN)

    length: Any = Length()
    assert torch.equal(Images(length, TEST, "")[torch.tensor([7, 10])], TEST[[0, 3]])


def by_hand(images: torch.Tensor) -> torch.Tensor:
    """(x / 255 - mean) / std, channel by channel, in float64."""
    channels = [(images[:, c].double() / 255 - MEAN[c].double()) / STD[c].double() for c in range(2)]
    return torch.stack(channels, dim=1)


def test_images_are_normalised_channel_by_channel_with_channels_last() -> None:
    found = normalise(TRAIN, MEAN, STD)
    assert found.dtype == torch.float32 and found.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(found.double(), by_hand(TRAIN), rtol=0, atol=1e-5)


def test_a_batch_has_the_chosen_samples_of_the_client() -> None:
    data = client([9, 2, 0, 7], [3, 0, 2, 2])
    x, y = data.batch(torch.tensor([3, 0, 1]))
    every = torch.cat([TRAIN, TEST])
    assert torch.allclose(x.double(), by_hand(every[[7, 9, 2]]), rtol=0, atol=1e-5)
    assert y.tolist() == [2, 3, 0]
    assert len(data) == 4 and data.label_counts().tolist() == [1, 0, 2, 1]


def test_some_samples_are_spread_over_classes_and_leave_one_of_each() -> None:
    whole = client(list(range(9)), [0, 1, 0, 0, 2, 0, 0, 1, 0])
    some = whole.some(3)
    # By class the samples are 0, 2, 3, 5, 6, 8 | 1, 7 | 4: every third, and the first of each class.
    assert some.indices.tolist() == [0, 1, 4, 5] and some.y.tolist() == [0, 1, 2, 0]
    assert whole.some(9) is whole and whole.some(1).y.tolist() == [0, 1, 2]


def test_samples_of_several_clients_are_gathered_each_at_its_own_places() -> None:
    one, two = client([9, 2, 0, 7], [3, 0, 2, 2]), client([1, 5, 10, 4], [1, 1, 0, 3])
    chosen = torch.tensor([[0, 2, 3], [3, 3, 1]])
    x, y = gather([one, two], chosen)
    assert x.stride() == torch.empty(x.shape).stride(), "laid out plainly, as all that is stacked"
    for place, data in enumerate((one, two)):
        expected, labels = data.batch(chosen[place])
        assert torch.equal(x[place], expected) and torch.equal(y[place], labels)


def test_initial_weights_follow_from_the_seed_the_names_and_the_width_alone() -> None:
    fed = federation()
    drawn = fed.initial_params("client", 1)
    for p in fed.network().parameters():
        p.data.add_(1.0)
    again, other = fed.initial_params("client", 1), fed.initial_params("client", 2)
    assert all(torch.equal(drawn[name], again[name]) for name in drawn)
    assert any(not torch.equal(drawn[name], other[name]) for name in drawn)
    alone = fed.built("lenet_code").to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    models.initialise(alone, fed.rng.torch("init", "client", 1))
    assert all(torch.equal(drawn[name], tensor) for name, tensor in take(alone).items())
    another = federation(seed=6).initial_params("client", 1)
    assert any(not torch.equal(drawn[name], another[name]) for name in drawn)
    half = fed.initial_params(width=0.5)
    assert any(half[name].shape != drawn[name].shape for name in drawn)


def test_a_network_is_made_once_for_each_width_role_and_scaler() -> None:
    fed = federation()
    made = [fed.network(), fed.network(0.5), fed.network(role="teacher"), fed.network(scaler=True)]
    assert len({id(module) for module in made}) == 4
    assert fed.network() is made[0] and fed.network(0.5) is made[1]
    assert fed.network(role="teacher") is made[2] and fed.network(scaler=True) is made[3]
    weights = [p for p in made[0].parameters() if p.dim() == 4 and p.shape[1] > 1]
    assert weights and all(p.is_contiguous(memory_format=torch.channels_last) for p in weights)
    assert federation().network() is not made[0], "another federation has modules of its own"
