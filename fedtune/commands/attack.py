"""fedtune attack RUN: what a curious server can rebuild of clients' images."""

from __future__ import annotations

from typing import Annotated

import typer

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
        ),
    ],
    images: Annotated[
        int, typer.Option(help="How many images are attacked, each of another client while there are any.")
    ] = 4,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Outer L-BFGS iterations per image.  [default: the configuration's, 300]", show_default=False
        ),
    ] = None,
    private: Annotated[
        str | None,
        typer.Option(
            help="A part that is not uploaded gets random weights, or is searched for too: random or searched.",
            show_default=False,
        ),
    ] = None,
    trial: Annotated[
        int | None, typer.Option(help="Of a run: another trial than the best.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Other images, weights and noise.  [default: the run's first seed]", show_default=False),
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="Where downloaded data sets lie.", show_default=False)] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="The picture, .png; the page goes beside it.  [default: RUN/attack.png]",
            show_default=False,
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Progress as lines, for logs.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Attack what a configuration's clients upload; shows how much of their images can be rebuilt."""
    from fedtune.api.attack import attack, facts
    from fedtune.commands._output import shown
    from fedtune.console import tables

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
        tables.say("An attacker who searches for the unknown head sees more: --private searched")
    tables.say(f"Pictures: {shown(made.picture)}, {shown(made.page)}")
