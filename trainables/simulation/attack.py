"""Deep leakage from gradients (DLG): what a curious server can rebuild of a client's images from what the client
uploads.

Zhu, Liu, Han: Deep Leakage from Gradients, NeurIPS 2019. Protocol of FedMD-CG's Table 2, whose script is not public,
so network, steps and noise are those of the authors' demonstration (mit-han-lab/dlg).

    victim     g  = ∇_s CE(f(x; w), y)                                    one image x in [0, 1] and its label y
    attacker   x', y' ← argmin ‖∇_s CE(f(x'; ŵ), softmax(y')) - g‖²       L-BFGS from N(0, I), attack_steps calls
    PSNR       10 log10(1 / mean (clamp(x', 0, 1) - x)²)                  in dB; the metric is the mean over victims

    w   weights of the network below, U(-0.5, 0.5)      s   the parts of it (features, head) that the method uploads
    ŵ   w on s; a part that is not uploaded is unknown to the attacker, who puts random weights in its place
        (attack_private: random) or starts from them and searches for them as well (searched)

The network is the same for every method: three 5×5 convolutions of 12 channels, strides 2, 2, 1, padding 2, each with a
sigmoid, then one linear head. What a method shares is read off its own uploads, see `sent`. Whatever else goes up (a
generator, label counts, prototypes) is no function of one image's cross-entropy and adds nothing to g. With nothing
shared, g is empty and the attacker is left with its first noise.

Victims, weights and noise depend on the federation's seed alone, so methods are attacked on the same images.

Differs from the paper: `searched` is ours. With a random head in place of the true one no image explains the gradient
of the features, and FedPer looks as private as LG-FedAvg; an attacker who searches for the head sees the image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.building_blocks.split_model import HEAD
from trainables.federation import ClientData, Federation, unit
from trainables.kernels.optimisers import LBFGS
from trainables.rng import Rng

#: Is told of every victim's number, step and mismatch.
Watcher = Callable[[int, int, float], None]

PARTS = ("features", "head")
_CHANNELS = 12


@dataclass(frozen=True)
class Leak:
    """One attacked image: `original` and `recovered` are `(ch, H, W)` in [0, 1]."""

    client: int
    label: int
    original: Tensor
    recovered: Tensor
    #: Of `recovered`, in dB.
    psnr: float
    #: Squared distance between the gradients, before the last step; nan where nothing was shared.
    mismatch: float


class Network(nn.Module):
    """The attacked network on images of `shape`; parameters of its head begin with `head.` as in every model."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        convs = [
            nn.Conv2d(before, _CHANNELS, 5, stride=stride, padding=2)
            for before, stride in ((channels, 2), (_CHANNELS, 2), (_CHANNELS, 1))
        ]
        self.convs = nn.ModuleList(convs)
        self.head = nn.Linear(_CHANNELS * math.ceil(height / 4) * math.ceil(width / 4), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images `(B, ch, H, W)` to logits `(B, C)`."""
        for conv in self.convs:
            x = torch.sigmoid(conv(x))
        logits: Tensor = self.head(x.flatten(1))
        return logits


def part_of(name: str) -> str:
    """The part of a network that its parameter `name` belongs to."""
    return "head" if name.startswith(HEAD) else "features"


def sent(network: nn.Module, payload: Mapping[str, Tensor]) -> set[str]:
    """What a client uploads: the parts of its `network`, by name and shape of the entries, and the prefixes of all
    else.

    An entry `prefix/name` is the network's parameter or running statistic `name`, or `prefix.name`. A part counts as
    sent as soon as one of its tensors is, so a method is never taken for more private than it is."""
    own = {name: tensor.shape for name, tensor in network.state_dict().items()}
    found = set()
    for key, tensor in payload.items():
        prefix, _, rest = key.partition("/")
        mine = {part_of(name) for name in (rest, f"{prefix}.{rest}") if own.get(name) == tensor.shape}
        found |= mine or {prefix}
    return found


def attack(
    fed: Federation,
    clients: Sequence[ClientData],
    shared: Collection[str],
    *,
    images: int,
    steps: int,
    private: str,
    watch: Watcher | None = None,
) -> list[Leak]:
    """Attacks `images` victims, one image of one client each. `shared`: what is sent, of which `PARTS` matter;
    `private`: see above."""
    rng = fed.rng.child("attack")
    order = rng.numpy("clients").permutation(len(clients)).tolist()
    leaks = []
    for k in range(images):
        data = clients[order[k % len(clients)]]
        chosen = int(rng.numpy("image", k).integers(len(data)))
        x = unit(data.images[data.indices[chosen : chosen + 1]].to(fed.device))
        y = data.y[chosen : chosen + 1].to(fed.device)
        recovered, mismatch = recover(
            x,
            y,
            fed.classes,
            shared,
            rng.child("victim", k),
            steps=steps,
            private=private,
            watch=None if watch is None else partial(watch, k),
        )
        leaks.append(Leak(data.client, int(y), x[0].cpu(), recovered[0].cpu(), psnr(recovered, x), mismatch))
    return leaks


def recover(
    x: Tensor,
    y: Tensor,
    classes: int,
    shared: Collection[str],
    rng: Rng,
    *,
    steps: int,
    private: str,
    watch: Callable[[int, float], None] | None = None,
) -> tuple[Tensor, float]:
    """The attacker's image for the victim `x` `(1, ch, H, W)` of label `y` `(1,)`, clamped to [0, 1], and its mismatch.

    L-BFGS has no line search here and may leave the numbers; the last finite image is then the result."""
    _, channels, height, width = x.shape
    network = Network((channels, height, width), classes).to(x.device)
    draw(network, PARTS, rng.torch("weights"))
    known = [p for name, p in network.named_parameters() if part_of(name) in shared]
    truth = [g.detach() for g in torch.autograd.grad(F.cross_entropy(network(x), y), known)] if known else []
    draw(network, [part for part in PARTS if part not in shared], rng.torch("guess"))
    noise = rng.torch("noise")
    image = torch.randn(x.shape, generator=noise).to(x.device).requires_grad_(True)
    label = torch.randn((1, classes), generator=noise).to(x.device).requires_grad_(True)
    best, mismatch = image.detach().clone(), math.nan
    if not known:
        return best.clamp(0.0, 1.0), mismatch
    unknown = [image, label]
    if private == "searched":
        unknown += [p for name, p in network.named_parameters() if part_of(name) not in shared]
    optimiser = LBFGS(unknown)
    asked = 0

    def distance() -> Tensor:
        nonlocal asked
        asked += 1
        gradients = torch.autograd.grad(F.cross_entropy(network(image), label.softmax(dim=1)), known, create_graph=True)
        apart = torch.stack([((a - b) ** 2).sum() for a, b in zip(gradients, truth, strict=True)]).sum()
        for tensor, gradient in zip(unknown, torch.autograd.grad(apart, unknown), strict=True):
            tensor.grad = gradient
        return apart.detach()

    for step in range(1, steps + 1):
        before = asked
        value = float(optimiser.step(distance))
        if not (math.isfinite(value) and bool(image.isfinite().all())):
            break
        best, mismatch = image.detach().clone(), value
        if watch is not None:
            watch(step, value)
        if asked == before + 1:
            break  # nothing moved: within L-BFGS's tolerance every further call returns at once, too
    return best.clamp(0.0, 1.0), mismatch


def draw(network: nn.Module, parts: Collection[str], generator: torch.Generator) -> None:
    """Redraws the weights and biases of `parts` from U(-0.5, 0.5)."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if part_of(name) in parts:
                parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.5)


def psnr(recovered: Tensor, original: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of images in [0, 1]; capped at 100 dB, where the error is below float's
    precision."""
    error = float(((recovered.double() - original.double()) ** 2).mean())
    return 10.0 * math.log10(1.0 / max(error, 1e-10))


def mean_psnr(leaks: Sequence[Leak]) -> float:
    """The metric: the mean over victims."""
    return math.fsum(leak.psnr for leak in leaks) / len(leaks)
