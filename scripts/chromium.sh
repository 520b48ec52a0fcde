#!/usr/bin/env bash
# Says so where there is no Chromium for the browser tests. `scripts/chromium.sh install` (make chromium) installs it: a system
# package comes only where that was asked for.
set -euo pipefail
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
if [ "${1:-}" != install ]; then
    echo "No Chromium found, so the tests marked browser are skipped. To run them, install it with your package manager, or with make chromium on Debian and Ubuntu."
    exit 0
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "Chromium is installed with apt-get by root; one of the two is missing. Install it with your package manager." >&2
    exit 2
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends chromium
