"""Several seeds of one configuration: what is saved, and what was saved under earlier names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contracts.test_methods import untimed, values_for
from trainables.simulation import checkpoint
from trainables.simulation.replicates import Replicates


def as_version_1(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree as it was written when client states were called memories, and the label distribution a law."""
    simulations = []
    for saved in tree["simulations"]:
        state = dict(saved["state"])
        state["law"] = state.pop("label_probabilities")
        simulations.append(
            {
                "round": saved["round"],
                "state": state,
                "memories": saved["client_states"],
                "reached": saved["reached"],
                "sent": saved["sent"],
            }
        )
    return {"version": 1, "seeds": tree["seeds"], "simulations": simulations}


@pytest.mark.parametrize("method", ["fedgen", "fedmdcg"])
def test_a_checkpoint_of_version_1_goes_on_as_one_of_today(method: str, toy: Path, tmp_path: Path) -> None:
    values = values_for(method, toy)
    first, second = (Replicates(method, values, (3, 4)) for _ in range(2))
    first.step()
    first.save(tmp_path / "now")
    old = as_version_1(checkpoint.load(tmp_path / "now"))
    assert old["simulations"][0].keys() == {"round", "state", "memories", "reached", "sent"}
    checkpoint.save(tmp_path / "before", old)
    second.load(tmp_path / "before")
    assert [untimed(row) for row in second.step()] == [untimed(row) for row in first.step()]


def test_a_checkpoint_that_lacks_what_was_sent_is_refused_where_that_counts(toy: Path, tmp_path: Path) -> None:
    values = values_for("fedgen", toy, target=0.5)
    trial = Replicates("fedgen", values, (3,))
    trial.step()
    trial.save(tmp_path / "now")
    checkpoint.save(tmp_path / "before", as_version_1(checkpoint.load(tmp_path / "now")))
    with pytest.raises(ValueError, match="does not say what was sent so far"):
        Replicates("fedgen", values, (3,)).load(tmp_path / "before")


def test_a_checkpoint_that_lacks_clients_models_is_refused_where_they_are_kept(toy: Path, tmp_path: Path) -> None:
    trial, later = (Replicates("fedmdcg", values_for("fedmdcg", toy), (3,)) for _ in range(2))
    trial.step()
    trial.save(tmp_path / "now")
    checkpoint.save(tmp_path / "before", as_version_1(checkpoint.load(tmp_path / "now")))
    later.keep_models()
    with pytest.raises(ValueError, match="nor which models clients had"):
        later.load(tmp_path / "before")


def test_a_checkpoint_of_an_unknown_version_is_refused(toy: Path, tmp_path: Path) -> None:
    trial = Replicates("fedavg", values_for("fedavg", toy), (3,))
    trial.save(tmp_path / "now")
    checkpoint.save(tmp_path / "later", checkpoint.load(tmp_path / "now") | {"version": 99})
    with pytest.raises(ValueError, match="version 99"):
        trial.load(tmp_path / "later")
