"""fedtune datasets [NAME]: the registered data sets, and where the files of one belong."""

from __future__ import annotations

from typing import Annotated

from fedtune.option import Argument
from fedtune.options import AsJson
from search_spaces.shell import quote

GUIDE = "search"
EXAMPLES = """\
# All data sets:
fedtune datasets
# Where CIFAR-10's files belong on a machine without network:
fedtune datasets cifar10
"""

_CHECKED = {
    "contents": "They are known by what is in them, however they are packed (MD5 of the unpacked files).",
    "archive": "The published archive is known by its MD5. Unpacked, or packed anew, only the number of images, their "
    "size and their labels are checked.",
}


def command(
    name: Annotated[str | None, Argument(help="A data set's name. Without it, all data sets are listed.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the data sets, or explain one and say where its files belong."""
    from fedtune.api.catalogue import datasets
    from fedtune.console import tables

    rows = datasets(name)
    if as_json:
        tables.print_json(rows)
        return
    columns = {key: key for key in ("name", "image", "classes", "train", "test", "state", "title")}
    shown = [row | {"image": "×".join(map(str, row["shape"])), "state": _state(row)} for row in rows]
    tables.brief("Data sets", shown, columns)
    if name is None:
        tables.say("`fedtune datasets NAME` explains one and says where its files belong.")
        tables.say(
            "For your own data, give `--dataset FOLDER` with one folder of images per class, or `--dataset FILE.npz` "
            "with arrays x and y (docs/own.md)."
        )
        return
    row = rows[0]
    tables.say(row["doc"])
    if row["python"]:
        if row["ready"]:
            tables.say(f"It is in the Python package {row['python']}, which is installed.")
        else:
            tables.say(
                f"It is in the Python package {row['python']}, which is missing:", "pip install 'fedtune[images]'"
            )
        return
    if not row["files"]:
        tables.say("It is embedded; there is nothing to download.")
        return
    tables.say("Files:")
    for file in row["files"]:
        tables.say(f"  {file}")
    tables.say(_CHECKED[row["checked"]])
    tables.say("They are looked for in this order, with or without the folders above, packed or unpacked:")
    for place in row["places"]:
        tables.say(f"  {place}" + (" (taken)" if place == row["taken"] and not row["prepared"] else ""))
    if not row["ready"]:
        tables.say("They are in none of these; on first use they are downloaded into the first.")
    elif row["prepared"]:
        tables.say("They are prepared in the cache and no longer needed.")
        if row["taken"]:
            tables.say("They were taken from", row["taken"])
    if row["package"]:
        tables.say("Debian has them as a package, and `make data` brings it without root:", row["package"])
    named = f"FEDTUNE_DATA=FOLDER fedtune search fedavg --dataset {quote(row['name'])}"
    tables.say("Without a network, put them there, or into any other folder and name it:", named)


def _state(row: dict[str, object]) -> str:
    if row["python"] and not row["ready"]:
        return "to install"
    if not row["files"]:
        return "embedded"
    return "ready" if row["ready"] else "to fetch"
