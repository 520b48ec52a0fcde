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
    "fedtune/trials/early_stopping.py",
    "fedtune/trials/stop_rules.py",
    "fedtune/trials/queue.py",
    "fedtune/trials/asked.py",
    "fedtune/trials/endings.py",
    "fedtune/trials/shown.py",
    "fedtune/trials/race_queue.py",
    "fedtune/trials/racing.py",
    "fedtune/trials/improvement.py",
    "fedtune/trials/drawn.py",
    "fedtune/trials/crossed.py",
    "fedtune/trials/known_points.py",
    "fedtune/trials/taken.py",
    "fedtune/trials/samplers.py",
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
    "tests/fedtune/trials/test_early_stopping.py",
    "tests/fedtune/trials/test_grace.py",
    "tests/fedtune/trials/test_audit.py",
    "tests/fedtune/trials/test_crossed.py",
    "tests/fedtune/trials/test_damaged.py",
    "tests/fedtune/trials/test_drawn.py",
    "tests/fedtune/trials/test_improvement.py",
    "tests/fedtune/trials/test_known_points.py",
    "tests/fedtune/trials/test_more_rounds.py",
    "tests/fedtune/trials/test_prior.py",
    "tests/fedtune/trials/test_queue.py",
    "tests/fedtune/trials/test_race_queue.py",
    "tests/fedtune/trials/test_raced.py",
    "tests/fedtune/trials/test_racing.py",
    "tests/fedtune/trials/test_shown.py",
    "tests/fedtune/trials/test_taken.py",
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
