"""fedtune new KIND NAME: a first method, model, data set or space of one's own."""

from __future__ import annotations

from typing import Annotated

from fedtune.option import Argument

GUIDE = "own"
EXAMPLES = """\
# A method in mymethod.py, with a test:
fedtune new method mymethod
# A network in mynet.py:
fedtune new model mynet
# A script that writes mydata.npz:
fedtune new dataset mydata
# A search space in myspace.yaml:
fedtune new space myspace
"""


def command(
    kind: Annotated[str, Argument(help="method, model, dataset or space.")],
    name: Annotated[str, Argument(help="What it is called, and its file.")],
) -> None:
    """Write a commented example of a method, model, dataset or space of your own, and its test."""
    from fedtune.api.new import NEXT, new
    from fedtune.console import tables

    made = new(kind, name)
    tables.say(f"Written: {' and '.join(map(str, made))}")
    tables.say("Try it:", f"python {made[1]}", NEXT[kind].format(name=name))
