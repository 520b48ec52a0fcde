"""Documents written to be read in the repository, fitted into the site: links, and code blocks that name a file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection

#: Files of the repository that are pages of the site.
TAKEN_IN = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
#: Code between backticks, or a link: [text](target).
_LINK = re.compile(r"(`[^`]*`)|\[((?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")
#: The first line of a block with a note: ```python path/of/file.py
_NOTED = re.compile(r"^```(\w+) ([\w./-]+)$", re.MULTILINE)


def fit(markdown: str, *, source: str, page: str, pages: Collection[str], exists: Callable[[str], bool]) -> str:
    """`markdown`, which stands at `source` in the repository, as the page `page` of a site of `pages`.

    A link into docs/ leads to that page, a link to a method or a public module leads to the page made of it. A link to
    another file of the repository (`exists` says which there are) keeps its words alone, as the site holds no source
    files; a link to nothing is left for mkdocs to complain about. A block's note is shown above the block."""
    parts: list[str] = []
    end = 0

    def relinked(text: str) -> str:
        return _LINK.sub(replace, text)

    def replace(found: re.Match[str]) -> str:
        code, words, link = found.groups()
        if code is not None:
            return found.group()
        leads = moved(link, source, page, pages, exists)
        return relinked(words) if leads is None else f"[{relinked(words)}]({leads})"

    for fence in _FENCE.finditer(markdown):
        parts += [relinked(markdown[end : fence.start()]), _NOTED.sub(_titled, fence.group())]
        end = fence.end()
    return "".join([*parts, relinked(markdown[end:])])


def moved(link: str, source: str, page: str, pages: Collection[str], exists: Callable[[str], bool]) -> str | None:
    """Where a link of the document `source` leads on the page `page`; None for a file that is no page of the site."""
    if re.match(r"[a-z]+:|#", link):
        return link
    path, _, anchor = link.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    found = _page(path, pages)
    if found is None:
        return None if exists(path) and not path.startswith("docs/") else link
    return posixpath.relpath(found, posixpath.dirname(page) or ".") + (f"#{anchor}" if anchor else "")


def _page(path: str, pages: Collection[str]) -> str | None:
    """The page of the site for a file or folder of the repository."""
    stem = path.removesuffix(".py").removesuffix("/__init__")
    candidates = (
        TAKEN_IN.get(path),
        path.removeprefix("docs/") if path.startswith("docs/") else None,
        stem.replace("trainables/methods/", "methods/") + ".md",
        f"api/{stem.replace('/', '.')}.md",
    )
    return next((found for found in candidates if found in pages), None)


def _titled(found: re.Match[str]) -> str:
    language, note = found.groups()
    return f'```{language} title="{"refused, with exit code 2" if note == "fails" else note}"'
