"""What a page of the report says: its words, and the data that its script reads."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any


def plain(html: str) -> str:
    """The text without its tags, in one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def words(page: str) -> str:
    """What a reader sees of a page, without figures and the table of trials, which are drawn by a script."""
    return plain(page.split("<main", 1)[1].split('id="page-data"')[0])


def data_of(page: str) -> dict[str, Any]:
    """What the script of a page reads."""
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)
    assert found
    content = json.loads(found.group(1))
    assert isinstance(content, dict)
    return content
