#!/usr/bin/env bash
# Makes .venv-peers/flower and .venv-peers/pfl, each with one simulator and what it needs; called by make bench-peers.
# Nothing of theirs enters .venv. An environment that is complete is left alone; delete .venv-peers to install again.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
mkdir -p .venv-peers
export TMPDIR="$PWD/.venv-peers/tmp" PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$TMPDIR"
trap 'rm -rf "$TMPDIR"' EXIT

free=$(df -Pk .venv-peers | awk 'NR == 2 {print int($4 / 1048576)}')
needed=0
for name in flower pfl; do [ -e ".venv-peers/$name/installed" ] || needed=$((needed + 9)); done
if [ "$free" -lt "$needed" ]; then
    echo "The peers' environments need about $needed GB, and the disk has $free GB free. Free some space." >&2
    exit 2
fi

environment() { # name, then what pip installs
    local folder=.venv-peers/$1
    shift
    [ -e "$folder/installed" ] && return
    rm -rf "$folder"
    "$python" -m venv "$folder"
    echo "Installing $* into $folder (PyTorch's wheels alone are about 2 GB)"
    "$folder/bin/python" -m pip install --quiet --no-compile "$@"
    touch "$folder/installed"
}

# 1.42 of Flower wants a certifi that was not to be had everywhere when this was written.
environment flower 'flwr[simulation]==1.41.0' torch
environment pfl 'pfl[pytorch]==0.6.0'
