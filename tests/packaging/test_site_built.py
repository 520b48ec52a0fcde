"""The site as `make docs` builds it: its pages are whole, its links lead somewhere, it asks the network for nothing."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlparse

import pytest
from site_pages import api

import fedtune
from tests.analysis.browser import BROWSER, Shown
from trainables import registry

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
METHODS = list(registry.methods())
PUBLIC = (ROOT / "docs" / "public-api.md").read_text(encoding="utf-8")
#: Attributes by which a page makes a browser fetch something (a link that is followed by a click is not one).
FETCHES = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "link": "href",
}


class Page(HTMLParser):
    """What a page fetches, where its links lead, the names a link can lead to, its words, and what its headings say."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.words = ""
        self.headings: set[str] = set()
        self.heading = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found["id"]} if "id" in found else set()
        self.heading = self.heading or tag in ("h2", "h3")
        if tag in FETCHES and FETCHES[tag] in found:
            self.fetched.append(found[FETCHES[tag]])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])

    def handle_endtag(self, tag: str) -> None:
        self.heading = self.heading and tag not in ("h2", "h3")

    def handle_data(self, data: str) -> None:
        self.words += data
        self.headings |= {data.strip()} if self.heading else set()


def make(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = make(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {str(path.relative_to(site)): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_page_has_its_equations_and_every_declared_parameter(method: str, pages: dict[str, Page]) -> None:
    text = words(pages[f"methods/{method}.html"].words)
    doc = inspect.cleandoc(importlib.import_module(f"trainables.methods.{method}").__doc__ or "")
    for line in doc.splitlines():
        if line.startswith("    "):
            assert words(line) in text
    for row in fedtune.methods(method):
        assert row["doc"] in text and row["bounds"] in text and row["source"] in text and row["symbol"] in text, row[
            "key"
        ]
        assert row["key"] in text
    for space in fedtune.spaces(method):
        assert space["name"] in pages[f"methods/{method}.html"].names and space["title"] in text


@pytest.mark.parametrize(("module", "names"), api.modules(PUBLIC).items())
def test_every_public_name_is_explained(module: str, names: list[str], pages: dict[str, Page]) -> None:
    if module.startswith(api.ELSEWHERE):
        return
    headings = pages[f"api/{module}.html"].headings
    assert [name for name in names if name not in headings and f"{module}.{name}" not in headings] == []


def test_nothing_is_fetched_from_the_network(site: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        assert page.fetched, name
        assert [
            found for found in page.fetched if urlparse(found).scheme not in ("", "data") or found.startswith("//")
        ] == [], name
    for style in site.rglob("*.css"):
        assert re.findall(r"@import|url\(\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")) == [], style.name
    # With these, mkdocs-material's script would ask GitHub or a mirror of npm.
    assert not any(
        "data-md-component=source" in text or 'class="mermaid"' in text
        for text in (path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    )


#: Types a word into the search field and starts the search; whether a page with this title is found.
SEARCH = """(() => {
  const field = document.querySelector('.md-search__input');
  if (!field) return false;
  field.focus();
  field.value = 'fedrolex';
  field.dispatchEvent(new Event('keyup', {bubbles: true}));
  const found = document.querySelectorAll('.md-search-result__article :is(h1, h2)');
  return [...found].some((heading) => heading.textContent == 'FedRolex');
})()"""


class TestInABrowser:
    pytestmark = BROWSER

    def test_opened_from_the_disk_it_is_whole_and_can_be_searched(self, site: Path, browser: Shown) -> None:
        with browser.fetches() as fetched:
            browser.open(site / "methods" / "fedprox.html")
            browser.until(SEARCH)
        assert any(name.endswith("site.css") for name in fetched)
        assert [name for name in fetched if not name.startswith(("file:", "data:", "blob:", "about:"))] == []
