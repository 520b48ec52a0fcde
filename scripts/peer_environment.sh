#!/usr/bin/env bash
# Read by bench_peers.sh and bench_search_peers.sh, from the repository's root: an environment of its own for each peer.
# Nothing of theirs enters .venv. An environment that is complete is left alone; delete it to install again.
python=${PYTHON:-python3}
mkdir -p .venv-peers
export PIP_DISABLE_PIP_VERSION_CHECK=1
NOTE= # said beside what is installed

environment() { # name, then what pip installs
    local folder=.venv-peers/$1
    shift
    [ -e "$folder/installed" ] && return
    rm -rf "$folder"
    "$python" -m venv "$folder"
    echo "Installing $* into $folder${NOTE:+ ($NOTE)}"
    "$folder/bin/python" -m pip install --quiet --no-compile "$@"
    touch "$folder/installed"
}
