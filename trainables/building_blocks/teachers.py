"""The round's local models as frozen teachers of server-side distillation, narrow ones of equal width as one model, and
those of small images abreast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from trainables.federation import Federation
from trainables.models import Model
from trainables.models.abreast import Abreast
from trainables.models.abreast import fit as fit_abreast
from trainables.models.side_by_side import fit, lay, wide
from trainables.params import put, unpack
from trainables.wire import Upload

#: Teachers are laid side by side up to this width together, as a share of the whole model's. Above, the zeros between
#: them cost what they spare.
WIDEST = 0.25


class Teachers:
    """The models of the uploads, frozen, in evaluation mode."""

    def __init__(
        self,
        fed: Federation,
        uploads: Iterable[Upload],
        network: Callable[[int, str], Model] | None = None,
        *,
        scaler: bool = False,
        apart: bool = False,
    ) -> None:
        """`network(client, role)` is the module of a client's architecture; by default the federation's at the client's
        width, with the `scaler` that the client trained with (it matters where running statistics are kept). `apart`:
        each is asked by itself, whatever its width."""
        #: One working module per upload, in order.
        self.modules: list[Model] = []
        for place, upload in enumerate(uploads):
            role = f"teacher {place}"
            module = (
                fed.network(fed.widths[upload.client], role=role, scaler=scaler)
                if network is None
                else network(upload.client, role)
            )
            put(module, unpack("model", upload.payload))
            module.eval().requires_grad_(False)
            self.modules.append(module)
        self._asked: list[tuple[Model | Abreast, list[int]]]
        if apart:
            self._asked = [(module, [place]) for place, module in enumerate(self.modules)]
            return
        groups = self._groups(fed)
        asked = [module for module, _ in groups]
        if fed.precision != "bf16" and fit_abreast(asked):
            self._asked = [(Abreast(asked), [place for _, places in groups for place in places])]
        else:
            self._asked = [*groups]

    def _groups(self, fed: Federation) -> list[tuple[Model, list[int]]]:
        """The modules that are asked, each with the places of the teachers that it holds."""
        alike: dict[object, list[int]] = {}
        for place, module in enumerate(self.modules):
            alike.setdefault((module.name, module.rate, module.factor), []).append(place)
        found: list[tuple[Model, list[int]]] = []
        for key, places in alike.items():
            one = self.modules[places[0]]
            at_once = max(1, int(WIDEST / one.rate))
            for start in range(0, len(places), at_once):
                group = places[start : start + at_once]
                if len(group) > 1 and fit(one, len(group)):
                    made = fed.cached(("side by side", key, start, len(group)), partial(wide, one, len(group)))
                    lay(made, [self.modules[place] for place in group])
                    found.append((made.eval().requires_grad_(False), group))
                else:
                    found += [(self.modules[place], [place]) for place in group]
        return found

    def each(self, images: Tensor) -> Tensor:
        """Every model's logits: images `(B, ...)` to `(S, B, C)`. Differentiable in the images."""
        return self._in_order([module(images) for module, _ in self._asked])

    def logits(self, images: Tensor, weights: Tensor) -> Tensor:
        """The ensemble `u_T = Σ_i τ_i f_i(s)`: images `(B, ...)`, weights `(S, B)` to `(B, C)`. Differentiable in the
        images."""
        return _weighted_sum(self.each(images), weights)

    def features_and_logits(self, images: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The ensembles of features `(B, p)` and of logits `(B, C)`, for models of one feature width p."""
        features = [module.features(images) for module, _ in self._asked]
        logits = [module.head(v) for (module, _), v in zip(self._asked, features, strict=True)]
        return _weighted_sum(self._in_order(features), weights), _weighted_sum(self._in_order(logits), weights)

    def _in_order(self, answers: list[Tensor]) -> Tensor:
        """What the modules that were asked answer, as one tensor `(S, B, …)` in the order of the uploads."""
        parts: list[Tensor] = [answers[0]] * len(self.modules)
        for (_, places), answer in zip(self._asked, answers, strict=True):
            for place, part in zip(places, answer.chunk(len(places), dim=1), strict=True):
                parts[place] = part
        return torch.stack(parts)


def _weighted_sum(terms: Tensor, weights: Tensor) -> Tensor:
    """`Σ_i weights[i] · terms[i]` of terms `(S, B, C)` and weights `(S, B)`."""
    return (weights[:, :, None] * terms).sum(dim=0)
