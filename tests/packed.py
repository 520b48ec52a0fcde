"""What goals of the Makefile make and the repository keeps: JSON, compressed, as it is long and replaced as a whole.

    xzcat benchmarks/recorded/performance.json.xz | less

Such a file is made anew for a release only (CONTRIBUTING.md): every version of it stays in the history.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any


def read(path: Path) -> Any:
    """The value in that file."""
    return json.loads(lzma.decompress(path.read_bytes()))


def write(path: Path, value: Any) -> None:
    """Makes `value` the content of the file; equal values make equal files. Raises `ValueError` for NaN and infinity,
    which JSON does not have."""
    from search_spaces import files  # here, as what only reads may be a process in which nothing of ours is imported

    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    files.replace(path, lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME))
