from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd

from analysis.figures import timing
from analysis.labels import Labels


def test_the_mean_over_rounds_of_every_part() -> None:
    curves = pd.DataFrame(
        {
            "trial": [0, 0, 1],
            "round": [1, 2, 1],
            "seconds_client": [1.0, 3.0, 5.0],
            "seconds_server": [0.5, 0.5, 1.0],
            "seconds_evaluation": [0.1, 0.3, 0.2],
        }
    )
    run: Any = SimpleNamespace(curves=curves)
    assert timing.needs([run]) is None
    table = timing.data([run]).set_index(["trial", "part"])["seconds"]
    assert table[(0, "seconds_client")] == 2.0 and table[(1, "seconds_server")] == 1.0
    assert len(timing.plot(timing.data([run]), Labels()).data) == 3


def test_it_says_what_it_needs() -> None:
    run: Any = SimpleNamespace(curves=pd.DataFrame({"trial": [], "round": []}))
    assert "there are none" in str(timing.needs([run]))
