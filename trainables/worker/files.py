"""The files of a trial's folder: rows of `rounds.jsonl`, the lock on the log."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables.worker.process import is_out_of_memory

#: How long a trial waits for the process of a killed driver to let go of its folder, in seconds.
LOCK_SECONDS = 60.0


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The last measured value of every metric, averaged over seeds. A metric that is not finite for one seed in its last
    round is left out: the mean over the others would flatter a configuration that diverged in part."""
    last: dict[str, list[object]] = {}
    for round_ in sorted({row["round"] for row in rows}):
        now: dict[str, list[object]] = {}
        for row in rows:
            if row["round"] == round_:
                for name, value in row.items():
                    if name not in ("round", "seed") and not isinstance(value, (list, str)):
                        now.setdefault(name, []).append(value)
        last |= now
    finite = {name: [float(v) for v in values if isinstance(v, (int, float)) and math.isfinite(v)] for name, values in last.items()}
    return {name: math.fsum(values) / len(values) for name, values in finite.items() if len(values) == len(last[name])}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a `rounds.jsonl`, in order; a torn last line is left out."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n")[:-1]]


def is_broken(name: str, value: object, metrics: Sequence[str]) -> bool:
    """A number a round cannot do without that is not finite (null in a row read back)."""
    if name not in (*metrics, "train_loss"):
        return False
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON; a number that is not finite is null."""
    return json.dumps({key: _finite(value) for key, value in row.items()}, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


@contextlib.contextmanager
def disk(path: Path) -> Iterator[None]:
    """torch and safetensors report a full disk as errors of their own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise OSError(f"{path.name} cannot be written ({str(error).splitlines()[0]})") from error


def locked(path: Path) -> io.TextIOBase:
    """The trial's log, held against a worker of a killed driver that may still be finishing its round."""
    file = path.open("a", encoding="utf-8", buffering=1)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                raise OSError(f"another process still writes {path}") from None
            time.sleep(0.1)
