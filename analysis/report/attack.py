"""Clients' images and what an attack rebuilt of them, as a PNG picture and as a page; neither needs a browser."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis import style
from analysis.report.page import Page, definition, escape, write

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont, ImageFont

#: Pairs of images side by side; further ones stand below.
COLUMNS = 8
#: About how many pixels a picture's longer side has; images are enlarged by a whole factor.
SIDE = 112
_GAP, _MARGIN, _LINE, _TEXT, _TITLE = 12, 20, 22, 14, 17


@dataclass(frozen=True)
class RebuiltImage:
    """A client's image and what was rebuilt of it, both `(ch, H, W)` in [0, 1], and their PSNR in dB."""

    original: np.ndarray
    recovered: np.ndarray
    psnr: float
    #: Whose image of what, in a few words.
    caption: str


def attack_picture(pairs: Sequence[RebuiltImage], title: str) -> Image:
    """Originals above, reconstructions below, the PSNR under each."""
    from PIL import Image, ImageDraw

    pictures = [(_enlarged(pair.original), _enlarged(pair.recovered)) for pair in pairs]
    width, height = pictures[0][0].size
    text, bold = _font(_TEXT), _font(_TITLE)
    left = _MARGIN + int(max(text.getlength(word) for word in ("original", "rebuilt"))) + _GAP
    columns = min(COLUMNS, len(pairs))
    rows = -(-len(pairs) // columns)
    block = 2 * (height + _GAP) + 2 * _LINE
    cell = max(width, int(max(text.getlength(_short(pair.caption)) for pair in pairs))) + _GAP
    size = (max(left + columns * cell, int(bold.getlength(title)) + 2 * _MARGIN), 2 * _MARGIN + _LINE + rows * block)
    sheet = Image.new("RGB", size, style.PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((_MARGIN, _MARGIN - 4), title, fill=style.INK, font=bold)
    for index, (pair, (original, recovered)) in enumerate(zip(pairs, pictures, strict=True)):
        x = left + (index % columns) * cell
        y = _MARGIN + _LINE + _GAP + (index // columns) * block
        if index % columns == 0:
            pen.text((_MARGIN, y + height // 2 - _TEXT // 2), "original", fill=style.MUTED, font=text)
            pen.text((_MARGIN, y + height + _GAP + height // 2 - _TEXT // 2), "rebuilt", fill=style.MUTED, font=text)
        sheet.paste(original, (x, y))
        sheet.paste(recovered, (x, y + height + _GAP))
        below = y + 2 * height + _GAP
        pen.text((x, below + 2), f"{pair.psnr:.1f} dB", fill=style.INK, font=text)
        pen.text((x, below + 2 + _TEXT + 4), _short(pair.caption), fill=style.MUTED, font=text)
    return sheet


def write_png(pairs: Sequence[RebuiltImage], title: str, path: Path) -> Path:
    """The picture as a file, whole or not at all. Raises `UserError` where that is not possible."""
    return write(path, _png(attack_picture(pairs, title)))


def write_page(pairs: Sequence[RebuiltImage], title: str, facts: Sequence[tuple[str, str]], path: Path) -> Path:
    """The pictures and the `facts` about the attack as one page that needs no network."""
    page = Page(title)
    page.add(f"<h1>{escape(title)}</h1>")
    page.card("facts", "The attack", definition(facts))
    look = 'style="image-rendering:pixelated;width:7rem;height:auto;display:block;margin-bottom:.4rem"'
    shown = "".join(
        '<figure style="margin:0">'
        + "".join(
            f'<img {look} alt="{escape(word)}, {escape(pair.caption)}" src="{_data_uri(image)}">'
            for word, image in (("original", pair.original), ("rebuilt", pair.recovered))
        )
        + f"<figcaption><b>{pair.psnr:.1f} dB</b><br>{escape(pair.caption)}</figcaption></figure>"
        for pair in pairs
    )
    page.card(
        "pictures",
        "Originals above, what the attack rebuilt below",
        f'<div style="display:flex;flex-wrap:wrap;gap:1.2rem">{shown}</div>',
    )
    return write(path, page.html())


def pixels(image: np.ndarray) -> np.ndarray:
    """`(ch, H, W)` in [0, 1] as uint8 `(H, W, 3)`; unless there are three channels, the first is shown as grey."""
    chosen = image if image.shape[0] == 3 else np.repeat(image[:1], 3, axis=0)
    scaled: np.ndarray = np.rint(np.clip(chosen, 0.0, 1.0).transpose(1, 2, 0) * 255)
    return scaled.astype(np.uint8)


def _enlarged(image: np.ndarray) -> Image:
    from PIL import Image

    factor = max(1, SIDE // max(image.shape[1:]))
    plain = Image.fromarray(pixels(image))
    return plain.resize((plain.width * factor, plain.height * factor), Image.Resampling.NEAREST)


def _data_uri(image: np.ndarray) -> str:
    from PIL import Image

    return "data:image/png;base64," + base64.b64encode(_png(Image.fromarray(pixels(image)))).decode()


def _png(picture: Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def _font(size: int) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _short(words: str) -> str:
    return words if len(words) <= 22 else f"{words[:21]}…"
