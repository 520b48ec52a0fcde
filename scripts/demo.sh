#!/usr/bin/env bash
# The story of the README: search on real digits, train the winner and the paper's values on fresh seeds, report.
# Where the output is not a terminal, heartbeat.py keeps it from standing still; fedtune itself prints every four seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"

beat=()
if ! [ -t 1 ]; then beat=(.venv/bin/python scripts/heartbeat.py --silence 4.5 "Working"); fi
run() {
    printf '\n$ %s\n' "$*"
    ${beat[@]+"${beat[@]}"} "$@"
}

# A demo leaves its runs for the user, so the next one takes the next free name.
name=demo
number=1
while [ -e "runs/$name" ] || [ -e "runs/$name-final" ] || [ -e "runs/$name-paper" ]; do
    number=$((number + 1))
    name="demo-$number"
done

run fedtune search fedavg --dataset rotated_digits --set model=mlp --trials "${TRIALS:-24}" --rounds "${ROUNDS:-20}" --name "$name"
run fedtune export "runs/$name" -o "runs/$name/best.yaml"
run fedtune run "runs/$name/best.yaml" --seeds 10 --name "$name-final"
# Trial 0 has the paper's values.
run fedtune export "runs/$name" --trial 0 -o "runs/$name/paper.yaml"
run fedtune run "runs/$name/paper.yaml" --seeds 10 --name "$name-paper"
# Last, so that it says what was gained on fresh seeds.
run fedtune report "runs/$name"

printf '\n'
${beat[@]+"${beat[@]}"} .venv/bin/python scripts/closing.py "runs/$name" "runs/$name-final"
