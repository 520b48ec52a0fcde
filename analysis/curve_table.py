"""Recorded learning curves of many configurations over the same seeds: an `.npz` of coded curves, and a card beside it.

    curves.npz     validation, test   uint16 (configurations, seeds, rounds), coded as below
                   also_<metric>      the same of other metrics, where these were recorded as well
                   seconds            float32 (configurations, seeds), mean seconds of a round
                   measured           uint16 (configurations, seeds), where not all federations ran to their end: the
                                      rounds after which a federation was stopped, 0 where there was none. One that
                                      diverged has all rounds: it is known what came of it
    curves.json    the card: what was recorded, and how (see `CARD`)

A value v is coded as the whole number nearest to 65534 · (v - low) / (high - low), and NaN (not measured, or not
finite) as 65535; the card names low and high. So a value is read back to within half a step of (high - low) / 65534,
which for accuracies is 0.0000077, equal values stay equal, and a table that was read is written again bit for bit.

Both files are plain data: numbers without pickled objects, and JSON. The card holds the digest of the curves, so a card
beside other curves is noticed.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces import files
from search_spaces.errors import UserError
from search_spaces.parameter import Value
from search_spaces.space import Space

VERSION = 1
#: The code of a value that is not there; codes 0 … STEPS are values.
MISSING = 65535
STEPS = 65534
#: Arrays that hold curves.
CURVES = ("validation", "test")
#: The array that says how many rounds of each federation are known.
MEASURED = "measured"
#: What the names of arrays begin with that hold another metric.
ALSO = "also_"
#: What a card says. `made` lists, for every time that something was recorded: revision, machine, date, federations.
CARD = {
    "table": "version of this format",
    "name": "the table's name",
    "method": "the method, or `several` where the space chooses among methods",
    "space": "the searched space, as space.json describes it",
    "settings": "every parameter that is not searched, by key",
    "dataset": "the data set",
    "metric": "the metric of the curves `validation` (by which a search chooses) and `test`",
    "direction": "maximize or minimize",
    "configurations": "the searched values by key, in the order of the first axis",
    "seeds": "the seeds, in the order of the second axis",
    "rounds": "the length of the third axis; rounds are counted from 1",
    "range": "low and high of the codes, by array",
    "seconds_per_round": "the median over all federations",
    "how": "how configurations were drawn and curves were made, in a sentence",
    "made": "when, where and at which revision",
    "sha256": "of the .npz file",
}

Curves = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CurveTable:
    """`validation` and `test`: (configurations, seeds, rounds), NaN where nothing was measured. `seconds`:
    (configurations, seeds), mean seconds of a round. `card`: the entries of `CARD` that the arrays do not give. `also`:
    curves of other metrics, by metric. `measured`: (configurations, seeds), of how many rounds something is known; of
    all where it is None."""

    card: Mapping[str, Any]
    configurations: tuple[Mapping[str, Value], ...]
    seeds: tuple[int, ...]
    validation: Curves
    test: Curves
    seconds: NDArray[np.float32]
    also: Mapping[str, Curves] = field(default_factory=dict)
    measured: NDArray[np.uint16] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError where the arrays do not belong together."""
        shape = (len(self.configurations), len(self.seeds), self.rounds)
        if self.validation.shape != shape or self.test.shape != shape or self.seconds.shape != shape[:2]:
            raise ValueError(
                f"{shape[0]} configurations and {shape[1]} seeds with curves {self.validation.shape} and "
                f"{self.test.shape} and seconds {self.seconds.shape}"
            )
        if self.measured is not None and (self.measured.shape != shape[:2] or self.measured.max(initial=0) > shape[2]):
            raise ValueError(f"curves {shape} and the rounds that were measured {self.measured.shape}")
        for name, curves in self.also.items():
            if curves.shape != shape:
                raise ValueError(f"curves {shape} and those of {name} {curves.shape}")

    @property
    def rounds(self) -> int:
        return int(self.validation.shape[-1])

    @property
    def whole(self) -> NDArray[np.bool_]:
        """(configurations, seeds): the federations that ran to their end, or diverged."""
        if self.measured is None:
            return np.ones(self.seconds.shape, dtype=bool)
        found: NDArray[np.bool_] = self.measured >= self.rounds
        return found

    @property
    def space(self) -> Space:
        """What was searched."""
        return Space.from_json(self.card["space"])

    @property
    def sign(self) -> float:
        """+1 where larger is better, -1 where smaller is."""
        return 1.0 if self.card["direction"] == "maximize" else -1.0


def value_range(curves: Curves) -> tuple[float, float]:
    """[0, 1] where it holds all finite values, else what they span; so accuracies always have the same codes."""
    finite = curves[np.isfinite(curves)]
    if finite.size == 0 or (finite.min() >= 0 and finite.max() <= 1):
        return 0.0, 1.0
    least, most = float(finite.min()), float(finite.max())
    return least, most if most > least else least + 1.0


def encode(curves: Curves, low: float, high: float) -> NDArray[np.uint16]:
    """Values as codes; what is not finite becomes `MISSING`. Raises ValueError where one lies outside [low, high]."""
    finite = np.isfinite(curves)
    if np.any((curves[finite] < low) | (curves[finite] > high)):
        raise ValueError(f"values outside [{low}, {high}]")
    steps = np.rint(STEPS * (np.where(finite, curves, low) - low) / (high - low))
    return np.where(finite, steps, MISSING).astype(np.uint16)


def decode(codes: NDArray[np.uint16], low: float, high: float) -> Curves:
    """Codes as values, NaN for `MISSING`."""
    values = low + codes.astype(np.float64) / STEPS * (high - low)
    return np.where(codes == MISSING, np.nan, np.minimum(values, high))


def save(table: CurveTable, path: Path) -> dict[str, Any]:
    """Writes `path`, which ends in .npz, and the card beside it, which is returned. Raises `OSError`."""
    curves = {name: getattr(table, name) for name in CURVES}
    curves |= {ALSO + metric: values for metric, values in table.also.items()}
    ranges = {name: value_range(values) for name, values in curves.items()}
    arrays: dict[str, Any] = {name: encode(values, *ranges[name]) for name, values in curves.items()}
    if table.measured is not None and not table.whole.all():
        arrays[MEASURED] = table.measured.astype(np.uint16)
    content = io.BytesIO()
    np.savez_compressed(content, seconds=table.seconds.astype(np.float32), **arrays)
    seconds = table.seconds[np.isfinite(table.seconds)]
    card = dict(table.card) | {
        "table": VERSION,
        "configurations": [dict(values) for values in table.configurations],
        "seeds": list(table.seeds),
        "rounds": table.rounds,
        "range": {name: list(bounds) for name, bounds in ranges.items()},
        "seconds_per_round": round(float(np.median(seconds)), 4) if seconds.size else None,
        "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
    }
    ordered = {key: card[key] for key in CARD}
    files.replace(path, content.getvalue())
    files.replace(card_path(path), as_json(ordered))
    return ordered


def as_json(card: Mapping[str, Any]) -> str:
    """A card as text, a line per configuration, so that two cards can be compared line by line."""
    whole = json.dumps(dict(card) | {"configurations": []}, indent=1, ensure_ascii=False, allow_nan=False)
    lines = [json.dumps(dict(values), ensure_ascii=False, allow_nan=False) for values in card["configurations"]]
    listed = "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else "[]"
    return whole.replace('"configurations": []', f'"configurations": {listed}', 1) + "\n"


def card_path(path: Path) -> Path:
    """`curves.json` beside `curves.npz`."""
    return path.with_suffix(".json")


def load(path: str | Path) -> CurveTable:
    """The table in `path` (its .npz file) and the card beside it. Raises `UserError` where they are none."""
    path = Path(path)
    card = _card(path)
    try:
        content = path.read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            others = [name for name in archive.files if name.startswith(ALSO)]
            known = [name for name in (MEASURED,) if name in archive.files]
            found = {name: archive[name] for name in (*CURVES, *others, *known, "seconds")}
    except OSError as error:
        raise UserError(f"The table {path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise _no_table(path, "it is damaged, or was not written by fedtune") from error
    if hashlib.sha256(content).hexdigest() != card["sha256"]:
        raise _no_table(path, f"it is not the one that {card_path(path).name} describes")
    coded = (*CURVES, *others, *known)
    if any(found[name].dtype != np.uint16 for name in coded) or found["seconds"].dtype != np.float32:
        raise _no_table(path, "its arrays are not of the kinds that fedtune writes")
    try:
        curves = {name: decode(found[name], *card["range"][name]) for name in (*CURVES, *others)}
        also = {name.removeprefix(ALSO): curves.pop(name) for name in others}
        return CurveTable(
            card,
            tuple(card["configurations"]),
            tuple(card["seeds"]),
            seconds=found["seconds"],
            also=also,
            measured=found.get(MEASURED),
            **curves,
        )
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise _no_table(path, f"its card does not fit it ({error})") from error


def _card(path: Path) -> Mapping[str, Any]:
    beside = card_path(path)
    try:
        card = json.loads(beside.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"The table's card {beside} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise _no_table(beside, "it is not JSON") from error
    lacking: Sequence[str] = [key for key in CARD if key not in card] if isinstance(card, dict) else list(CARD)
    if lacking:
        raise _no_table(beside, f"its card lacks {lacking[0]!r}")
    if card["table"] != VERSION:
        raise _no_table(beside, f"it is of version {card['table']}, and this fedtune reads version {VERSION}")
    return dict(card)


def _no_table(path: Path, why: str) -> UserError:
    return UserError(f"{path} is not a table that can be read: {why}. Make one with `fedtune export RUN --table FILE`.")
