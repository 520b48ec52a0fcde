"""Kinds of parameters that many methods have: the bounds, the scale and the range of the default search of each kind.

The default value, the symbol, what it means and where it is from stand where the parameter is declared."""

from __future__ import annotations

from typing import Any

from search_spaces.parameter import real


def adam_lr(default: float, *, doc: str, source: str, symbol: str = "") -> Any:
    """A learning rate of Adam."""
    return real(default, low=1e-7, high=1.0, log=True, symbol=symbol, doc=doc, source=source, tune=(1e-5, 1e-2))


def sgd_lr(default: float, *, doc: str, source: str, symbol: str = "") -> Any:
    """A learning rate of SGD beside the clients' own (`trainables.local.LocalTraining`)."""
    return real(default, low=1e-6, high=10.0, log=True, symbol=symbol, doc=doc, source=source, tune=(1e-4, 0.1))


def temperature(
    default: float, *, doc: str, source: str, symbol: str = "", tune: bool | tuple[float, float] = False
) -> Any:
    """A temperature of softmaxes in a distillation."""
    return real(default, low=0.1, high=100.0, log=True, symbol=symbol, doc=doc, source=source, tune=tune)
