#!/usr/bin/env bash
# Makes .venv and installs fedtune with everything its tests need, or, as `install.sh core`, with what it needs itself;
# called by make through scripts/heartbeat.py.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "fedtune needs Python 3.11 or newer, got $("$python" --version 2>&1). Name another one: make demo PYTHON=/path/to/python3.12" >&2
    exit 2
fi
# LOCKED=1: the files that locked.txt names and no others, each compared with its hash. What is installed already was not, so
# an environment that was made without is made anew.
if [ -n "${LOCKED:-}" ]; then
    if ! [ -f locked.txt ]; then
        echo "There is no locked.txt. Make one with \`make lock\` on this kind of machine, or copy it here." >&2
        exit 2
    fi
    if [ -e .venv ] && ! [ .venv/installed-locked -nt locked.txt ]; then
        echo "Removing .venv, which was not installed from this locked.txt"
        rm -rf .venv
    fi
else
    rm -f .venv/installed-locked
fi
if ! [ -x .venv/bin/python ]; then
    echo "Creating .venv with $("$python" --version 2>&1)"
    if ! "$python" -m venv .venv; then
        rm -rf .venv
        echo "This Python cannot create virtual environments. On Debian or Ubuntu: apt-get install python3-venv" >&2
        exit 2
    fi
fi
# pip downloads into its temporary folder first; inside .venv the megabytes that heartbeat.py counts include it.
export TMPDIR="$PWD/.venv/tmp" PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$TMPDIR"
trap 'rm -rf "$TMPDIR"' EXIT
echo "Installing fedtune and its dependencies (PyTorch's wheels alone are about 2 GB)"
if [ -n "${LOCKED:-}" ]; then
    .venv/bin/python -m pip install --quiet --no-compile --no-deps --only-binary :all: --require-hashes --requirement locked.txt
    # fedtune itself is this folder; hatchling, which installs it, is among the locked files.
    .venv/bin/python -m pip install --quiet --no-compile --no-deps --no-build-isolation --editable .
else
    what='.[dev]'
    if [ "${1:-}" = core ]; then what=.; fi
    .venv/bin/python -m pip install --quiet --no-compile --editable "$what"
fi
# Compiled on every core (pip uses one), and not left to the first import: where PYTHONDONTWRITEBYTECODE is set that would compile each
# time, and every process takes more than twice as long to start. A few files of other packages are templates and do not compile.
echo "Compiling"
.venv/bin/python -m compileall -q -j 0 "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" >/dev/null 2>&1 || true
