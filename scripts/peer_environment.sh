#!/usr/bin/env bash
# Read by bench_peers.sh and bench_search_peers.sh, from the repository's root: an environment of its own for each peer.
# Nothing of theirs enters .venv. An environment that is complete is left alone; delete it to install again.
python=${PYTHON:-python3}
mkdir -p .venv-peers
export PIP_DISABLE_PIP_VERSION_CHECK=1
NOTE= # said beside what is installed
LENT= # a folder of packages that an environment reads where it has none of its own: PyTorch's wheels alone are about 2 GB
PACKAGES='import sysconfig; print(sysconfig.get_path("purelib"))' # where an environment has them

environment() { # name, then what pip installs
    local folder=.venv-peers/$1
    shift
    [ -e "$folder/installed" ] && return
    rm -rf "$folder"
    "$python" -m venv "$folder"
    [ -z "$LENT" ] || echo "$LENT" >"$("$folder/bin/python" -c "$PACKAGES")/lent.pth"
    echo "Installing $* into $folder${NOTE:+ ($NOTE)}"
    "$folder/bin/python" -m pip install --quiet --no-compile "$@"
    touch "$folder/installed"
}
