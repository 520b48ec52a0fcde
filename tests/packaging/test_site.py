"""The documentation site's made pages, and how documents and navigation are fitted in; test_site_built.py builds it."""

from __future__ import annotations

import html
import re

import markdown  # type: ignore[import-untyped]
import pytest
from site_pages import catalogue, commands, markup

import fedtune


def test_lists_hold_everything_there_is() -> None:
    made = catalogue.pages() | commands.pages()
    spaces = made["catalogue/spaces.md"]
    for space in fedtune.spaces():
        assert f"(../methods/{space['method']}.md#{space['name']})" in spaces
    assert all(f"| `{row['name']}` |" in made["catalogue/datasets.md"] for row in fedtune.datasets())
    reference = made["reference/commands.md"]
    assert all(
        f"## fedtune {name}\n" in reference for name in set(fedtune.__all__) - {"load", "load_model", "objective"}
    )
    assert "`--space <" in reference and "fedtune search dfrd --space alpha_lambda --dry-run" in reference


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
