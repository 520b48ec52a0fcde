"""`--audit`: who is drawn, what is recorded, and that nobody else notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

from fedtune.record.study import StudyFile
from fedtune.trials.audit import drawn, stopped_after
from fedtune.trials.drawn import generator
from fedtune.trials.early_stopping import Halving, Never
from fedtune.trials.proposal import Proposal
from fedtune.trials.queue import TrialQueue
from fedtune.trials.stop_rules import StopRules
from tests.fedtune.conftest import experiment, space, start
from tests.fedtune.trials import test_queue
from trainables.tune import Ending

pytestmark = pytest.mark.usefixtures("study_in_memory")

Trials = list[Any]


def test_the_draw_hangs_on_the_seed_and_the_number_alone() -> None:
    few, many = ([n for n in range(4000) if drawn(share, 3, n)] for share in (0.05, 0.2))
    assert few == [n for n in range(4000) if drawn(0.05, 3, n)]
    assert set(few) < set(many), "a larger share draws these too"
    assert 150 < len(few) < 250 and 700 < len(many) < 900
    assert few != [n for n in range(4000) if drawn(0.05, 4, n)]
    assert few == [n for n in range(4000) if generator(3, n, "audit").random() < 0.05]
    assert not any(drawn(0.0, 3, n) for n in range(100)) and all(drawn(1.0, 3, n) for n in range(100))


def test_a_rule_is_asked_round_by_round() -> None:
    rule = Halving(3, {2: [(0.5,)] * 5, 4: [(0.5,)] * 5})
    falling = {1: (0.1,), 2: (0.6,), 3: (0.6,), 4: (0.3,), 5: (0.9,)}
    assert stopped_after(rule, falling, 5) == 4
    assert stopped_after(rule, falling, 3) is None
    assert stopped_after(rule, {2: (0.1,)}, 2) == 2
    assert stopped_after(Never(), falling, 9) is None


@pytest.mark.parametrize(
    ("ending", "found"),
    [
        (Ending("completed", 3, None, {2: (0.1,)}), {"audited": 2}),
        (Ending("completed", 2, None, {2: (0.1,)}), {}),  # after its last round a trial asks nobody
        (Ending("diverged", 3, "x", {2: (0.1,)}), {"audited": 2}),
        (Ending("diverged", 2, "x", {2: (0.1,)}), {}),
        (Ending("error", 2, "x", {2: (0.1,)}), {"audited": 2}),  # it failed in round 3, after it had asked
        (Ending("error", 1, "x", {}), {}),
        (Ending("interrupted", 5, None, {2: (0.1,)}), {}),
        (Ending("completed", 9, None, {2: (0.9,)}), {}),
    ],
)
def test_a_trial_is_audited_where_it_would_have_been_stopped(ending: Ending, found: dict[str, int]) -> None:
    rules = StopRules(experiment(Path("run"), audit=1.0))
    rule = Halving(3, {2: [(0.5,)] * 5})
    assert rules.unless_drawn(7, rule) == Never()
    assert rules.audited(7, ending) == found
    assert rules.audited(8, ending) == {}, "of this one nothing is known"


def test_a_trial_that_is_not_drawn_keeps_its_rule() -> None:
    rules, rule = StopRules(experiment(Path("run"), audit=0.0)), Halving(3, {2: [(0.5,)] * 5})
    assert rules.unless_drawn(7, rule) is rule
    assert rules.audited(7, Ending("completed", 9, None, {2: (0.1,)})) == {}


def searched(folder: Path, width: int = 1, order: int = 1, sessions: int = 1, **changes: Any) -> Trials:
    test_queue.conduct(folder, width, order, sessions, **{"trials": 20, **changes})
    return recorded(folder)


def recorded(folder: Path) -> Trials:
    study = StudyFile(folder)
    found = study.trials()
    study.close()
    return found


def facts(trial: Any) -> tuple[Any, ...]:
    return trial.number, trial.state, trial.params, trial.values, trial.intermediate_values, trial.user_attrs


CASES = [
    ("tpe", "asha", 1),
    ("gp", "asha", 1),
    ("cmaes", "asha", 1),
    ("nsga2", "median", 1),
    ("random", "asha", "auto"),
]


@pytest.mark.parametrize(("sampler", "scheduler", "grace"), CASES)
def test_nobody_else_notices_an_audit(tmp_path: Path, sampler: str, scheduler: str, grace: Any) -> None:
    """Proposals and stops are those of the search without it; an audited trial was stopped there, in that round."""
    changes = {"sampler": sampler, "scheduler": scheduler, "grace": grace}
    plain, with_audit = searched(tmp_path / "plain", **changes), searched(tmp_path / "audit", audit=0.5, **changes)
    audited = [t.number for t in with_audit if "audited" in t.user_attrs]
    stopped = [t.number for t in plain if t.state.name == "PRUNED"]
    assert 0 < len(audited) < len(stopped)
    assert audited == [n for n in stopped if drawn(0.5, 0, n)]
    for before, after in zip(plain, with_audit, strict=True):
        if after.number not in audited:
            assert facts(after) == facts(before)
            continue
        round_ = after.user_attrs["audited"]
        assert (before.state.name, before.user_attrs["rounds"]) == ("PRUNED", round_)
        assert (after.state.name, after.user_attrs["rounds"], after.params) == ("COMPLETE", 9, before.params)
        assert {r: v for r, v in after.intermediate_values.items() if r <= round_} == before.intermediate_values


def test_others_look_at_a_stopped_trial(tmp_path: Path) -> None:
    """The sampler sees the last value before the stop, and the rule no rung after it."""
    audited = [t for t in searched(tmp_path / "run", audit=0.5) if "audited" in t.user_attrs]
    rounds = {t.number: t.user_attrs["audited"] for t in audited if t.number < 17}
    made = experiment(tmp_path / "run", audit=0.5)
    queue = TrialQueue(tmp_path / "run", made, space())
    known = queue._known(20)
    queue.close()
    assert rounds and known is not None and len(known) == 17
    for n, last in rounds.items():
        history = StopRules(made).history(known[n])
        assert (known[n].state.name, history.rounds, max(history.curve)) == ("PRUNED", last, last)


def test_an_audited_search_is_one_search(tmp_path: Path) -> None:
    one = searched(tmp_path / "one", audit=0.5)
    assert any("audited" in t.user_attrs for t in one)
    for folder, width, order, sessions in (("four", 4, -1, 1), ("killed", 3, 1, 2)):
        again = searched(tmp_path / folder, width, order, sessions, audit=0.5)
        assert [facts(t) for t in again] == [facts(t) for t in one]
    longer = searched(tmp_path / "long", audit=0.5, trials=24)
    assert [facts(t) for t in longer[:20]] == [facts(t) for t in one]


def test_nobody_else_notices_an_audited_trial_that_fails(tmp_path: Path) -> None:
    """Where it would have been stopped before."""
    plain = searched(tmp_path / "plain")
    honest = test_queue.end

    def diverging(proposal: Proposal, rounds: int, several: bool = False) -> Ending:
        ending = honest(proposal, rounds, several)
        if proposal.rule == Never():
            cut = {r: v for r, v in ending.curve.items() if r < 7}
            return Ending("diverged", 7, "x stopped being a finite number in round 7.", cut)
        return ending

    queue = TrialQueue(tmp_path / "audit", start(tmp_path / "audit", trials=20, audit=0.5), space())
    while (proposal := queue.propose()) is not None:
        overruled = drawn(0.5, 0, proposal.number) and plain[proposal.number].state.name == "PRUNED"
        queue.finish(proposal.number, (diverging if overruled else honest)(proposal, 9))
    queue.close()
    failed = [t for t in recorded(tmp_path / "audit") if t.state == optuna.trial.TrialState.FAIL]
    assert failed and all(t.user_attrs["audited"] < 7 for t in failed)
    for before, after in zip(plain, recorded(tmp_path / "audit"), strict=True):
        if after not in failed:
            assert facts(after) == facts(before)
