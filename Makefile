# make demo    set up what fedtune itself needs, search on real digits, report, train the winner
# make test    set up, run what protects a change: under five minutes on two idle cores
# make test TOUCHED=1   of these, the test files that what is not committed or not upstream touches; TOUCHED=REVISION since then
# make test-slow   set up, run the slower tests that continuous integration runs too: pages, kills, resumes
# make test-ci     set up, run what both of these run, at once: what both need is set up once, and no processor waits in between
# make nightly set up, run everything there is, hours of it; ONLY="tests faults" some parts. CONTRIBUTING says when
# make durations   set up, run all tests, or TESTS=..., and record which are slow (tests/durations.txt)
# make golden BASE=REVISION   set up, make runs of every command with that revision and with this checkout: bit for bit the same records? Up to ten minutes for each of the two, on two busy cores
# make mutants   set up, make small wrong steps in the code one by one: some test must fail for each; hours on two idle cores
# make mutants SAMPLE=40   the same for a seeded sample, and for as many of the list of wrong steps that replays must notice; a few minutes
# make mutants WRITTEN=1   that list alone; two minutes
# make faults  set up, kill, fill, cut and damage searches in every way of docs/faults.md; 27 to 41 minutes on two busy cores
# make faults SEED=7   the same random moments again; ONLY="killed" tries the faults whose names hold a word
# make test-processors   set up, run the tests that depend on rounding as on a processor with fewer instructions: AVX2, or no AVX where AVX2 is all there is; six minutes or ten
# make test-processors ALL=1   both, where the processor has more than AVX2
# make test-processors EVERY=4   about one of four of these tests
# make chromium   install Debian's Chromium, which the browser tests and `make gallery` need; no other goal installs a system package
# make data    bring Fashion-MNIST, for `--dataset fmnist`: Debian's package, unpacked into the cache and not installed
# make lint    style, format, types, layers, and whether what documents name is there
# make docs    set up, build the documentation site into site/; a broken link fails
# make wheel   set up, build the wheel and use it as a stranger would: installed elsewhere, away from the repository
# make gallery set up, run the commands of docs/gallery.md and draw its pictures; about four hours on two cores, three of them for Fashion-MNIST; what is complete is not run again
# make gallery ONLY="images box"   those pictures alone
# make bench   set up, measure against plain loops (about an hour on two quiet cores), into bench/results.json
# make bench-peers   the same work by Flower and pfl-research, installed into .venv-peers (about 11 GB); with PFLLIB=FOLDER also by PFLlib, cloned into that folder
# make bench-gpu     trials per GPU, precisions, recorded servers, MPS, in ten minutes; exits with 2 where there is no GPU
# make tables        record learning curves for bench-search: about eleven core-hours in all; Ctrl-C at any time, the same command goes on
# make bench-search  replay searches on the recorded curves, 5 to 30 minutes per table, 40 for several objectives, 40 for `fedtune auto`: how good is the winner, after how many rounds? (SLOTS="1 8 32": by wall-clock)
# make bench-search-peers   the same with Syne Tune, SMAC3, NePS and Optuna's Gaussian process beside, installed into .venv-peers (about 1.8 GB); a day
# make test-bench   set up, run the tests of the benchmarks: of what is measured and replayed, and of the documents that quote it; nightly
# make fuzz    set up, try 5,000 bad inputs (INPUTS=n, SEED=n): command lines, files, data sets, damaged runs; about half an hour
# make cluster-test   set up, search over clusters whose machines are namespaces of this one; says why where that is not allowed
# make lock    set up, write locked.txt: the versions and hashes of all that is installed here; LOCKED=1 with any other goal installs from it
# .ci/run      all of it, as continuous integration does
#
# Both set-up and re-runs: .venv/installed is newer than pyproject.toml (with LOCKED=1 .venv/installed-locked also newer than locked.txt),
# or everything is installed again.

VENV      := .venv
BIN       := $(VENV)/bin
# LOCKED=1 installs the files of locked.txt, with their hashes; the stamp is another one, so that neither is taken for the other.
INSTALLED := $(VENV)/installed$(if $(LOCKED),-locked)
# Without what tests and documents need; locked.txt knows all of it only.
CORE      := $(if $(LOCKED),$(INSTALLED),$(VENV)/installed-core)
PYTHON    ?= python3
HEARTBEAT := $(PYTHON) scripts/heartbeat.py
# The tests of one file share what takes long to make, so a file stays in one process. Which files come first,
# conftest.py says, and which tests are slow, tests/durations.txt.
PARALLEL  := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PYTEST    := $(BIN)/python -m pytest $(PARALLEL)
QUICK_ONES := not slow and not nightly
# TESTS names files or folders, TOUCHED a change; both are looked at when a goal is made.
WHICH      = $(TESTS)$(if $(TOUCHED), $(shell $(BIN)/python scripts/touched.py $(filter-out 1,$(TOUCHED)) || echo touched-is-wrong))
# Only the files that have such tests are read: the others would take longer to collect than their tests to run.
NUMERIC    = $(BIN)/python -m pytest $(PARALLEL) -m "numeric and not slow" $(if $(EVERY),--every $(EVERY)) $(or $(TESTS),$(shell grep -rl --include='test_*.py' 'mark\.numeric' tests))
# What Python compiles is kept, out of sight: tests start many processes, and each would compile the project again where
# PYTHONDONTWRITEBYTECODE is set.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
unexport PYTHONDONTWRITEBYTECODE
export PYTHON LOCKED
# Each process of the tests has a core of its own: libraries that compute on one for each core would wait for one another.
test test-slow test-ci test-nightly durations test-bench: export OMP_NUM_THREADS = 1

.PHONY: demo test test-slow test-ci test-nightly nightly durations golden chromium data test-processors mutants faults cluster-test fuzz lock lint docs wheel gallery bench bench-peers bench-gpu tables bench-search bench-search-peers test-bench install clean

demo: $(CORE)
	@scripts/demo.sh

test: $(INSTALLED)
	@$(HEARTBEAT) "Looking for Chromium" scripts/chromium.sh
	@$(if $(and $(TOUCHED),$(if $(strip $(WHICH)),,none)),echo "The change touches no test.",$(HEARTBEAT) "Testing" $(PYTEST) -m "$(QUICK_ONES)" $(WHICH))

test-slow: $(INSTALLED)
	@$(HEARTBEAT) "Looking for Chromium" scripts/chromium.sh
	@$(HEARTBEAT) "Testing" $(PYTEST) -m "slow and not nightly" --durations=30 --durations-min=5 $(TESTS)

test-ci: $(INSTALLED)
	@$(HEARTBEAT) "Looking for Chromium" scripts/chromium.sh
	@$(HEARTBEAT) "Testing" $(PYTEST) -m "not nightly" --durations=30 --durations-min=5 $(TESTS)

nightly: $(INSTALLED)
	@scripts/nightly.sh $(ONLY)

# The tests of the nightly tier alone, in an order drawn with the day as its seed; `make nightly` runs them.
test-nightly: $(INSTALLED)
	@$(HEARTBEAT) "Testing" $(PYTEST) -m nightly --order $(shell date +%F) --durations=30 --durations-min=5 $(TESTS)

durations: $(INSTALLED)
	@rm -rf .durations
	@$(HEARTBEAT) "Testing" $(PYTEST) --record-durations .durations $(or $(TESTS),tests benchmarks/tests)
	@$(BIN)/python -m tests.tiers .durations

# What PyTorch and oneDNN may use is set before they are loaded, so each is a process of its own. One other kind than this
# processor shows what rests on rounding; where AVX2 is all there is, `make test` has been that run.
test-processors: $(INSTALLED)
	@if grep -qsw avx512f /proc/cpuinfo; then \
		ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(HEARTBEAT) "Testing as with AVX2" $(NUMERIC); \
	fi
	@if [ -n "$(ALL)" ] || ! grep -qsw avx512f /proc/cpuinfo; then \
		ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default $(HEARTBEAT) "Testing as without AVX" $(NUMERIC); \
	fi

# Both sides are made here and now, so that no library and no processor differs; ONLY="race auto" makes some of the runs.
golden: $(INSTALLED)
	@test -n "$(BASE)" || { echo "make golden needs BASE, the revision to compare with: make golden BASE=HEAD~1."; exit 2; }
	@rm -rf .golden && mkdir .golden && git worktree prune && git worktree add --quiet --detach .golden/base "$(BASE)"
	@$(BIN)/python scripts/golden.py record .golden/before $(ONLY) --checkout .golden/base
	@$(BIN)/python scripts/golden.py record .golden/after $(ONLY)
	@git worktree remove --force .golden/base
	@$(BIN)/python scripts/golden.py compare .golden/before .golden/after

# FILES=trainables/methods/dfrd.py tries those of a file.
mutants: $(INSTALLED)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutation $(if $(SAMPLE),--sample $(SAMPLE) --seed $(or $(SEED),14)) $(if $(WRITTEN),--written) $(FILES)

# Without SEED the moments are others every time; the seed is printed first. SHORT=1 tries a few faults of each kind.
# Exit code 3 of the campaign: what was tried is as expected, and some faults could not be made on this machine.
faults: $(INSTALLED)
	@$(BIN)/python -m tests.faults run $(if $(SEED),--seed $(SEED)) $(if $(SHORT),--short) $(ONLY)

# Machines without a shared disk (SHORT=1 no more than these), parts of GPUs on several nodes, and the blocks of docs/cluster.md.
cluster-test: $(INSTALLED)
	@$(HEARTBEAT) "Searching over machines" $(BIN)/python -m pytest -n 0 -rs $(or $(TESTS),tests/end_to_end/test_two_machines.py $(if $(SHORT),,tests/end_to_end/test_several_nodes.py tests/packaging/test_cluster_page.py))

# Without SEED the inputs are others every time; the seed is printed first.
INPUTS ?= 5000
fuzz: $(INSTALLED)
	@seed=$(or $(SEED),$$(date +%s)); echo "$(INPUTS) inputs with the seed $$seed"; \
		OMP_NUM_THREADS=1 FUZZ_INPUTS=$(INPUTS) FUZZ_SEED=$$seed $(BIN)/python -m pytest -q --durations=10 tests/fuzz

chromium:
	@$(HEARTBEAT) "Installing Chromium" scripts/chromium.sh install

data:
	@$(HEARTBEAT) "Bringing Fashion-MNIST" scripts/data.sh

lock: $(INSTALLED)
	@$(HEARTBEAT) "Locking" $(BIN)/python scripts/lock.py

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(HEARTBEAT) "Checking types" $(BIN)/mypy
	@$(HEARTBEAT) "Checking layers" $(BIN)/lint-imports --no-logo
	@$(HEARTBEAT) "Checking documents" $(BIN)/python scripts/check_docs.py

# The variable keeps mkdocs-material from printing at every build until when it is maintained (May 2027).
docs: $(INSTALLED)
	@NO_MKDOCS_2_WARNING=1 $(HEARTBEAT) "Building the site" $(BIN)/python -m mkdocs build
	@echo "The site is built: site/index.html"

wheel: $(INSTALLED)
	@scripts/wheel.sh

gallery: $(INSTALLED)
	@scripts/chromium.sh
	@$(BIN)/python scripts/gallery.py $(ONLY)

# CASES="client_round search" measures some; QUICK=--quick only tries them. `python -m benchmarks record` puts the figures into docs.
bench: $(INSTALLED)
	@$(BIN)/python -m benchmarks run $(QUICK) $(CASES)

bench-peers: $(INSTALLED)
	@$(HEARTBEAT) --watch .venv-peers "Installing" scripts/bench_peers.sh
	@$(BIN)/python -m benchmarks peers $(QUICK)
	@[ -z "$$PFLLIB" ] || $(BIN)/python -m benchmarks pfllib $(QUICK)

bench-gpu: $(INSTALLED)
	@$(BIN)/python -m benchmarks gpu $(QUICK)

# ONLY="fedavg mixed" records some tables, ONLY=auto those of `fedtune auto`, under two core-hours; HOURS=2 begins nothing after two hours. `python -m benchmarks.tables list` shows what there is.
tables: $(INSTALLED)
	@$(BIN)/python -m benchmarks.tables record $(if $(ONLY),--only $(ONLY)) $(if $(HOURS),--hours $(HOURS))

# TABLES="fedavg" and SEARCHERS="random-1 fedtune-1" replay some, TABLES=auto `fedtune auto` alone, beside what was measured before, which stays. `python -m benchmarks.replay record` puts the figures into docs.
bench-search: $(INSTALLED)
	@$(BIN)/python -m benchmarks.replay run $(if $(TABLES),--tables $(TABLES)) $(if $(SEARCHERS),--searchers $(SEARCHERS)) $(if $(SLOTS),--slots $(SLOTS))

bench-search-peers: $(INSTALLED)
	@$(HEARTBEAT) --watch .venv-peers "Installing" scripts/bench_search_peers.sh
	@$(BIN)/python -m benchmarks.replay run --peers --slow $(if $(TABLES),--tables $(TABLES))

test-bench: $(INSTALLED)
	@$(HEARTBEAT) "Looking for Chromium" scripts/chromium.sh
	@$(HEARTBEAT) "Testing the benchmarks" $(BIN)/python -m pytest $(PARALLEL) $(or $(TESTS),benchmarks/tests)

install: $(INSTALLED)

$(INSTALLED): pyproject.toml $(if $(LOCKED),$(wildcard locked.txt))
	@$(HEARTBEAT) --watch $(VENV) "Installing" scripts/install.sh
	@touch $(VENV)/installed $@

$(VENV)/installed-core: pyproject.toml
	@test $(VENV)/installed -nt pyproject.toml || $(HEARTBEAT) --watch $(VENV) "Installing" scripts/install.sh core
	@touch $@

clean:
	rm -rf $(VENV) .venv-peers .durations .nightly .gallery bench site dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
