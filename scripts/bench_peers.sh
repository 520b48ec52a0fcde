#!/usr/bin/env bash
# Makes .venv-peers/flower and .venv-peers/pfl, each with one simulator and what it needs; called by make bench-peers.
# PFLlib, a folder of programs, is in no registry: where PFLLIB names its folder, .venv-peers/pfllib gets what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/peer_environment.sh
export TMPDIR="$PWD/.venv-peers/tmp"
mkdir -p "$TMPDIR"
trap 'rm -rf "$TMPDIR"' EXIT

free=$(df -Pk .venv-peers | awk 'NR == 2 {print int($4 / 1048576)}')
needed=0
for name in flower pfl ${PFLLIB:+pfllib}; do [ -e ".venv-peers/$name/installed" ] || needed=$((needed + 9)); done
if [ "$free" -lt "$needed" ]; then
    echo "The peers' environments need about $needed GB, and the disk has $free GB free. Free some space." >&2
    exit 2
fi

NOTE="PyTorch's wheels alone are about 2 GB"
# 1.42 of Flower wants a certifi that was not to be had everywhere when this was written.
environment flower 'flwr[simulation]==1.41.0' torch
environment pfl 'pfl[pytorch]==0.6.0'
[ -z "${PFLLIB:-}" ] || environment pfllib torch h5py scikit-learn matplotlib
