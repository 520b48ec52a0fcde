# make demo    set up, search on real digits, report, train the winner
# make test    set up, run every test
# make lint    style, types, layers
# .ci/run      all of it, as continuous integration does
#
# Both set-up and re-runs: .venv/installed is newer than pyproject.toml, or everything is installed again.

VENV      := .venv
BIN       := $(VENV)/bin
INSTALLED := $(VENV)/installed
PYTHON    ?= python3
HEARTBEAT := $(PYTHON) scripts/heartbeat.py
# A file's tests share what is dear to make, so a file stays in one process.
PARALLEL  := -n auto --maxprocesses 4 --dist loadfile
export PYTHON

.PHONY: demo test lint install clean

demo: $(INSTALLED)
	@scripts/demo.sh

test: $(INSTALLED)
	@$(HEARTBEAT) "Looking for Chromium" scripts/chromium.sh
	@$(HEARTBEAT) "Testing" $(BIN)/python -m pytest $(PARALLEL) $(TESTS)

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(HEARTBEAT) "Checking types" $(BIN)/mypy
	@$(HEARTBEAT) "Checking layers" $(BIN)/lint-imports --no-logo

install: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@$(HEARTBEAT) --watch $(VENV) "Installing" scripts/install.sh
	@touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
