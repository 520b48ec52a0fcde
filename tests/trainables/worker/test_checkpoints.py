"""How often a trial is saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainables.worker import trial_folder


@pytest.mark.parametrize(("cost", "seconds"), [(0.01, 8.49), (0.5, 60.0), (2.0, 120.0), (50.0, 1000.0)])
def test_checkpoints_are_as_far_apart_as_costs_least(cost: float, seconds: float) -> None:
    """Saving costs cost / T of the time, and a death within T, which has a chance of T / life, half of T on average. A
    checkpoint of 50 seconds takes a twentieth of the time, as it must not take more."""
    assert trial_folder.between_checkpoints(cost) == pytest.approx(seconds, abs=0.01)
    if cost < 18:
        spent = {T: cost / T + T / (2 * 3600) for T in (0.9 * seconds, seconds, 1.1 * seconds)}
        assert min(spent, key=lambda T: spent[T]) == seconds


def test_a_cheap_checkpoint_is_not_written_after_each_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round's is, then that of the first round which ends 8.5 seconds later, and the last one."""
    now, saved = 0.0, []
    monkeypatch.setattr(trial_folder.time, "monotonic", lambda: now)
    folder = trial_folder.TrialFolder(tmp_path / "t")

    class Simulation:
        round = 0

        def save(self, path: Path, *, merged: bool = False) -> tuple[str, ...]:
            nonlocal now
            now += 0.01
            saved.append(self.round)
            return ()

    simulation = Simulation()
    folder.append([])
    for simulation.round in range(1, 21):
        now += 1.0
        folder.save_checkpoint(simulation, last=simulation.round == 20)  # type: ignore[arg-type]
    folder.close()
    assert saved == [1, 10, 19, 20]
