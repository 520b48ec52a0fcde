"""Pictures of the gallery at the size at which their letters can be read: wide ones are scrolled, not shrunk."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image

#: Pictures have so many dots per pixel of the page, for sharp screens and paper.
DOTS = 2

_PICTURE = re.compile(r"^(!\[[^\]]+\]\((gallery/[\w.-]+\.png)\))$", re.MULTILINE)


def sized(markdown: str, folder: Path) -> str:
    """`markdown` with the width and height of each picture of the gallery, which are read from its file in `folder`."""

    def with_size(found: re.Match[str]) -> str:
        with Image.open(folder / found[2]) as picture:
            width, height = (side // DOTS for side in picture.size)
        return f"{found[1]}{{ width={width} height={height} loading=lazy }}"

    return _PICTURE.sub(with_size, markdown)
