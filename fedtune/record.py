"""Writes the run directory described in `analysis.schema`: creation, lock, study, provenance.

A run directory is created under a temporary name and renamed when it is complete, so a command that fails or is killed
leaves either a whole run or none. All later writes are whole files swapped in place, lines appended to a trial's log,
or transactions of the study.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import yaml

from analysis import machines, schema
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import optuna

Direction = Literal["maximize", "minimize"]

PACKAGES = ("fedtune", "ray", "optuna", "torch", "torchvision", "numpy", "scikit-learn")


def write_text(path: Path, text: str) -> None:
    """Replaces the file at once; a reader sees the old or the new text, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def write_yaml(path: Path, data: Mapping[str, Any]) -> None:
    """YAML in the order given."""
    write_text(path, yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=120))


def write_json(path: Path, data: object) -> None:
    """Indented JSON."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def cannot_write(path: Path, error: OSError) -> UserError:
    """The sentence for a full, read-only or forbidden disk."""
    return UserError(f"{path} cannot be written: {error.strerror or error}. Free some space, or choose another place with --runs-dir.")


def create(folder: Path, experiment: Mapping[str, Any], space: Mapping[str, Any], provenance: Mapping[str, Any], directions: Sequence[Direction]) -> None:
    """Makes the run directory `folder` with its frozen request, its space, its provenance and an empty study.

    Raises `UserError` where the folder exists or the disk refuses."""
    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        (temporary / schema.TRIALS).mkdir()
        temporary.chmod(0o755)
        write_yaml(temporary / schema.EXPERIMENT, experiment)
        write_json(temporary / schema.SPACE, space)
        write_json(temporary / schema.PROVENANCE, provenance)
        _create_study(temporary, folder.name, directions)
        if folder.exists():
            raise exists(folder)
        temporary.rename(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary, ignore_errors=True)


def exists(folder: Path) -> UserError:
    """The sentence for a run name that is taken."""
    return UserError(f"A run named {folder.name!r} exists already ({folder}). Continue it with `fedtune resume {folder}`, "
                     f"lengthen it with `fedtune extend {folder} --trials N`, or choose another --name.")


def _create_study(folder: Path, name: str, directions: Sequence[Direction]) -> None:
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with quiet_optuna():
            storage = _storage(folder / schema.STUDY)
            optuna.create_study(study_name=name, storage=storage, directions=list(directions))
            storage.engine.dispose()
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        raise UserError(f"{folder.parent} cannot be written: {_first_line(error)}. Free some space, or choose another place with --runs-dir.") from error


def open_study(folder: Path) -> optuna.Study:
    """The study of a run. Raises `UserError` where there is none or it cannot be read."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    path = folder / schema.STUDY
    if not path.is_file():
        raise UserError(f"{folder} is not a run: it holds no {schema.STUDY}.")
    try:
        with quiet_optuna():
            return optuna.load_study(study_name=None, storage=_storage(path), sampler=optuna.samplers.RandomSampler(0), pruner=optuna.pruners.NopPruner())
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, ValueError, KeyError) as error:
        raise UserError(f"{path} is not a study that can be read: {_first_line(error)}.") from error


def _storage(path: Path) -> optuna.storages.RDBStorage:
    import sqlite3

    import optuna
    from sqlalchemy import event
    from sqlalchemy.pool import QueuePool

    def connect() -> sqlite3.Connection:
        # Opened here: what SQLAlchemy makes of a `?`, `%` or blank in a path changed between its versions.
        # The time-out lets `fedtune status`, a report or optuna-dashboard read while the driver writes.
        return sqlite3.connect(path.resolve(), timeout=60, check_same_thread=False)

    storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect, "poolclass": QueuePool})
    event.listen(storage.engine, "connect", _unsynchronised)
    storage.engine.dispose()
    return storage


def engine(study: optuna.Study) -> Any:
    """The SQLAlchemy engine below a study that `open_study` opened."""
    storage: Any = study._storage
    return getattr(storage, "_backend", storage).engine


def _unsynchronised(connection: Any, _: object) -> None:
    """A transaction waits for the disk (10 ms, some 30 times per trial) only where `sync` asks for it. SQLite's promise against
    killed processes does not need that; what a power cut could cost is what came after the last `sync`."""
    connection.execute("PRAGMA synchronous=OFF")


def sync(folder: Path) -> None:
    """Puts the study on the disk."""
    descriptor = os.open(folder / schema.STUDY, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return str(cause).splitlines()[0].rstrip(".") if str(cause) else type(cause).__name__


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna's log lines say what the progress display says better."""
    import warnings

    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(before)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Held by the one process that drives the run; the system releases it when that process ends, however it ends."""
    try:
        file = (folder / schema.LOCK).open("a+")
    except OSError as error:
        raise cannot_write(folder / schema.LOCK, error) from error
    with file:
        if not _locked(file):
            file.seek(0)
            owner = file.read().strip()
            raise UserError(f"{folder} is being driven by another process{f' ({owner})' if owner else ''}. "
                            f"Watch it with `fedtune status {folder}`, or end that process first.")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _locked(file: IO[str]) -> bool:
    """Whether the lock could be had; tried for a moment, as a reader in `is_driven` holds it for a moment too."""
    for _ in range(10):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def is_driven(folder: Path) -> bool:
    """Whether some process holds the run's lock."""
    path = folder / schema.LOCK
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def versions() -> dict[str, str]:
    """Of Python and of the packages whose versions can change numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_revision() -> str | None:
    """The revision of the code that runs, with `+changes` where the work tree differs; None outside a repository."""
    here = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside somebody else's repository, whose revision says nothing about it.
    if git("ls-files", "--error-unmatch", str(Path(__file__).resolve())) is None:
        return None
    revision = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "fedtune", "trainables", "search_spaces", "analysis")
    return None if revision is None else revision + ("+changes" if changed else "")


def provenance(*, device: str = "cpu", **more: Any) -> dict[str, Any]:
    """What a run needs to be repeated elsewhere, and to explain a difference if it is not repeated exactly."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "versions": versions(),
        "git": git_revision(),
        "machine": machine(device),
        "device": device,
        **more,
    }


def machine(device: str = "cpu") -> dict[str, Any]:
    """Where this runs. The last digits of numbers hang on `processor`, `instructions` and `gpu` (`analysis.machines`)."""
    import torch

    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    found = {"host": socket.gethostname(), "system": platform.platform(), "processor": _processor(),
             "instructions": torch.backends.cpu.get_cpu_capability() + (f", oneDNN {limit}" if limit else ""), "cores": os.cpu_count()}
    return found | ({"gpu": torch.cuda.get_device_name()} if device == "cuda" and torch.cuda.is_available() else {})


def went_on(folder: Path) -> str | None:
    """Called before a run computes. The sentence where this is another kind of machine than it began on, or has other versions;
    the provenance then names this one too."""
    path = folder / schema.PROVENANCE
    try:
        begun = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(begun, dict):
        return None
    here = {"created": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions(), "machine": machine(str(begun.get("device", "cpu")))}
    told = machines.went_on(begun, here)
    if told and all(machines.apart(part, here) for part in machines.parts(begun)):
        write_json(path, begun | {"continued": [*begun.get("continued", []), here]})
    return told


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def read_experiment(folder: Path) -> dict[str, Any]:
    """The frozen request of a run. Raises `UserError` where `folder` is not a run of a version we read."""
    path = folder / schema.EXPERIMENT
    if not path.is_file():
        raise UserError(f"{folder} is not a run: it holds no {schema.EXPERIMENT}.")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}.") from error
    if not isinstance(data, dict) or not isinstance(data.get("version"), int):
        raise UserError(f"{path} does not say its version; it was not written by fedtune.")
    if data["version"] > schema.VERSION:
        raise UserError(f"{path} has version {data['version']} and this fedtune reads versions up to {schema.VERSION}. Update fedtune.")
    return data
