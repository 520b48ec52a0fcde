"""Python files of a user's own, which an environment variable lists, separated as in PATH: methods in FEDTUNE_METHODS,
samplers in FEDTUNE_SAMPLERS."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from search_spaces import files
from search_spaces.errors import UserError, sentence

#: What their code may raise: `sys.exit`, which a library may call as well, is an error there like any other.
RAISED = (Exception, SystemExit)


def listed(variable: str) -> list[Path]:
    """The files that the environment variable names."""
    return [Path(path) for path in os.environ.get(variable, "").split(os.pathsep) if path]


def load(path: Path, name: str, variable: str) -> ModuleType:
    """Runs the file, which `variable` names, as the module `name`. Raises `UserError` where it is no Python file, and
    whatever the file raises."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(sentence(variable, "paths of Python files", str(path)))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def beside(error: BaseException, path: Path) -> str:
    """What is said further of an error of this file: that it misses a module which lies beside it."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not name or not ((path.parent / f"{name}.py").is_file() or (path.parent / name).is_dir()):
        return ""
    fix = "write it in, or install it as a package"
    return f" A file of your own must stand alone, so {name} beside it is not found: {fix}."


def facts(path: Path) -> dict[str, str]:
    """The file's name, and the hash of its content as it is now."""
    return {"file": path.name, "hash": digest(files.read_bytes(path))}


def digest(content: bytes) -> str:
    """The hash of a file's content, as a run records it."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()
