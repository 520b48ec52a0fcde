#!/usr/bin/env bash
# Makes the runs behind docs/results.md in runs/ (those that are there already are kept) and prints its tables.
# About half an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"

run() { # name, then the arguments of `fedtune run`
    local name=$1
    shift
    [ -e "runs/$name" ] || fedtune run "$@" --seeds 3 --name "$name" --plain
}

run fedavg-iid fedavg --set partition=iid --rounds 30
run fedavg-0.1 fedavg --rounds 30
fedtune compare runs/fedavg-iid runs/fedavg-0.1

for rho in 10 5; do
    run "fedrolex-$rho" fedrolex --space rho --set "rho=$rho"
    run "fedrolex-dfrd-$rho" dfrd --space alpha_lambda --set "rho=$rho"
    fedtune compare "runs/fedrolex-$rho" "runs/fedrolex-dfrd-$rho"
done
