"""Plain text as Markdown: what the declarations say must be read as it stands, whatever signs it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|])")
_CODE = re.compile(r"(`[^`]+`)")


def plain(text: object) -> str:
    """`text` with every sign that Markdown or HTML would read; what stands between backticks stays code."""
    parts = _CODE.split(str(text))
    return "".join(part if part.startswith("`") and len(part) > 1 else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def code(text: object) -> str:
    """`text` between backticks, or nothing where there is none."""
    return f"`{text}`" if str(text) else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], style: str = "") -> str:
    """A table of cells that are Markdown already; `style` is its class in docs/assets/site.css."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("\n", "<br>") for cell in row) + " |" for row in rows]
    text = "\n".join(lines)
    return f'<div class="{style}" markdown>\n\n{text}\n\n</div>' if style else text


def block(text: str, language: str = "text", style: str = "") -> str:
    """`text` as a block of code, line by line as it stands."""
    kind = f"{{ .{language} .{style} }}" if style else language
    return f"```{kind}\n{text.rstrip()}\n```"


def page(title: str, *parts: str) -> str:
    """A page with that title, which the navigation shows too; empty parts are left out."""
    head = f"---\ntitle: {_quoted(title)}\n---\n\n# {plain(title)}"
    return "\n\n".join([head, *(part for part in parts if part)]) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
