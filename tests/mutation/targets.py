"""Which files are mutated, and which tests may be asked."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent

#: Patterns below the root, the most important files first.
FILES = (
    "trainables/building_blocks/*.py",
    "trainables/methods/*.py",
    "trainables/local.py",
    "trainables/generators/*.py",
    "trainables/kernels/*.py",
    "trainables/federation.py",
    "trainables/params.py",
    "trainables/method.py",
    "trainables/wire.py",
    "trainables/rng.py",
    "trainables/simulation/executors.py",
    "fedtune/decisions/early_stopping.py",
    "fedtune/execution/queue.py",
    "fedtune/execution/queue.py",
    "fedtune/decisions/optuna_samplers.py",
    "fedtune/decisions/optuna_samplers.py",
    "fedtune/execution/race_queue.py",
    "fedtune/decisions/race.py",
    "fedtune/decisions/expected_improvement.py",
    "fedtune/decisions/sampling.py",
    "fedtune/decisions/conditions.py",
    "fedtune/decisions/known_points.py",
    "fedtune/execution/imported_trials.py",
    "fedtune/decisions/optuna_samplers.py",
    "fedtune/planning/waiting.py",
    "analysis/estimate/*.py",
    "search_spaces/dimension.py",
    "search_spaces/parameter.py",
    "search_spaces/space.py",
    "search_spaces/space_file.py",
    "search_spaces/space_entries.py",
)

#: The tests that run in the process itself: one that starts another process does not see the mutant.
TESTS = (
    "tests/trainables/building_blocks",
    "tests/trainables/kernels",
    "tests/trainables/models",
    "tests/trainables/methods",
    "tests/trainables/data",
    "tests/trainables/generators",
    "tests/trainables/simulation",
    "tests/contracts",
    "tests/analysis/estimate",
    "tests/fedtune/planning/test_conditions.py",
    "tests/fedtune/planning/test_plan.py",
    "tests/fedtune/planning/test_waiting.py",
    "tests/fedtune/decisions/test_early_stopping.py",
    "tests/fedtune/decisions/test_conditions.py",
    "tests/fedtune/execution/test_outcome.py",
    "tests/fedtune/decisions/test_sampling.py",
    "tests/fedtune/decisions/test_expected_improvement.py",
    "tests/fedtune/decisions/test_known_points.py",
    "tests/fedtune/execution/test_extend_rounds.py",
    "tests/fedtune/decisions/test_prior.py",
    "tests/fedtune/execution/test_queue.py",
    "tests/fedtune/execution/test_race_queue.py",
    "tests/fedtune/execution/test_raced.py",
    "tests/fedtune/decisions/test_race.py",
    "tests/fedtune/decisions/test_shown.py",
    "tests/fedtune/execution/test_imported_trials.py",
    "tests/search_spaces",
)

#: Of these, the ones that mostly compare the code with itself: they notice less, so they are asked last.
LAST = ("tests/trainables/simulation", "tests/contracts")

#: Those that run on another device than the processor.
DEVICE = "tests/contracts/test_pretend_device"


def files() -> list[str]:
    """The files that are mutated, as paths below the root with `/`."""
    found = [path for pattern in FILES for path in sorted(ROOT.glob(pattern))]
    return [path.relative_to(ROOT).as_posix() for path in found if path.name != "__init__.py"]


def module_of(file: str) -> str:
    """`trainables/params.py` is imported as `trainables.params`."""
    return file.removesuffix(".py").replace("/", ".")
