"""What mkdocs calls while it builds the site (mkdocs.yml, `make docs`): adds pages to it, and fits the documents in.

The pages about methods, spaces, figures, data sets, metrics, commands and the API are made at every build from the
declarations and docstrings that the program itself uses. README, CONTRIBUTING and CHANGELOG stand at the top of the
repository and are taken in from there.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_pages import api, catalogue, commands, links, methods, pictures

ROOT = Path(__file__).resolve().parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the made pages and puts them into the navigation."""
    modules = api.modules((ROOT / "docs" / "public-api.md").read_text(encoding="utf-8"))
    made = {
        **methods.pages(),
        **catalogue.pages(),
        **commands.pages(),
        **api.pages(modules),
        **{page: (ROOT / source).read_text(encoding="utf-8") for source, page in links.TAKEN_IN.items()},
    }
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    config.nav = navigation(config.nav, [file.src_uri for file in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A document that was written to be read in the repository, made fit for the site."""
    path = page.file.src_uri
    sources = {page: source for source, page in links.TAKEN_IN.items()}
    return links.fit(
        pictures.sized(markdown, ROOT / "docs"),
        source=sources.get(path, f"docs/{path}"),
        page=path,
        pages={file.src_uri for file in files},
        exists=lambda name: (ROOT / name).exists(),
    )


def navigation(nav: Any, pages: list[str]) -> list[Any]:
    """`nav` of mkdocs.yml with each pattern (`methods/*`) replaced by the pages it matches and that no line names.

    Raises PluginError for a pattern that matches nothing, except a lone `*`, which takes what is left over."""
    named = set(_leaves(nav))
    left = [page for page in sorted(pages) if page not in named]

    def expand(items: list[Any]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            if isinstance(item, dict):
                ((title, inner),) = item.items()
                found.append({title: expand(inner) if isinstance(inner, list) else inner})
            elif "*" not in item:
                found.append(item)
            else:
                matching = [page for page in left if fnmatch(page, item) and page.count("/") == item.count("/")]
                if not matching and item != "*":
                    raise PluginError(f"mkdocs.yml: no page matches {item!r} in nav.")
                found += matching
        return found

    return expand(nav)


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [leaf for item in items for leaf in _leaves(item)]
