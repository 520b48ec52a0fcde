"""What the light packages load. (That rooms import downwards only, import-linter says: `make lint`.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("package", ["search_spaces", "analysis"])
def test_the_light_packages_load_neither_torch_nor_ray(package: str) -> None:
    """Also not through somebody else's package, which import-linter does not follow."""
    code = (
        f"import importlib, pkgutil, sys, {package} as p\n"
        "for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.'): importlib.import_module(m.name)\n"
        "print(sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
