"""Which trial comes next: one that was interrupted, or a new one that the sampler proposes. Knows Optuna, and nothing
of Ray.

Trial n is proposed, and later stopped, by what trials 0 … n - lag did (`Experiment.seen`) and by nothing else, except
that `ei` does not propose what a later one has already; it waits until all of those have finished. Its sampler is made
fresh, seeded by (seed, n), and asked on a view of the study that holds just them.
So a search is one fixed sequence of trials, whatever ran side by side and however often it was interrupted. `lag`
bounds how many trials can run at once; where neither sampler nor scheduler looks back, nothing waits. Results taken
from earlier runs are the first trials of the study, and every other trial sees all of them.

Where the experiment has several conditions, every configuration is run under each of them (`conditions.py`): trials are
stopped by what trials under the same condition did, and samplers see each configuration once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtune.decisions import expected_improvement, own_sampler
from fedtune.decisions.conditions import Crossed, merged, without
from fedtune.decisions.early_stopping import History, Later, Never, Rule, rule
from fedtune.decisions.known_points import KnownPoints, Point
from fedtune.decisions.optuna_samplers import EI, SAMPLERS, ask, make_sampler, seen_by_sampler
from fedtune.decisions.own_sampler import Propose
from fedtune.decisions.sampling import generator
from fedtune.execution.outcome import curve, damaged, outcome
from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment
    from search_spaces.space import Space
    from trainables.tune import Ending


class StopRules:
    """The rules of one search. What is asked of it with the same trials is answered in the same way."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment

    def rule(self, known: Sequence[FrozenTrial]) -> Rule:
        """The rule of a trial that may look at the `known` ones, which have ended."""
        e = self._experiment
        if e.scheduler == "none":
            return Never()
        histories = [self.history(trial) for trial in known]
        return rule(e.scheduler, histories, rounds=e.rounds, grace=e.grace, reduction=e.reduction_factor)

    def history(self, trial: FrozenTrial) -> History:
        """What the rules read of a trial that has ended."""
        return History(int(trial.user_attrs.get("rounds", 0)), self._signed(curve(trial)))

    def _signed(self, measured: Mapping[int, Sequence[float]]) -> dict[int, tuple[float, ...]]:
        """Turned so that larger is better."""
        signs = self._experiment.signs
        return {r: tuple(s * v for s, v in zip(signs, values, strict=True)) for r, values in measured.items()}


@dataclass(frozen=True)
class Proposal:
    """A trial to be run: its number in the study, its searched values by key, its stop rule."""

    number: int
    values: Mapping[str, Value]
    rule: Rule
    #: What it is simulated over.
    seeds: tuple[int, ...]
    resumed: bool
    #: Cores and GPUs it goes on with after having run out of memory; None is the search's usual share.
    share: tuple[float, float] | None


class Home(NamedTuple):
    """Where a trial belongs: its run and its number there."""

    folder: Path
    experiment: Experiment
    space: Space
    number: int


class TrialQueue:
    """The trials of one run: those that have ended, those that run, and the next one. One process at a time holds one
    (`fedtune.record.run_directory.lock`)."""

    def __init__(self, folder: Path, experiment: Experiment, space: Space, study: StudyFile | None = None) -> None:
        """`study`: in place of the one in `folder`, for a search that is replayed rather than run."""
        from optuna.trial import TrialState

        self.folder, self.experiment, self.space = folder, experiment, space
        self._study = StudyFile(folder) if study is None else study
        self._signs = [1.0 if METRICS[name].direction == "maximize" else -1.0 for name in experiment.metric]
        self._points = KnownPoints(experiment, space)
        self._crossed = Crossed.of(experiment, space)
        expected_improvement.check(space.search)
        name = experiment.sampler
        self._own = None if name in SAMPLERS else own_sampler.load(name)
        #: By condition: early values and their order under one say nothing of another.
        self._stop_rules = StopRules(self.experiment)
        self._trials: dict[int, FrozenTrial] = {t.number: t for t in self._study.trials()}
        self._reported = {number: curve(trial) for number, trial in self._trials.items()}
        #: Trials to go on with, oldest first, before anything new: left running by a driver that ended, or put back
        #: here.
        self._waiting = sorted(number for number, trial in self._trials.items() if trial.state == TrialState.RUNNING)

    # -- proposing -------------------------------------------------------------------------------------------------

    @property
    def started(self) -> int:
        """Trials in the study, whatever became of them."""
        return len(self._trials)

    @property
    def exhausted(self) -> bool:
        """Whether every trial of the budget has been proposed."""
        return not self._waiting and self.started >= self.experiment.trials

    @property
    def finished(self) -> bool:
        """Whether every trial of the budget has ended."""
        return self.exhausted and all(trial.state.is_finished() for trial in self._trials.values())

    def trials(self) -> list[FrozenTrial]:
        """All trials in order, as last seen or written here."""
        return [self._trials[number] for number in sorted(self._trials)]

    def home(self, number: int) -> Home:
        """Where trial `number` belongs."""
        return Home(self.folder, self.experiment, self.space, number)

    @property
    def folders(self) -> list[Path]:
        """The run directories that this queue's trials belong to."""
        return [self.folder]

    def damaged(self) -> list[int]:
        """The trials that have ended and are to be computed again (`fedtune.execution.outcome`)."""
        return damaged(self.folder, self.experiment, self.trials())

    def propose(self) -> Proposal | None:
        """The next trial; None while it has to wait for others, or when there is none left (`exhausted`)."""
        if self.exhausted:
            return None
        resumed = bool(self._waiting)
        number = self._waiting[0] if resumed else self.started
        known = self._known(number)
        if known is None:
            return None
        if resumed:
            self._waiting.pop(0)
        else:
            self._create(number, known)
            if number not in self._trials:
                return None
        values = self.space.values(self._trials[number].params)
        rule = self._rule(number, known)
        return Proposal(number, values, rule, self._seeds(number), resumed, self._share(number))

    @property
    def waiting(self) -> int | None:
        """The trial to go on with before anything new."""
        return self._waiting[0] if self._waiting else None

    def next_share(self) -> tuple[float, float] | None:
        """The share that the next proposal will ask for, where it is not the usual one."""
        return self._share(self._waiting[0]) if self._waiting else None

    def _share(self, number: int) -> tuple[float, float] | None:
        found = self._trials[number].user_attrs.get("share")
        return None if found is None else (float(found[0]), float(found[1]))

    def _known(self, number: int) -> list[FrozenTrial] | None:
        """The trials that trial `number` may look at; None while one of them still runs."""
        if not self.experiment.looks_back:
            return []
        known = [self._trials[n] for n in range(self.experiment.seen(number))]
        return known if all(trial.state.is_finished() for trial in known) else None

    def _seeds(self, number: int) -> tuple[int, ...]:
        return self.experiment.trial_seeds(number)

    def _rule(self, number: int, known: Sequence[FrozenTrial]) -> Rule:
        here = self.space.condition_of(self._trials[number].params)
        made = self._stop_rules.rule(self._under(here, known))
        before = self._trials[number].user_attrs.get(run_folder.WENT_ON)
        return Later(before, made) if isinstance(before, int) else made

    def _under(self, condition: Mapping[str, Value], trials: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
        """Those of `trials` that are under this condition."""
        return [trial for trial in trials if self.space.condition_of(trial.params) == condition]

    def _condition(self, number: int) -> dict[str, Value]:
        """The condition that trial `number` is under; a grid's cells hold theirs."""
        point = self._points.of(number, 0) if self.experiment.sampler == "grid" and self._crossed.several else None
        return self._crossed.condition(number) if point is None else self.space.condition_of(point.values)

    def _create(self, number: int, known: Sequence[FrozenTrial]) -> None:
        """Asks the sampler and writes the trial, running, in one transaction. Under a further condition the
        configuration is that of the first one."""
        first = self._crossed.first(number)
        if first < number:
            proposed, origin = self._trials[first], str(self._trials[first].user_attrs.get("from", ""))
        else:
            proposed, origin = self._asked(number, self._crossed.place(number), known)
        # A final run's seed belongs to the trial; a search's seeds are the experiment's.
        user: dict[str, Any] = {"seed": self.experiment.seeds[number]} if self.experiment.kind == "run" else {}
        self._add(number, proposed, user | ({"from": origin} if origin else {}))

    def _asked(self, number: int, place: int, known: Sequence[FrozenTrial]) -> tuple[FrozenTrial, str]:
        """What trial `number` is to be, the configuration at `place`, and where its values come from (empty: the
        sampler)."""
        point = self._point(number, place, known)
        if point is None and self.experiment.sampler == EI:
            return self._promising(number, known), ""
        if point is None and self._own is not None:
            return self._own_proposal(self._own, number, known), ""
        seen = [trial for trial in self._shown(known) if trial is not None]
        sampler = self._sampler(number, is_known=point is not None)
        values = None if point is None else point.values
        proposed = ask(sampler, self.experiment.metric, seen, self.space, values)
        return proposed, "" if point is None else point.origin

    def _own_proposal(self, propose: Propose, number: int, known: Sequence[FrozenTrial]) -> FrozenTrial:
        """What a sampler of the user's own proposes for trial `number`."""
        name, rng = self.experiment.sampler, generator(self.experiment.seed, number, "own sampler")
        return own_sampler.proposed(propose, name, self.space, self._configurations(known), self._signs, rng)

    def _configurations(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """The finished trials; of one that ran under several conditions each configuration once, without these."""
        seen = [t for t in self._shown(known) if t is not None] if self._crossed.several else known
        return [without(trial, self.space.vary.keys()) for trial in seen]

    def _promising(self, number: int, known: Sequence[FrozenTrial]) -> FrozenTrial:
        """What promises most, for trial `number`."""
        seen = self._configurations(known)
        had = [without(self._trials[n], self.space.vary.keys()).params for n in range(number)]
        return expected_improvement.proposed(self.space, seen, had, self._signs[0], self.experiment.seed, number)

    def _point(self, number: int, place: int, known: Sequence[FrozenTrial]) -> Point | None:
        """The values of trial `number`, the configuration at `place`, where they are known before a sampler is
        asked."""
        return self._points.of(place, self._crossed.place(self.experiment.seen(number)))

    def _add(self, number: int, proposed: FrozenTrial, user: Mapping[str, Any]) -> None:
        """Writes trial `number`, which runs from now on."""
        import optuna

        condition = self._condition(number)
        varied = {key: self.space.vary[key].distribution() for key in condition}
        self._study.add(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=proposed.params | condition,
                distributions=proposed.distributions | varied,
                system_attrs={key: value for key, value in proposed.system_attrs.items() if key != "fixed_params"},
                user_attrs=dict(user),
            )
        )
        self._remember(number)

    def _sampler(self, number: int, *, is_known: bool) -> BaseSampler:
        """Whom to ask for trial `number`. Where its values are known, what a sampler proposes is thrown away, so a
        cheap one is asked; only NSGA-II is to note to which generation the trial belongs."""
        e = self.experiment
        if is_known and e.sampler != "nsga2":
            return make_sampler("random", e.seed, number)
        return make_sampler(e.sampler, e.seed, number, [self._trials[n] for n in range(min(number, e.taken))])

    def _shown(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial | None]:
        """The finished trials as this search's sampler is to see them."""
        if self._crossed.several:
            return list(merged(known, self._crossed, self.experiment, self.space.vary.keys()))
        return seen_by_sampler(known, self._signs, completes_only=self.experiment.sampler in ("gp", "nsga2"))

    # -- remembering -----------------------------------------------------------------------------------------------

    def report(self, number: int, round_: int, values: Sequence[float] | None) -> None:
        """A round's values. Reporting a round twice, an unmeasured one, or one of a trial that is computed again after
        its end changes nothing. (Optuna keeps curves for one metric only; those of several are written with the trial's
        end.)"""
        if values is None or round_ in self._reported[number] or self._trials[number].state.is_finished():
            return
        if len(values) == 1:
            self._study.set_value(number, round_, float(values[0]))
        self._reported[number][round_] = tuple(values)

    def finish(self, number: int, ending: Ending) -> None:
        """Writes what became of a trial. One that was interrupted stays to be resumed; one that has ended stays as it
        is."""
        if self._trials[number].state.is_finished():
            return
        if len(self._signs) == 1:
            for round_, values in sorted(ending.curve.items()):
                self.report(number, round_, values)
        state, final, attributes = outcome(ending, self.experiment.metric)
        for key, value in attributes.items():
            self._study.set_attribute(number, key, value)
        if state is not None:
            self._study.end(number, state, final)
        self._remember(number)

    def take(self, number: int, ending: Ending) -> None:
        """Writes trial `number`, whose result was taken from an earlier run. Those before it are there already."""
        if number == self.started:
            self._create(number, (self._known(number) or []) if self.experiment.sampler == "nsga2" else [])
        self.finish(number, ending)
        self._waiting = [other for other in self._waiting if other != number]

    def again(self, number: int, share: tuple[float, float] | None) -> None:
        """Puts a trial that could not go on back in front of those to come, with `share` of the machine (None: as
        before). The study never sees a failure; and of one that had ended, and is computed again, nothing at all."""
        if share is not None and not self._trials[number].state.is_finished():
            self._study.set_attribute(number, "share", list(share))
            self._remember(number)
        self._waiting = sorted({*self._waiting, number})

    def mark(self, number: int, reason: str) -> None:
        """Notes why a trial that did not end stands still."""
        self._study.set_attribute(number, "stop_reason", reason)

    def _remember(self, number: int) -> None:
        trial = self._study.trials()[number]
        self._trials[number] = trial
        self._reported[number] = curve(trial)
