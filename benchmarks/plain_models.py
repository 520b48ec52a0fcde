"""The networks as one writes them first: contiguous, ReLU before pooling. Weights carry the names of the repository's
models.

`LeNet` has its third layer as the linear layer it amounts to on 5×5 maps (61,706 weights on 1×28×28). `CNN` and
`ResNet18` normalise with batch statistics in training and evaluation, as the papers' models do.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LeNet(nn.Module):
    """LeNet-5 on 28×28."""

    def __init__(self, channels: int = 1, classes: int = 10) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(channels, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.conv3 = nn.Linear(400, 120)
        self.head = nn.Sequential(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(F.relu(self.conv3(x.flatten(1))))


class CNN(nn.Module):
    """Layers of conv 3×3, BatchNorm, ReLU, max-pool 2; then the mean over the map and a linear layer."""

    def __init__(self, channels: int = 3, classes: int = 10, widths: tuple[int, ...] = (64, 128, 256, 512)) -> None:
        super().__init__()
        sizes = [channels, *widths]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip(sizes, widths, strict=False))
        self.norms = nn.ModuleList(nn.BatchNorm2d(b, track_running_stats=False) for b in widths)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
            if min(x.shape[-2:]) >= 2:
                x = F.max_pool2d(x, 2)
        return self.head(x.mean(dim=(2, 3)))


class Block(nn.Module):
    """A pre-activation block."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.BatchNorm2d(n, track_running_stats=False) for n in (into, out))
        self.conv1 = nn.Conv2d(into, out, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(into, out, 1, stride, bias=False) if into != out else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        return shortcut + self.conv2(F.relu(self.norm2(self.conv1(active))))


class ResNet18(nn.Module):
    """Pre-activation ResNet-18 on small images: stem conv 3×3, widths 64 to 512."""

    def __init__(self, channels: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        sizes = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        self.blocks = nn.ModuleList(Block(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(sizes))
        self.norm = nn.BatchNorm2d(512, track_running_stats=False)
        self.head = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(F.relu(self.norm(x)).mean(dim=(2, 3)))


class Generator(nn.Module):
    """DFRD's conditional generator for 3×32×32, noise times label embedding."""

    def __init__(self, noise_dim: int = 64, channels: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, noise_dim)
        layers: list[nn.Module] = [nn.ConvTranspose2d(noise_dim, 512, 4, bias=False), nn.ReLU()]
        for a, b in ((512, 256), (256, 128)):
            layers += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(128, channels, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, h: Tensor) -> Tensor:
        return self.layers(h[:, :, None, None])


#: Of the narrow CNN that the goals speak of; fedtune's is registered in the same words (`register`).
NARROW = (32, 64, 64, 128)
MODELS = {"lenet5": LeNet, "cnn": CNN, "cnn_narrow": partial(CNN, widths=NARROW), "resnet18": ResNet18}


def register() -> None:
    """Adds `cnn_narrow` to fedtune's models, in this process. To be called before anything asks for their names."""
    from trainables.models import cnn

    cnn.MODELS["cnn_narrow"] = partial(cnn.CNN, widths=NARROW)


def build(name: str, channels: int, params: Mapping[str, Tensor]) -> nn.Module:
    """The plain model holding the weights that the repository's model of that name has."""
    module: nn.Module = MODELS[name](channels)
    load(module, params)
    return module


def load(module: nn.Module, params: Mapping[str, Tensor]) -> None:
    """Copies weights in, reshaped where a convolution over a whole map is written as a linear layer."""
    own = module.state_dict()
    if own.keys() != params.keys():
        raise KeyError(f"weights differ in {sorted(own.keys() ^ params.keys())}")
    with torch.no_grad():
        for name, tensor in params.items():
            own[name].copy_(tensor.reshape(own[name].shape))
