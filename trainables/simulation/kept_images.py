"""What `keep_images` keeps of a round: images of the method's generators, and of two-dimensional data the classes
that models predict over the plane. Of a generator of features: where what it makes lies among what the extractor makes
of test images, on the plane of their first two principal components (FedMD-CG Fig. 2). `search_spaces.kept_images` says
what the arrays are.

Noise comes from a stream of its own and is the same in every round, so rounds can be compared; modules are not those of
training. So a run gives the same numbers whether it keeps images or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from search_spaces import kept_images as kept
from trainables.federation import Federation, normalise
from trainables.method import Painter
from trainables.simulation.federated_data import FederatedData

Arrays = dict[str, NDArray[np.generic]]

#: Images that are held as floats at once, and test images of which features are made in one pass.
_BATCH, _LOOKED_AT = 64, 256


@torch.inference_mode()
def painted(fed: Federation, painters: Mapping[str, Painter]) -> Arrays:
    """The images of these generators: `<source>`, `<source>_mean` and `<source>_count`."""
    found: Arrays = {}
    for name, painter in painters.items():
        found |= _sheet(fed, name, painter)
    return found


def _sheet(fed: Federation, name: str, painter: Painter) -> Arrays:
    classes, images = kept.kept_of(fed.classes, fed.shape)
    shown = torch.zeros((classes, images, *fed.shape), dtype=torch.uint8)
    sums = torch.zeros((classes, *fed.shape), dtype=torch.float64)
    count = torch.zeros(classes, dtype=torch.int64)
    # Drawn on the CPU: the same noise on every device.
    noise = fed.rng.child("kept images").torch("noise")
    for asked in range(classes):
        z = torch.randn(kept.POOL, painter.noise_dim, generator=noise).to(fed.device)
        y = torch.full((kept.POOL,), asked, device=fed.device)
        for part, labels in zip(z.split(_BATCH), y.split(_BATCH), strict=True):
            seen = painter.paint(part, labels)
            taken_for = labels if painter.judge is None else painter.judge(seen)
            made = pixels(fed, seen)
            for label, image in zip(taken_for.tolist(), made, strict=True):
                if label >= classes:
                    continue
                if count[label] < images:
                    shown[label, count[label]] = image
                sums[label] += image
                count[label] += 1
    mean = (sums / count.clamp(min=1).view(-1, 1, 1, 1)).round().to(torch.uint8)
    return {name: shown.numpy(), f"{name}_mean": mean.numpy(), f"{name}_count": count.numpy()}


def pixels(fed: Federation, seen: Tensor) -> Tensor:
    """Images as models are fed them `(B, ch, H, W)` as uint8 pixels, on the CPU; a number that is not finite is
    black."""
    mean, std = (torch.tensor(v, dtype=torch.float32)[:, None, None] for v in (fed.mean, fed.std))
    values = (seen.detach().float().cpu() * std + mean).nan_to_num(0.0, 1.0, 0.0).clamp(0.0, 1.0)
    return (values * 255.0).round().to(torch.uint8)


def of_data(fed: Federation, data: FederatedData) -> Arrays:
    """The mean training image of every class over all clients, and the data set's own test images where these are
    public; of two-dimensional data points in place of these."""
    classes, _ = kept.kept_of(fed.classes, fed.shape)
    sums = torch.zeros((classes, *fed.shape), dtype=torch.float64)
    count = torch.zeros(classes, dtype=torch.int64)
    for images, labels in _training(data):
        chosen = labels < classes
        sums.index_add_(0, labels[chosen], images[chosen].double())
        count += torch.bincount(labels[chosen], minlength=classes)
    mean = (sums / count.clamp(min=1).view(-1, 1, 1, 1)).round()
    mean[count < kept.LEAST] = 0
    found: Arrays = {"data_mean": mean.to(torch.uint8).numpy(), "data_count": count.numpy()}
    return found | (_points(fed, data) if kept.is_plane(fed.shape) else _originals(fed, data))


def _originals(fed: Federation, data: FederatedData) -> Arrays:
    """The first public test images of every class, as many of each as the smallest of them has."""
    if data.public_test_y is None:
        return {}
    classes, images = kept.kept_of(fed.classes, fed.shape)
    y = data.public_test_y
    places = [(y == label).nonzero().squeeze(1)[:images] for label in range(classes)]
    least = min(map(len, places))
    if least == 0:
        return {}
    shown = data.images.test[torch.cat([own[:least] for own in places]).to(data.images.test.device)]
    return {"data": _bytes(shown.cpu()).view(classes, least, *fed.shape).numpy()}


def _training(data: FederatedData) -> Iterator[tuple[Tensor, Tensor]]:
    """All clients' training images, uint8 on the CPU, and their labels."""
    for client in data.clients:
        for positions, labels in zip(client.indices.split(1024), client.y.split(1024), strict=True):
            yield _bytes(data.images[positions].cpu()), labels.cpu()


def _bytes(stored: Tensor) -> Tensor:
    """Stored images as uint8 pixels."""
    return (stored.clamp(0, 1) * 255).round().to(torch.uint8) if stored.is_floating_point() else stored


def _points(fed: Federation, data: FederatedData) -> Arrays:
    images, labels = (torch.cat(part) for part in zip(*_training(data), strict=True))
    order = torch.randperm(len(labels), generator=fed.rng.child("kept images").torch("points"))[: kept.POINTS]
    return {"data_points": images[order].flatten(1).numpy(), "data_labels": labels[order].numpy()}


@torch.inference_mode()
def plane(fed: Federation, data: FederatedData, models: Iterable[tuple[nn.Module, float]]) -> NDArray[np.int64]:
    """The class `(SIDE, SIDE)` for which the weighted sum of these models' probabilities is largest, over the plane.
    Each model is asked before the next one is taken, so they may share a module."""
    values = torch.tensor(kept.plane_values())
    second, first = torch.meshgrid(values, values, indexing="ij")
    points = torch.stack([first, second], dim=-1).view(-1, 2, 1, 1).to(fed.device)
    x = normalise(points / 255.0, data.mean, data.std)
    mixed = torch.zeros(len(points), fed.classes, dtype=torch.float64)
    for module, weight in models:
        mixed += weight * module.eval()(x).softmax(dim=1).double().cpu()
    classes: NDArray[np.int64] = mixed.argmax(dim=1).view(kept.SIDE, kept.SIDE).numpy()
    return classes


@torch.inference_mode()
def projected(fed: Federation, data: FederatedData, painter: Painter) -> Arrays:
    """`features`, `features_seen`, `features_labels` and `features_share` of a generator of features. Test images and
    noise are the same in every round."""
    assert painter.observe is not None, "a generator of images"
    chosen = _test_images(fed, data)
    seen = torch.cat([painter.observe(data.batch(data.test, part)).double().cpu() for part in chosen.split(_LOOKED_AT)])
    centre, axes, share = principal(seen)
    classes = min(fed.classes, kept.CLASSES)
    noise = fed.rng.child("kept images").torch("noise")
    made = []
    for label in range(classes):
        z = torch.randn(kept.DOTS, painter.noise_dim, generator=noise).to(fed.device)
        y = torch.full((kept.DOTS,), label, device=fed.device)
        made.append((painter.paint(z, y).double().cpu() - centre) @ axes)
    return {
        kept.FEATURES: _fixed(torch.stack(made)),
        f"{kept.FEATURES}_seen": _fixed((seen - centre) @ axes),
        f"{kept.FEATURES}_labels": data.test.y[chosen].numpy(),
        f"{kept.FEATURES}_share": _fixed(share),
    }


def _test_images(fed: Federation, data: FederatedData) -> Tensor:
    """Which of the test images are looked at."""
    order = torch.randperm(len(data.test.y), generator=fed.rng.child("kept images").torch("test images"))
    return order[: kept.POINTS]


def principal(seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of samples `(m, p)`: their mean `(p,)`, the first two principal axes `(p, 2)`, each with its largest entry above
    0, and the share of the variance along each `(2,)`. An axis that there is not is 0."""
    centre = seen.mean(dim=0)
    left = seen - centre
    values, vectors = torch.linalg.eigh(left.T @ left)
    values, vectors = values.flip(0)[:2].clamp(min=0.0), vectors.flip(1)[:, :2]
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    total = left.square().sum()
    share = values / total if total > 0 else torch.zeros_like(values)
    missing = 2 - vectors.shape[1]
    return centre, F.pad(vectors * largest.sign(), (0, missing)), F.pad(share, (0, missing))


def _fixed(values: Tensor) -> NDArray[np.generic]:
    """Thousandths as int64; what is no number is 0."""
    whole = (values * kept.FIXED).round().nan_to_num(0.0, kept.LARGEST, -kept.LARGEST)
    return whole.clamp(-kept.LARGEST, kept.LARGEST).to(torch.int64).numpy()
