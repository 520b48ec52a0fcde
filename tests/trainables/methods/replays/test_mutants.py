"""The list of wrong steps is whole: every method has a replay, every step is found in the code.

That the replays notice the steps is tried by `make mutants`, which makes all of them, also when it draws a sample of
the others.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutation.written import found
from tests.trainables.methods.replays.mutants import MUTANTS, REPLAYS, WrongStep
from trainables import registry

FOLDER = Path(__file__).parent


def test_every_method_has_a_replay_that_exists() -> None:
    assert REPLAYS.keys() == registry.methods().keys()
    for test in {*REPLAYS.values(), *(mutant.test for mutant in MUTANTS)}:
        name, _, case = test.partition("::")
        assert re.search(
            rf"^def {case.partition('[')[0]}\(",
            (FOLDER / f"test_replay_{name}.py").read_text(encoding="utf-8"),
            re.MULTILINE,
        )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.test.partition('::')[0]}-{m.what}")
def test_mutants_are_still_found(mutant: WrongStep) -> None:
    changed = found(mutant)
    assert changed.old != changed.new
