"""The networks of the replays as functions of their parameters, for the toy's 8×8 images and 4 classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.trainables.methods.replays.plain import Adam, Params, gradients, watched

SHAPE, CLASSES = (1, 8, 8), 4


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """`(x - mean)/√(var + 1e-5) · weight + bias` along dimension 1."""

    def along(v: Tensor) -> Tensor:
        return v.view(1, -1, *[1] * (x.dim() - 2))

    return (x - along(mean)) / torch.sqrt(along(var) + 1e-5) * along(weight) + along(bias)


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and population variance per channel over the batch and all positions."""
    rows = x.transpose(0, 1).flatten(1)
    mean = rows.sum(dim=1) / rows.shape[1]
    return mean, ((rows - mean[:, None]) ** 2).sum(dim=1) / rows.shape[1]


def cnn_features(p: Params, x: Tensor, factor: float = 1.0, entering: list[Tensor] | None = None) -> Tensor:
    """`cnn_small` without its head: three times conv 3×3, times `factor`, normalised by the batch, ReLU, max-pool 2;
    then the mean over what is left. What enters the normalisation layers is appended to `entering`."""
    for i in range(3):
        x = F.conv2d(x, p[f"convs.{i}.weight"], p[f"convs.{i}.bias"], padding=1) * factor
        if entering is not None:
            entering.append(x)
        mean, var = statistics(x)
        x = torch.relu(batch_norm(x, p[f"norms.{i}.weight"], p[f"norms.{i}.bias"], mean, var))
        x = F.max_pool2d(x, 2)
    return x.flatten(2).sum(dim=2) / (x.shape[2] * x.shape[3])


def head(p: Params, features: Tensor) -> Tensor:
    """The linear head."""
    return features @ p["head.weight"].t() + p["head.bias"]


def cnn(p: Params, x: Tensor, factor: float = 1.0) -> Tensor:
    """Logits of `cnn_small`."""
    return head(p, cnn_features(p, x, factor))


def normalised(p: Params, layer: str, x: Tensor, training: bool) -> Tensor:
    """A normalisation layer with running statistics, which follow the batch by 0.1 in training (in `p` itself)."""
    mean, var = p[f"{layer}.running_mean"], p[f"{layer}.running_var"]
    if training:
        mean, var = statistics(x)
        count = x.numel() / x.shape[1]
        p[f"{layer}.running_mean"] = 0.9 * p[f"{layer}.running_mean"] + 0.1 * mean.detach()
        p[f"{layer}.running_var"] = 0.9 * p[f"{layer}.running_var"] + 0.1 * var.detach() * count / (count - 1)
        p[f"{layer}.num_batches_tracked"] = p[f"{layer}.num_batches_tracked"] + 1
    return batch_norm(x, p[f"{layer}.weight"], p[f"{layer}.bias"], mean, var)


def learnt(p: Params) -> list[str]:
    """Names of the parameters that gradients move; the rest of a generator's state are running statistics."""
    return [name for name in p if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))]


def learn(params: Params, optimiser: Adam, loss_of: Callable[[Params], Tensor]) -> None:
    """One step on a generator, whose running statistics follow the pass; replaces the tensors in `params`."""
    here = watched(params, learnt(params))
    found = gradients(loss_of(here), here)
    params.update({name: here[name].detach() for name in params if name not in learnt(params)})
    optimiser.step(params, found)


def one_hot(y: Tensor, classes: int = CLASSES) -> Tensor:
    """`(B, C)`."""
    return torch.eye(classes)[y]


def merged(p: Params, z: Tensor, y: Tensor, how: str) -> Tensor:
    """o(z, y)."""
    if how == "none":
        return z
    if how == "ncat":
        return torch.cat([z, one_hot(y)], dim=1)
    embedded = p["embedding.weight"][y]
    return {"mul": z * embedded, "add": z + embedded}[how] if how != "cat" else torch.cat([z, embedded], dim=1)


def images_of(p: Params, h: Tensor, training: bool) -> Tensor:
    """The image generator for 8×8: 4×4, 8×8, one more layer, tanh."""
    x = torch.relu(F.conv_transpose2d(h[:, :, None, None], p["layers.0.weight"]))
    x = F.conv_transpose2d(x, p["layers.2.weight"], stride=2, padding=1)
    x = torch.relu(normalised(p, "layers.3", x, training))
    return torch.tanh(F.conv_transpose2d(x, p["layers.5.weight"], padding=1))


def features_of(p: Params, z: Tensor, y: Tensor, training: bool) -> Tensor:
    """The generator of features: as many hidden layers (linear, normalised, ReLU) as `p` has, and a linear one."""
    x, layer = torch.cat([z, one_hot(y)], dim=1), 0
    while f"layers.{layer + 1}.running_mean" in p:
        x = x @ p[f"layers.{layer}.weight"].t() + p[f"layers.{layer}.bias"]
        x = torch.relu(normalised(p, f"layers.{layer + 1}", x, training))
        layer += 3
    return x @ p[f"layers.{layer}.weight"].t() + p[f"layers.{layer}.bias"]
