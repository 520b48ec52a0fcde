from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from trainables.method import Upload
from trainables.methods import fednesterov
from trainables.rng import Rng


def test_two_rounds_of_server_momentum() -> None:
    fed: Any = SimpleNamespace(sizes=(1, 3))
    state = fednesterov.State({"w": torch.tensor([1.0, 2.0])}, {"w": torch.zeros(2)})
    w, v = np.array([1.0, 2.0]), np.zeros(2)
    for a, b in (([0.0, 4.0], [2.0, 0.0]), ([1.0, 1.0], [3.0, -1.0])):
        uploads = [Upload(0, {"model/w": torch.tensor(a)}), Upload(1, {"model/w": torch.tensor(b)})]
        state = fednesterov.server(fednesterov.Config(server_momentum=0.5), fed, state, uploads, Rng(0))
        mean = (1 * np.array(a) + 3 * np.array(b)) / 4
        v = 0.5 * v + (w - mean)
        w = w - (w - mean) - 0.5 * v
        np.testing.assert_allclose(state.model["w"].numpy(), w, rtol=1e-6)
        np.testing.assert_allclose(state.velocity["w"].numpy(), v, rtol=1e-6)
