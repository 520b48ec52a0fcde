#!/usr/bin/env bash
# Makes sure there is a Chromium for the browser tests, where that can be done without asking anybody.
set -euo pipefail
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "No Chromium found, so the tests marked browser are skipped. Install it with your package manager to run them."
    exit 0
fi
echo "Installing Chromium for the browser tests"
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -q && apt-get install -q -y --no-install-recommends chromium; } ; then
    echo "Chromium could not be installed (see above), so the tests marked browser are skipped."
fi
