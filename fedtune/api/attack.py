"""`fedtune.attack`: what a curious server can rebuild of clients' images from what a configuration's clients upload.

To find out what is uploaded, the configuration is run until both parts of the model have been seen or its rounds are
over. Each round does as little work as possible (one step instead of many), because names and shapes of uploads do not
depend on it. Then the attack of `trainables.simulation.attack` runs on a few images. Nothing is trained to its end, and
no record is changed.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.runs import load_run
from fedtune import option
from fedtune.api.export import export
from fedtune.console import progress
from fedtune.console.busy import busy
from fedtune.option import fields_of
from fedtune.options import AttackRequest, SearchRequest
from fedtune.planning.configuration import load
from fedtune.planning.settings import configuration
from fedtune.record.experiment import Experiment
from search_spaces import run_folder
from search_spaces.errors import UserError, sentence
from search_spaces.files import cannot_write, given, replace
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from trainables.simulation.attack import Leak

#: Lengths of local and server work, by how their keys end.
_LENGTHS = ("_steps", "_iters", "_epochs")
_BATCH = 8


@dataclass(frozen=True)
class Attack:
    """What an attack found, and where it was written."""

    method: str
    title: str
    dataset: str
    seed: int
    #: What clients upload: `features` and `head` are the parts of the model, the rest are further things by name.
    sent: tuple[str, ...]
    #: What stands in for a part that is not uploaded: `random` weights, or `searched` ones.
    private: str
    steps: int
    leaks: tuple[Leak, ...]
    class_names: tuple[str, ...]
    #: Mean over the images, in dB.
    psnr: float
    picture: Path
    page: Path

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json, without the images; a mismatch that is not a finite number is null."""
        images = [
            {
                "client": leak.client,
                "class": self.class_names[leak.label],
                "psnr": leak.psnr,
                "mismatch": leak.mismatch if math.isfinite(leak.mismatch) else None,
            }
            for leak in self.leaks
        ]
        return {
            "method": self.method,
            "dataset": self.dataset,
            "seed": self.seed,
            "sent": list(self.sent),
            "private": self.private,
            "steps": self.steps,
            "psnr": self.psnr,
            "images": images,
            "files": [str(self.picture), str(self.page)],
        }


@dataclass(frozen=True)
class _Target:
    method: str
    values: Mapping[str, Value]
    seed: int
    data_dir: str | None
    #: Where the picture goes unless told otherwise.
    picture: Path
    #: The run directory, and the trial, that keep what is found.
    run: Path | None = None
    trial: int = 0


@fields_of(AttackRequest)
def attack(request: AttackRequest) -> Attack:
    """Attacks `images` images of the clients of `target`: a run directory (its best trial, or `trial`), a file that
    `fedtune export` wrote, or a method's name.

    `steps` and `private` replace the configuration's attack_steps and attack_private. The picture grid goes to
    `RUN/attack.png` (beside a file: NAME-attack.png), or to `output`, and the page beside it. A run directory also
    keeps the images, for reports and comparisons of several runs. Raises `UserError`."""
    problems, output = list(option.problems(request)), request.output
    picture = None if output is None else given(output, "-o").resolve()
    if picture is not None and (picture.suffix != ".png" or picture.is_dir()):
        problems.append(sentence("output", "a file ending in .png", str(output), "-o"))
    if problems:
        raise UserError(*problems)
    with busy(progress.style(request.plain, request.quiet)) as say:
        say("reading the configuration")
        found = _target(request.target, request.trial, request.seed)
        changes = {"attack_steps": request.steps, "attack_private": request.private}
        values = dict(found.values) | {key: value for key, value in changes.items() if value is not None}
        made, simulation = _carry_out(found, values, request.images, request.data_dir or found.data_dir, say)
        say("drawing the pictures")
        return _finish(found, made, simulation, picture or found.picture)


def _carry_out(
    found: _Target, values: Mapping[str, Value], images: int, data_dir: str | None, say: Any
) -> tuple[list[Leak], Any]:
    import torch

    from trainables.simulation import attack
    from trainables.simulation.rounds import Simulation

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the network is far too small for more
    try:
        simulation = Simulation(
            found.method, shortened(found.method, values), found.seed, torch.device("cpu"), data_dir
        )
        rounds = simulation.settings.rounds
        while simulation.progress.round < rounds and not set(attack.PARTS) <= set(simulation.progress.sent):
            say(f"finding out what clients upload, round {simulation.progress.round + 1} of {rounds}")
            simulation.exchange()
        steps = simulation.settings.attack_steps

        def watch(victim: int, step: int, mismatch: float) -> None:
            say(f"attacking image {victim + 1} of {images}, step {step} of {steps}, mismatch {mismatch:.2g}")

        say(f"attacking image 1 of {images}")
        return simulation.leaks(images, watch), simulation
    finally:
        torch.set_num_threads(threads)


def _finish(found: _Target, leaks: list[Leak], simulation: Any, picture: Path) -> Attack:
    from analysis.report.attack import RebuiltImage as Pair
    from analysis.report.attack import write_page, write_png
    from trainables.simulation.attack import mean_psnr

    settings = simulation.settings
    names = tuple(simulation.data.class_names)
    dataset = Path(str(settings.dataset)).name
    made = Attack(
        found.method,
        simulation.method.title,
        dataset,
        found.seed,
        simulation.progress.sent,
        settings.attack_private,
        settings.attack_steps,
        tuple(leaks),
        names,
        mean_psnr(leaks),
        picture,
        picture.with_suffix(".html"),
    )
    pairs = [
        Pair(
            leak.original.numpy(), leak.recovered.numpy(), leak.psnr, f"client {leak.client}, class {names[leak.label]}"
        )
        for leak in leaks
    ]
    heading = f"{made.title} on {made.dataset}: a deep-leakage attack, {made.psnr:.1f} dB on average"
    write_png(pairs, heading, made.picture)
    write_page(pairs, heading, facts(made), made.page)
    if found.run is not None:
        _keep(leaks, found.run / run_folder.ATTACK, found.trial)
    return made


def _keep(leaks: list[Leak], path: Path, trial: int) -> None:
    """Writes the images into the run directory, where several runs can be set side by side."""
    import numpy as np

    def pixels(images: list[Any]) -> Any:
        return np.stack([np.rint(image.numpy() * 255).astype(np.uint8) for image in images])

    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        original=pixels([leak.original for leak in leaks]),
        recovered=pixels([leak.recovered for leak in leaks]),
        psnr=np.array([leak.psnr for leak in leaks], dtype=np.float64),
        label=np.array([leak.label for leak in leaks], dtype=np.int64),
        client=np.array([leak.client for leak in leaks], dtype=np.int64),
        trial=np.array(trial, dtype=np.int64),
    )
    try:
        replace(path, buffer.getvalue())
    except OSError as error:
        raise cannot_write(path, error, "Make room on the disk, or make the run directory writable.") from error


def facts(made: Attack) -> list[tuple[str, str]]:
    """What the attacker knows and does, in words."""
    known = [part for part in ("features", "head") if part in made.sent]
    unknown = [part for part in ("features", "head") if part not in made.sent]
    instead = {"random": "random weights stand in for it", "searched": "the attack searches for its weights as well"}[
        made.private
    ]
    found = [
        ("clients upload", ", ".join(made.sent) or "nothing"),
        ("the attacker knows", f"the gradient of {' and '.join(known)}" if known else "nothing"),
    ]
    if unknown and known:
        found.append((f"unknown {unknown[0]}", instead))
    return found + [
        ("steps", f"at most {made.steps}, of L-BFGS"),
        ("seed", str(made.seed)),
        ("mean PSNR", f"{made.psnr:.2f} dB; a low value means that little can be rebuilt"),
    ]


def shortened(method: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """`values` with the least work per round: lengths of the method's own at 1, small batches, no passes over whole
    data sets."""
    from search_spaces.parameter import parameters
    from trainables import registry

    found = dict(values)
    for key, parameter in parameters(registry.method(method).Config).items():
        value = values.get(key, parameter.default)
        if parameter.kind != "integer" or not isinstance(value, int):
            continue
        least = (
            0
            if key == "local_epochs"
            else 1
            if key.endswith(_LENGTHS)
            else _BATCH
            if key.endswith("batch_size")
            else value
        )
        found[key] = min(value, max(least, int(parameter.low or 0)))
    return found


def _target(target: str | Path, trial: int | None, seed: int | None) -> _Target:
    path = given(target)
    if path.is_dir():
        data = export(path, trial=trial)
        folder = path.resolve()
        experiment = Experiment.read(folder)
        number = data["provenance"]["trial"]
        seeds = data["provenance"]["seeds"] if experiment.single else experiment.trial_seeds(number)
        return _Target(
            data["method"],
            data["parameters"],
            seeds[0] if seed is None else seed,
            experiment.data_dir,
            folder / "attack.png",
            folder,
            number,
        )
    if trial is not None:
        raise UserError(sentence("trial", "left out where the configuration is not a run directory", trial, "--trial"))
    from trainables import registry

    if registry.is_method(method := registry.named(target)):
        problems: list[str] = []
        values = configuration(SearchRequest(method), problems)
        if problems:
            raise UserError(*problems)
        return _Target(method, values, seed or 0, None, Path(f"{method}-attack.png").resolve())
    if not path.suffix and not path.exists():
        load_run(path)  # says which runs there are
    method, exported, data = load(path)
    searched = (data.get("provenance") or {}).get("seeds") or [0]
    return _Target(
        method,
        exported,
        int(searched[0]) if seed is None else seed,
        None,
        path.resolve().with_name(f"{path.stem}-attack.png"),
    )
