#!/usr/bin/env bash
# Builds the wheel and uses it as a stranger would: installed into an environment of its own, away from the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
beat() { python3 scripts/heartbeat.py "$@"; }
beat "Building the wheel" .venv/bin/python -m build --quiet --wheel --outdir "$work" .
beat "Creating a second environment" .venv/bin/python -m venv "$work/venv"
# The dependencies come from the first environment, fedtune itself from the wheel: a folder named in a .pth file stands
# last on the path, and the .pth files inside it (the editable install) are not followed.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$site" > "$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
beat "Installing the wheel" "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$work"/fedtune-*.whl

mkdir "$work/elsewhere"
cd "$work/elsewhere"
"$work/venv/bin/python" - "$work" <<'PYTHON'
import importlib.resources
import sys

for name in ("fedtune", "search_spaces", "trainables", "analysis"):
    found = importlib.import_module(name).__file__ or ""
    assert found.startswith(sys.argv[1]), f"{name} comes from {found}, not from the wheel"
    assert importlib.resources.files(name).joinpath("py.typed").is_file(), f"the wheel lacks {name}/py.typed"
files = {"search_spaces": "presets/dfrd_fig5.yaml", "analysis": "published/dfrd_fig5.csv", "analysis.report": "templates/page.html"}
for package, file in files.items():
    assert importlib.resources.files(package).joinpath(file).is_file(), f"the wheel lacks {package}/{file}"
PYTHON
fedtune=$work/venv/bin/fedtune
"$fedtune" --help >/dev/null
page=$("$fedtune" new --help | sed -n 's/^Guide: //p')
if ! [ -f "$page" ]; then
    echo "fedtune new --help leads to no page: $page" >&2
    exit 1
fi
"$fedtune" spaces dfrd
"$fedtune" search fedavg --trials 2 --rounds 2 --set local_steps=2 --name first
"$fedtune" report runs/first
"$fedtune" export runs/first -o best.yaml
"$fedtune" run best.yaml --seeds 1 --name last
ls runs/first/report.html runs/last/trials/0000/model-*.safetensors >/dev/null
echo "The wheel works."
