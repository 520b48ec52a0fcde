"""The documentation site's made pages, and how documents and navigation are fitted in; test_site_built.py builds it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import markdown  # type: ignore[import-untyped]
import pytest
import site_hooks
import yaml
from mkdocs.exceptions import PluginError
from PIL import Image
from site_pages import api, catalogue, commands, links, markup, methods, pictures

import fedtune
from trainables import registry

ROOT = Path(__file__).resolve().parents[2]
METHODS = list(registry.methods())


def test_make_docs_builds_strictly() -> None:
    """With --quiet, mkdocs counts no warnings, so that nothing is strict."""
    assert "-m mkdocs build\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search("^strict: true$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


def test_there_is_a_page_per_method_and_each_is_complete() -> None:
    made = methods.pages()
    assert set(made) == {"methods/index.md", *(f"methods/{name}.md" for name in METHODS)}
    for name in METHODS:
        page = made[f"methods/{name}.md"]
        for row in fedtune.methods(name):
            assert f"| `{row['key']}`" in page and markup.plain(row["bounds"]) in page
        for limit in registry.method(name).limits:
            assert f"]({limit.equals}.md)" in page
        assert f"]({name}.md)" in made["methods/index.md"]


def test_lists_hold_everything_there_is() -> None:
    made = catalogue.pages() | commands.pages()
    spaces = made["catalogue/spaces.md"]
    for space in fedtune.spaces():
        assert f"(../methods/{space['method']}.md#{space['name']})" in spaces
    assert all(f"| `{row['name']}` |" in made["catalogue/datasets.md"] for row in fedtune.datasets())
    reference = made["reference/commands.md"]
    assert all(f"## fedtune {name}\n" in reference for name in set(fedtune.__all__) - {"load", "load_model"})
    assert "`--space <" in reference and "fedtune search dfrd --space alpha_lambda --dry-run" in reference


def test_every_public_module_has_a_page() -> None:
    modules = api.modules((ROOT / "docs" / "public-api.md").read_text(encoding="utf-8"))
    made = {*api.pages(modules), *methods.pages()}
    for module in modules:
        name = module.removeprefix("trainables.methods.")
        assert {f"api/{module}.md", f"methods/{name}.md"} & made or module.startswith("analysis.figures."), module


def test_a_name_from_another_file_is_shown_where_it_is_public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "facade.py").write_text("from facade_behind import Thing as Thing, other\n\ndef own(): ...\n")
    (tmp_path / "facade_behind.py").write_text("Thing = int\nother = str\n")
    made = api.pages({"facade": ["Thing", "own"]})["api/facade.md"]
    assert re.findall("^::: (.+)$", made, re.MULTILINE) == ["facade", "facade_behind.Thing"]


def test_a_name_that_is_imported_when_it_is_used_is_shown_too() -> None:
    made = api.pages({"analysis.runs": ["Run", "load"]})["api/analysis.runs.md"]
    shown = ["analysis.runs", "analysis.runs.run.Run", "analysis.runs.run_directory.load"]
    assert re.findall("^::: (.+)$", made, re.MULTILINE) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a|b",
        "β_tran and *x*",
        "<b>",
        "a `code|d` b",
        "[0, 2]",
        "#3",
        r"\alpha",
        "a & b",
        "~x~",
        "R_i = (1/2)^min(σ, ⌊ρ i/N⌋)",
    ],
)
def test_plain_text_is_read_as_it_stands(text: str) -> None:
    shown = markdown.markdown(markup.table(("head",), [(markup.plain(text),)]), extensions=["tables", "md_in_html"])
    cell = re.search(r"<td>(.*?)</td>", shown)
    assert cell is not None
    assert html.unescape(re.sub(r"</?code>", "`", cell.group(1))) == text


PAGES = {
    "index.md",
    "how-it-fits.md",
    "changelog.md",
    "report.png",
    "methods/dfrd.md",
    "api/trainables.method.md",
    "api/trainables.models.md",
}


@pytest.mark.parametrize(
    ("source", "page", "given", "wanted"),
    [
        ("README.md", "index.md", "[a](docs/how-it-fits.md#x)", "[a](how-it-fits.md#x)"),
        ("README.md", "index.md", "![a](docs/report.png)", "![a](report.png)"),
        ("README.md", "index.md", "[b](trainables/methods/dfrd.py)", "[b](methods/dfrd.md)"),
        ("README.md", "index.md", "[`c`](LICENSE)", "`c`"),
        ("docs/public-api.md", "public-api.md", "[d](../CHANGELOG.md)", "[d](changelog.md)"),
        ("docs/public-api.md", "public-api.md", "[e](../trainables/method.py)", "[e](api/trainables.method.md)"),
        ("docs/public-api.md", "public-api.md", "[e](../trainables/models)", "[e](api/trainables.models.md)"),
        ("docs/public-api.md", "public-api.md", "[f](missing.md)", "[f](missing.md)"),
        ("docs/public-api.md", "public-api.md", "[f](../missing.py)", "[f](../missing.py)"),
        ("docs/public-api.md", "public-api.md", "[g](https://optuna.org) [h](#x)", "[g](https://optuna.org) [h](#x)"),
        ("docs/methods/dfrd.md", "methods/dfrd.md", "[i](../how-it-fits.md)", "[i](../how-it-fits.md)"),
        (
            "README.md",
            "index.md",
            "`[j](LICENSE)`\n\n```sh\n[k](LICENSE)\n```\n",
            "`[j](LICENSE)`\n\n```sh\n[k](LICENSE)\n```\n",
        ),
        ("docs/a.md", "a.md", "```python a/b.py\nx\n```\n", '```python title="a/b.py"\nx\n```\n'),
        ("docs/a.md", "a.md", "```sh fails\nx\n```\n", '```sh title="refused, with exit code 2"\nx\n```\n'),
    ],
)
def test_documents_are_fitted_into_the_site(source: str, page: str, given: str, wanted: str) -> None:
    fitted = links.fit(given, source=source, page=page, pages=PAGES, exists=lambda name: (ROOT / name).exists())
    assert fitted == wanted


def test_pictures_of_the_gallery_are_as_large_as_their_letters_need(tmp_path: Path) -> None:
    (tmp_path / "gallery").mkdir()
    Image.new("1", (5316, 746)).save(tmp_path / "gallery" / "wide_table.png")
    text = "![A table](gallery/wide_table.png)\n\n    ![Code](gallery/wide_table.png)\n\n![A page](report.png)\n"
    found = pictures.sized(text, tmp_path)
    first, rest = found.split("\n", 1)
    assert first == "![A table](gallery/wide_table.png){ width=2658 height=373 loading=lazy }"
    assert rest == text.split("\n", 1)[1]


def test_navigation_finds_pages_by_itself() -> None:
    found = site_hooks.navigation(
        [{"Home": "index.md"}, {"Methods": ["methods/index.md", "methods/*"]}, {"More": ["*"]}],
        ["index.md", "methods/index.md", "methods/b.md", "methods/a.md", "glossary.md", "api/x.md"],
    )
    assert found == [
        {"Home": "index.md"},
        {"Methods": ["methods/index.md", "methods/a.md", "methods/b.md"]},
        {"More": ["glossary.md"]},
    ]
    with pytest.raises(PluginError, match=r"no page matches 'nothing/\*'"):
        site_hooks.navigation([{"More": ["nothing/*"]}], ["index.md"])


def test_every_document_is_in_the_navigation() -> None:
    class Loader(yaml.SafeLoader):
        """Leaves out what only mkdocs can read: `!!python/…`."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]
    documents = [path.name for path in (ROOT / "docs").glob("*.md")]
    made = [*methods.pages(), *catalogue.pages(), *commands.pages(), *links.TAKEN_IN.values(), "api/x.md"]
    found = site_hooks._leaves(site_hooks.navigation(nav, [*made, *documents]))
    assert sorted(found) == sorted([*made, *documents])
