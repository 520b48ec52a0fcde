"""What samplers keep with a trial, checked before a sampler reads it.

CMA-ES keeps its state in the study as a pickle, and a pickle can run any program. A run directory may come from a
stranger, so a state is first read here, with nothing allowed that the state of CMA-ES is not made of.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.runs.shapes import is_text, is_whole
from search_spaces.errors import UserError, sentence

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: How the names of such attributes begin, and how those end that count generations.
_STATE, _GENERATION = "cma:optimizer", ":generation"
#: All that a state is made of, by module (NumPy 2 and NumPy 1) and name.
_ALLOWED = {
    ("cmaes._cma", "CMA"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *((f"numpy.{core}.multiarray", name) for core in ("_core", "core") for name in ("scalar", "_reconstruct")),
}
_FIX = "Copy the run directory again, or begin a new search."


def check_states(path: Path, trials: Sequence[FrozenTrial]) -> None:
    """Raises `UserError` where a trial of the study in the file `path` has an attribute that a sampler cannot have
    written."""
    for trial in trials:
        where = f"{path}, trial {trial.number}"
        for name, value in trial.system_attrs.items():
            if name.endswith(_GENERATION) and not is_whole(0)(value):
                raise UserError(sentence(name, "a whole number of at least 0", value, where, _FIX))
        if any(name.startswith(_STATE) for name in trial.system_attrs) and not _is_state(trial.system_attrs):
            raise UserError(f"{_STATE} must be the state of CMA-ES, got another object ({where}). {_FIX}")


def _is_state(attributes: Mapping[str, Any]) -> bool:
    parts = [name for name in attributes if name.startswith(_STATE)]
    texts = [attributes.get(f"{_STATE}:{place}") for place in range(len(parts))]
    if not all(map(is_text, texts)):
        return False
    try:
        found = _Checked(io.BytesIO(bytes.fromhex("".join(map(str, texts))))).load()
    except Exception:  # a broken pickle raises whatever it likes
        return False
    return type(found).__name__ == "CMA"


class _Checked(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)
