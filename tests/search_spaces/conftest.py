from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings

from search_spaces.parameter import Parameter, choice, flag, integer, parameters, real, text

# The same examples every time and no deadline: a test must not fail because the machine is busy.
settings.register_profile("fedtune", deadline=None, derandomize=True)
settings.load_profile("fedtune")


@dataclass(frozen=True)
class Inner:
    width: int = integer(4, low=1, high=8, doc="Owned by one option.", tune=True)
    lr: float = real(0.1, low=0.001, high=1.0, log=True, doc="Both options own one of this name.", tune=True)


@dataclass(frozen=True)
class Other:
    lr: float = real(0.5, low=0.1, high=0.9, doc="The other's.", tune=True)


@dataclass(frozen=True)
class Config:
    alpha: float = real(0.5, low=0.0, high=2.0, symbol="α", doc="A weight.", source="Eq. 7", tune=True)
    lambda_: float = real(0.5, low=0.0, high=0.99, symbol="λ", doc="A momentum.")
    rate: float = real(0.01, low=1e-6, high=10.0, log=True, doc="A log-scaled number.", tune=(1e-3, 0.3))
    decay: float = real(0.0, low=0.0, high=1.0, step=0.1, doc="A stepped number.")
    open_: float = real(1.0, doc="A number without bounds.")
    steps: int = integer(20, low=1, high=1000, log=True, doc="A log-scaled whole number.", tune=(5, 100))
    rho: int = integer(0, low=0, high=100, doc="A whole number.")
    even: int = integer(2, low=2, high=10, step=2, doc="An even number.")
    merge_op: str = choice("mul", ("mul", "add", "none"), doc="A choice.")
    kind: str = choice("a", {"a": Inner, "b": Other, "c": None}, doc="A choice whose options own parameters.")
    use_ema: bool = flag(True, doc="A flag.")
    dataset: str = text("digits", doc="A text.")


@pytest.fixture
def declared() -> dict[str, Parameter]:
    return parameters(Config)
