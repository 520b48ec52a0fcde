#!/usr/bin/env bash
# Makes .venv-peers/syne-tune, smac and neps, each with one package of searchers and what it needs; called by
# make bench-search-peers.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/peer_environment.sh

# Its conformal quantile regression imports its repository of tables, which wants the other three.
environment syne-tune 'syne-tune==0.16.0' huggingface_hub fastparquet h5py
environment smac 'smac==2.4.1'
LENT=$("${VENV:-.venv}/bin/python" -c "$PACKAGES")
environment neps 'neural-pipeline-search==0.17.0'
