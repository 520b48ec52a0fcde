#!/usr/bin/env bash
# Everything there is, part by part, for a night: what fails does not stop the rest. `make nightly` calls it.
#   scripts/nightly.sh [PART ...]    parts: style tests bench-tests mutants faults fuzz processors bench replays gallery
# Each part's output goes to .nightly/PART.log; a table of parts, minutes and results is printed at the end. Exit code 1 if one failed.
set -uo pipefail
cd "$(dirname "$0")/.."
declare -A goals=(
    [style]="lint docs wheel"
    [tests]="test-ci test-nightly"
    [bench-tests]="test-bench"
    [mutants]="mutants"
    [faults]="faults"
    [fuzz]="fuzz"
    [processors]="test-processors ALL=1"
    [bench]="bench"
    [replays]="bench-search"
    [gallery]="gallery"
)
parts=("$@")
[ $# -gt 0 ] || parts=(style tests bench-tests processors faults fuzz mutants gallery bench replays)
for part in "${parts[@]}"; do
    if [ -z "${goals[$part]:-}" ]; then
        echo "A part of make nightly must be one of ${!goals[*]}, got $part (ONLY=\"...\")." >&2
        exit 2
    fi
done
mkdir -p .nightly
failed=0
table=""
for part in "${parts[@]}"; do
    begun=$SECONDS
    echo "== $part: make ${goals[$part]} (.nightly/$part.log)"
    # shellcheck disable=SC2086
    if make -k ${goals[$part]} >".nightly/$part.log" 2>&1; then result=passed; else
        result=FAILED
        failed=1
        tail -n 25 ".nightly/$part.log"
    fi
    line=$(awk -v p="$part" -v s="$((SECONDS - begun))" -v r="$result" 'BEGIN {printf "%-12s %6.1f min  %s", p, s / 60, r}')
    echo "$line"
    table+="$line"$'\n'
done
printf '\n%s' "$table"
exit $failed
