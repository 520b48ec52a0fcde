"""fedtune attack RUN: what a curious server can rebuild of clients' images."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands import _complete
from fedtune.commands._options import AsJson, DataDir, Plain, Quiet

EXAMPLES = """\
# Four images of a run's clients, beside what was rebuilt of them:
fedtune attack runs/fedavg-final
# A method without a run, two images, fewer steps:
fedtune attack fedmdcg --images 2 --steps 100 -o fedmdcg.png
# The part that is not uploaded is searched for as well:
fedtune attack runs/fedper-final --private searched
"""


def command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG_OR_RUN",
            help="A run directory, a file written by `fedtune export`, or a method's name.",
            show_default=False,
            autocompletion=_complete.methods_and_runs,
        ),
    ],
    images: Annotated[
        int, typer.Option(help="How many images to attack, from as many different clients as there are.")
    ] = 4,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Outer L-BFGS iterations per image.  [default: attack_steps of the configuration]", show_default=False
        ),
    ] = None,
    private: Annotated[
        str | None,
        typer.Option(
            help="What stands in for a part of the model that is not uploaded: random weights, or weights that are "
            "searched for as well (random or searched).  [default: attack_private of the configuration]",
            show_default=False,
        ),
    ] = None,
    trial: Annotated[
        int | None, typer.Option(help="For a run: the number of the trial.  [default: the best]", show_default=False)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="The seed of images, weights and noise.  [default: the run's first seed]", show_default=False
        ),
    ] = None,
    data_dir: DataDir = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="The .png file for the picture; the page is written beside it.  [default: RUN/attack.png]",
            show_default=False,
        ),
    ] = None,
    plain: Plain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Attack what clients upload, and show how much of their images can be rebuilt from it."""
    from fedtune.api.attack import attack, facts
    from fedtune.console import tables
    from search_spaces.files import shown

    made = attack(
        target,
        images=images,
        steps=steps,
        private=private,
        trial=trial,
        seed=seed,
        data_dir=data_dir,
        output=output,
        plain=plain,
        quiet=quiet,
    )
    if as_json:
        tables.print_json(made.to_json())
        return
    rows = [
        {
            "image": i,
            "client": leak.client,
            "class": made.class_names[leak.label],
            "psnr": f"{leak.psnr:.2f}",
            "mismatch": f"{leak.mismatch:.2g}",
        }
        for i, leak in enumerate(made.leaks, start=1)
    ]
    tables.show(
        f"Deep-leakage attack on {made.title}, {made.dataset}",
        rows,
        {
            "image": "image",
            "client": "client",
            "class": "class",
            "psnr": "PSNR (dB)",
            "mismatch": "gradient mismatch",
        },
    )
    for name, words in facts(made):
        tables.say(f"{name}: {words}")
    if made.private == "random" and "features" in made.sent and "head" not in made.sent:
        tables.say("An attacker who also searches for the unknown head may see more; try it with --private searched.")
    tables.say("Pictures:", shown(made.picture), shown(made.page))
