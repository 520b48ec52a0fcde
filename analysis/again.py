"""The command that trains a search's best configuration on fresh seeds, as it is suggested everywhere."""

from __future__ import annotations

import shlex

#: On so many fresh seeds: with three a paired test sees only large differences.
FRESH_SEEDS = 5


def run_command(what: str) -> str:
    """For a run directory or an exported file."""
    return shlex.join(["fedtune", "run", what, "--seeds", str(FRESH_SEEDS)])


def export_command(run: str, *options: str, output: str = "best.yaml") -> str:
    """The same by way of a file, which can be kept and edited."""
    return f"{shlex.join(['fedtune', 'export', run, *options, '-o', output])} && {run_command(output)}"
