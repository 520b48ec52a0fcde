"""What became of the mutants, kept line by line, so that a run that is ended goes on where it was."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tests import tiers
from tests.mutation.mutant import Mutant
from tests.mutation.processes import Answer
from tests.mutation.targets import FOLDER, ROOT

#: Statuses that say that a mutant was noticed.
NOTICED = ("killed", "timeout", "died")


def digest() -> str:
    """Of everything that a result rests on: packages, tests and their tiers."""
    found = hashlib.sha256()
    for folder in ("trainables", "fedtune", "search_spaces", "analysis", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    found.update(tiers.KEPT.read_bytes())
    return found.hexdigest()[:16]


class Results:
    """Answers by mutant. `keep` takes over answers of another state of the code, those of survivors excepted."""

    def __init__(self, path: Path, *, keep: bool = False) -> None:
        self.path, self.keep, self.digest = path, keep, digest()
        self.answers: dict[str, Answer] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self.read()

    def read(self) -> None:
        """Also what another process has written since."""
        if self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                if row["digest"] == self.digest or (self.keep and row["status"] in NOTICED):
                    self.answers[row["id"]] = row

    def tell(self, mutant: Mutant, answer: Answer) -> None:
        """Keeps an answer, here and in the file."""
        row = {"id": mutant.id, "digest": self.digest, **answer}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.answers[mutant.id] = row


@dataclass(frozen=True)
class Listed:
    """A survivor that a person has looked at. `equivalent`: the change changes nothing that can be seen."""

    file: str
    function: str
    line: str
    change: str
    reason: str
    equivalent: bool = False

    def means(self, mutant: Mutant) -> bool:
        """Every equal change of equal lines of the function is meant."""
        return (self.file, self.function, self.line, self.change) == (
            mutant.file,
            mutant.function,
            mutant.text,
            mutant.change,
        )


@dataclass(frozen=True)
class Survivors:
    """`survivors.toml`."""

    listed: list[Listed] = field(default_factory=list)

    @staticmethod
    def read(path: Path = FOLDER / "survivors.toml") -> Survivors:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", [])
        return Survivors([Listed(**row) for row in rows])

    def of(self, mutant: Mutant) -> Listed | None:
        return next((listed for listed in self.listed if listed.means(mutant)), None)
