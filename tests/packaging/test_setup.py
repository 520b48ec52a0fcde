"""Setting up: what is missing is said in a sentence, what is there is not done again."""

from __future__ import annotations

import ast
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from trainables import data
from trainables.data import fetch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The set-up's files alone, in a folder of their own."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def call(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **environment}
    )


def test_an_old_python_is_refused(checkout: Path) -> None:
    old = script(checkout / "old", 'if [ "$1" = "--version" ]; then echo "Python 3.9.1"; else exit 1; fi\n')
    done = call(checkout, "scripts/install.sh", PYTHON=str(old))
    assert done.returncode == 2 and not (checkout / ".venv").exists()
    assert done.stderr.startswith("fedtune needs Python 3.11 or newer, got Python 3.9.1.")


def test_some_of_the_golden_runs_are_made_of_both_revisions(checkout: Path) -> None:
    """Names behind an option are none that argparse takes: `make golden ONLY=race` ended at once."""
    told = call(checkout, "make", "--dry-run", "golden", "BASE=HEAD", "ONLY=race stranger").stdout
    lines = re.findall(r"^\.venv/bin/python (scripts/golden\.py record .+)$", told, re.MULTILINE)
    assert len(lines) == 2 and sum("--checkout" in line for line in lines) == 1
    for line in lines:
        done = call(checkout, sys.executable, *line.split())
        assert done.returncode == 2 and "there is no run stranger; there are race, ei, " in done.stderr


def bare(checkout: Path) -> Path:
    """A folder for PATH with what the script itself calls."""
    folder = checkout / "tools"
    folder.mkdir()
    for name in ("bash", "dirname", "env"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def test_no_system_package_is_installed_unasked(checkout: Path) -> None:
    tools, called = bare(checkout), checkout / "called"
    script(tools / "apt-get", f'echo "$@" >> {called}\n')
    script(tools / "id", "echo 0\n")  # as root
    done = call(checkout, "scripts/chromium.sh", PATH=str(tools))
    assert done.returncode == 0 and done.stdout.startswith(
        "No Chromium found, so the tests marked browser are skipped."
    )
    assert not called.exists()
    for goal in ("demo", "test", "test-slow", "test-ci", "test-nightly", "gallery"):
        assert "chromium.sh install" not in call(checkout, "make", "-n", goal).stdout, goal
    assert call(checkout, "scripts/chromium.sh", "install", PATH=str(tools)).returncode == 0
    assert called.read_text().splitlines()[-1].endswith("chromium")


def test_fashion_mnist_is_unpacked_where_it_is_looked_for_and_once(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of packages is missing at first. Nothing is installed, and nothing but the files is left."""
    tools, calls = bare(checkout), checkout / "calls"
    for name in ("id", "mkdir", "mktemp", "mv", "rm"):
        (tools / name).symlink_to(str(shutil.which(name)))
    script(
        tools / "apt-get",
        f'echo "$@" >> {calls}\ncase "$*" in\n*Lists*download*) : > dataset-fashion-mnist_1_all.deb;;\n'
        "*download*) exit 100;;\nesac\n",
    )
    monkeypatch.setenv("FEDTUNE_CACHE", str(checkout / "cache"))
    source = data.describe("fmnist")
    folder = "usr/share/datasets/fashion-mnist"
    files = " ".join(Path(path).name for path in source.files)
    script(tools / "dpkg-deb", f"mkdir -p $3/{folder}; cd $3/{folder}; for f in {files} README; do : > $f; done\n")
    text = (checkout / "scripts" / "data.sh").read_text()
    assert source.package is not None and f"package={source.package.name}\nshelf={source.package.folder}\n" in text
    # As on a machine that has no such package installed.
    (checkout / "scripts" / "data.sh").write_text(text.replace('in "$shelf" "$target"', 'in "$target"'))
    done = call(checkout, "scripts/data.sh", PATH=str(tools))
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Fashion-MNIST is in ")
    root = data.places(source)[0]
    assert sorted(fetch.present(source, root)) == sorted(path for path in root.rglob("*") if path.is_file())
    asked = [next(word for word in line.split() if word in ("download", "update")) for line in calls.open()]
    assert asked == ["download", "update", "download"]
    calls.unlink()
    done = call(checkout, "scripts/data.sh", PATH=str(tools))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not calls.exists()


def test_a_set_up_that_fails_is_not_taken_for_done(checkout: Path) -> None:
    bare = script(checkout / "bare", 'if [ "$1" = "-m" ]; then exit 1; fi\nexec ' + sys.executable + ' "$@"\n')
    done = call(checkout, "make", "install", f"PYTHON={bare}")
    assert done.returncode == 2 and not (checkout / ".venv" / "installed").exists()


def test_the_demo_installs_what_fedtune_itself_needs(checkout: Path) -> None:
    asked = script(checkout / "asked", f'echo "$@" >> {checkout}/calls\nexit 1\n')
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to(asked)
    for words, what in ((("core",), "."), ((), ".[dev]")):
        call(checkout, "scripts/install.sh", *words, PYTHON=sys.executable)
        *_, last = (checkout / "calls").read_text().splitlines()
        assert last.endswith(f"--editable {what}")
    assert "installed-core" in call(checkout, "make", "-n", "demo").stdout
    assert "installed-core" not in call(checkout, "make", "-n", "demo", "LOCKED=1").stdout
    assert "installed-core" not in call(checkout, "make", "-n", "test").stdout


#: What is imported where its name is another one than the package's.
MODULES = {"pyyaml": "yaml", "pillow": "PIL", "scikit-learn": "sklearn"}
#: Packages of extras, which what needs them asks for, and says so where they are missing.
OPTIONAL = {"kaleido", "choreographer", "optuna_dashboard"}
#: Packages that `ray[tune]` brings, as its own storage is made of them.
OF_RAY = {"pyarrow", "fsspec"}


def test_what_is_installed_needs_no_package_of_the_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.match(r"[\w-]+", text)[0].lower() for text in project["dependencies"]]  # type: ignore[index]
    ours = {"fedtune", "search_spaces", "trainables", "analysis"}
    allowed = {MODULES.get(name, name.replace("-", "_")) for name in names} | OF_RAY | ours | sys.stdlib_module_names
    strange = {}
    for path in (path for package in ours for path in (ROOT / package).rglob("*.py")):
        tree = ast.parse(path.read_text())
        of_module = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            found = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for name in (one.partition(".")[0] for one in found):
                if name not in allowed and not (name in OPTIONAL and id(node) not in of_module):
                    strange[name] = str(path.relative_to(ROOT))
    assert strange == {}
