"""What `--keep-images` keeps of a generator of features: where what it makes lies among what the extractor makes of
test images, on the plane of their first two principal components (FedMD-CG Fig. 2). `search_spaces.kept_images` says
what the arrays are.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from search_spaces import kept_images as kept
from trainables.federation import Federation
from trainables.method import Painter
from trainables.simulation.federated_data import FederatedData

#: Test images that are looked at in one pass.
_BATCH = 256


@torch.inference_mode()
def projected(fed: Federation, data: FederatedData, painter: Painter) -> dict[str, NDArray[np.generic]]:
    """`features`, `features_seen`, `features_labels` and `features_share` of this generator. Test images and noise are
    the same in every round."""
    assert painter.observe is not None, "a generator of images"
    chosen = _chosen(fed, data)
    seen = torch.cat([painter.observe(data.batch(data.test, part)).double().cpu() for part in chosen.split(_BATCH)])
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


def _chosen(fed: Federation, data: FederatedData) -> Tensor:
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
