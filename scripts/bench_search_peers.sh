#!/usr/bin/env bash
# Makes .venv-peers/syne-tune and .venv-peers/smac, each with one package of searchers and what it needs; called by
# make bench-search-peers. Nothing of theirs enters .venv. An environment that is complete is left alone; delete it to install again.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
mkdir -p .venv-peers
export PIP_DISABLE_PIP_VERSION_CHECK=1

environment() { # name, then what pip installs
    local folder=.venv-peers/$1
    shift
    [ -e "$folder/installed" ] && return
    rm -rf "$folder"
    "$python" -m venv "$folder"
    echo "Installing $* into $folder"
    "$folder/bin/python" -m pip install --quiet --no-compile "$@"
    touch "$folder/installed"
}

# Its conformal quantile regression imports its repository of tables, which wants the other three.
environment syne-tune 'syne-tune==0.16.0' huggingface_hub fastparquet h5py
environment smac 'smac==2.4.1'
