"""A small recurrent network, for sequences of tokens such as the letters or words of a text.

embedding 32 → one LSTM layer, 64 units, over the sequence → its output after the last token (features) → linear C
(head). Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000; of unit k at step t

    i, f, g, o = (W e_t + b + U h_{t-1})[k]         c_t = σ(f) c_{t-1} + σ(i) tanh(g)         h_t = σ(o) tanh(c_t)

The four gates of a unit stand together in W and U, so that a narrower model keeps whole units. It has no batch
normalisation. The scaler acts on W e_t + b and on U h_{t-1}.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainables.models.base import Axis, Model, Shape


class LSTM(Model):
    """Groups `embedding` (32) and `hidden` (64)."""

    reads_tokens = True

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool, vocabulary: int) -> None:
        super().__init__(shape, classes, rate, scaler)
        embedded, hidden = self.channels("embedding", 32), self.channels("hidden", 64)
        self.embedding = nn.Embedding(max(vocabulary, 1), embedded)
        self.input = nn.Linear(embedded, 4 * hidden)
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)
        self.feature_width = hidden
        self.head = nn.Linear(hidden, classes)
        self.declare("embedding", None, Axis("embedding"))
        self.declare("input", Axis("hidden", 4), Axis("embedding"))
        self.declare("recurrent", Axis("hidden", 4), Axis("hidden"))
        self.declare("head", None, Axis("hidden"))

    def features(self, x: Tensor) -> Tensor:
        """`(B, p)`, p = 64 at full width, of tokens `(B, length, 1, 1)`."""
        steps = self.scaled(self.input(self.embedding(x.flatten(1).long())))
        h = c = steps.new_zeros(len(steps), self.feature_width)
        for step in steps.unbind(1):
            gates = (step + self.scaled(self.recurrent(h))).view(len(steps), self.feature_width, 4)
            i, f, g, o = gates.unbind(-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


MODELS = {"lstm": LSTM}
