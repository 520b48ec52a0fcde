"""What dead sessions leave is cleared away by the next command that writes there, and nothing else is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from search_spaces import leftovers, run_folder
from tests.faults import outcome
from tests.faults.registry import EQUAL, case
from tests.faults.scene import Scene, begun

HEX = "0123456789abcdef"


def left(path: Path) -> Path:
    """What a killed process leaves of a file that it was writing."""
    made = path.with_name(leftovers.temporary_name(path.name))
    made.write_text("half of it")
    return made


def left_run(folder: Path) -> Path:
    """What a killed process leaves of a run directory."""
    made = folder.with_name(leftovers.temporary_name(folder.name))
    (made / run_folder.TRIALS).mkdir(parents=True)
    (made / run_folder.EXPERIMENT).write_text("half of it")
    return made


def cleared(scene: Scene, ours: list[Path], others: list[Path], command: Callable[[], outcome.Done]) -> str | None:
    """None where a command ended well, removed all of `ours` and none of `others`."""
    done = command()
    if done.code != 0:
        return outcome.told(done) or done.err
    wrong = [path for path in ours if os.path.lexists(path)]
    if wrong:
        return f"left behind {', '.join(path.name for path in wrong)}"
    wrong = [path for path in others if not os.path.lexists(path)]
    return f"removed {', '.join(path.name for path in wrong)}" if wrong else None


def alike(folder: Path, name: str, secret: Path) -> list[Path]:
    """Files of a user that look like ours: another name, a link, a folder."""
    made = [folder / f".{name}.4711", folder / f".{name}.{HEX[1:]}.tmp", folder / f"{name}.{HEX}.tmp"]
    for path in made:
        path.write_text("mine")
    link, place = (folder / f".{name}.{digit * 16}.tmp" for digit in "ab")
    link.symlink_to(secret)
    place.mkdir()
    (place / "notes").write_text("mine")
    return [*made, link, place]


@case("leftovers of an export", "`export` to a file which a killed `export` was writing.", EQUAL)
def export(scene: Scene) -> str:
    scene.cut()
    secret = scene.folder / "secret"
    secret.write_text("secret")
    target = scene.folder / "out" / "best.yaml"
    target.parent.mkdir()
    others = [*alike(target.parent, target.name, secret), left(target.with_name("other.yaml"))]
    ours = [left(target)]
    other = cleared(scene, ours, others, lambda: scene.start("export", scene.run, "-o", target).wait())
    return other or ("changed a file elsewhere" if secret.read_text() != "secret" else scene.resumed())


@case("leftovers of a report", "`report` where a killed `report` was writing its page.", EQUAL)
def report(scene: Scene) -> str:
    scene.cut()
    ours = [left(scene.run / run_folder.REPORT)]
    return cleared(scene, ours, [], lambda: scene.start("report", scene.run).wait()) or scene.resumed()


@case("leftovers of a session", "`resume` where a killed session was writing files of the run and of a trial.", EQUAL)
def session(scene: Scene) -> str:
    scene.cut()
    trial = begun(scene.run)[0]
    ours = [left(scene.run / name) for name in (run_folder.EXPERIMENT, run_folder.PROVENANCE, run_folder.REPORT)]
    ours += [left(trial / name) for name in (run_folder.CONFIG, run_folder.ROUNDS, run_folder.CHECKPOINT)]
    ours.append(left(ours[-1]))  # a checkpoint is written in whole beside a file that is itself temporary
    return cleared(scene, ours, [], lambda: scene.resume().wait()) or scene.resumed()


@case("leftovers of a search", "`search` where killed ones were making run directories; one of them still does.", EQUAL)
def search(scene: Scene) -> str:
    runs = scene.run.parent
    runs.mkdir()
    secret = scene.folder / "secret"
    secret.write_text("secret")
    ours = [left_run(runs / "run"), left_run(runs / "another")]
    held, living = leftovers.new_folder(runs / "living")
    try:
        others = [living, *alike(runs, "run", secret)]
        other = cleared(scene, ours, others, lambda: scene.search().wait())
    finally:
        os.close(held)
    return other or scene.resumed()


@case("leftovers of Ray", "`resume` where a killed search left its private folder among the temporary files.", EQUAL)
def ray(scene: Scene) -> str:
    temporary = Path(scene.stock.environment["TMPDIR"])
    before = set(temporary.iterdir())
    session = scene.search()
    scene.at_rows(session, 0.1, 0.4)
    session.kill()
    scene.stock.end()
    ours = [path for path in temporary.iterdir() if path not in before and path.name.startswith("fedtune-")]
    if not ours:
        return "a killed search left nothing, so this case shows nothing"
    strange = temporary / "fedtune-ray-of-mine"
    strange.mkdir()
    other = cleared(scene, ours, [strange], lambda: scene.resume().wait())
    strange.rmdir()
    return other or scene.resumed()
