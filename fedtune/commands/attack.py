"""fedtune attack RUN: what a curious server can rebuild of clients' images."""

from __future__ import annotations

from fedtune.option import call
from fedtune.options import AsJson, AttackRequest

GUIDE = "attack"
EXAMPLES = """\
# Four images of a run's clients, beside what was rebuilt of them:
fedtune attack runs/fedavg-final
# A method without a run, two images, fewer steps:
fedtune attack fedmdcg --images 2 --steps 100 -o fedmdcg.png
# The part that is not uploaded is searched for as well:
fedtune attack runs/fedper-final --private searched
"""


def command(request: AttackRequest, *, as_json: AsJson = False) -> None:
    """Attack what clients upload, and show how much of their images can be rebuilt from it."""
    from fedtune.api.attack import attack, facts
    from fedtune.console import tables
    from search_spaces.files import shown

    made = call(attack, request)
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
