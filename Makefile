# Every target sets up what it needs: a fresh clone with Python 3.13, pip and make is enough.
PYTHON ?= $(shell command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DIR ?= sample_project

# Processes that the tests run in, side by side; 0 is one process without pytest-xdist, for a debugger. Pictures
# are updated in one process: those that no test of a process asked for would be taken for left over.
WORKERS ?= 3
# How long the soak lasts.
SECONDS ?= 300
# Inputs of the fuzzing; runs of `make flaky`.
N ?= $(if $(filter flaky,$(MAKECMDGOALS)),10,100000)
ALONE := $(or $(filter 0,$(WORKERS)),$(findstring --snapshot-update,$(ARGS)))
# In one process pytest itself; side by side, what fails runs again alone. $(call run-tests,NAME)
run-tests = $(BIN)/python $(if $(ALONE),-m pytest -p no:xdist,tools/suite_run.py $(1) -n $(WORKERS) --dist worksteal)

# Busy processes beside the tests of `make flaky`.
LOAD ?= 4

# The package whose organism.yaml Pallas reads, for the tests that compare both. It brings top-level packages of
# common names (examples, third_party), so it is beside the environment and not in it.
REFERENCE := xml-pipeline==0.4.0 aiostream==0.8.1 pyhumps==3.8.0 termcolor==3.3.0
REFERENCE_STAMP := $(VENV)/xml-pipeline/.installed-0.4.0

# The official MCP conformance suite and a node that it runs on, whatever node this machine has.
SUITE := @modelcontextprotocol/conformance@0.2.0-alpha.12
SUITE_NODE := node@22
SUITE_DIR := .conformance
SUITE_STAMP := $(SUITE_DIR)/installed-$(notdir $(SUITE))-$(SUITE_NODE)

# Without compiled code each of the hundreds of processes that tests and figures start would compile all of Pallas.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help reference dev demo-tests serve test test-slow bench-gate flaky quick check ci conformance lint format types imports conformance-table bench simulate soak chaos rehearse fuzz screenshots docs house install check clean system-packages npm

help:
	@echo "make dev      open the workbench on the sample project (DIR=path for another)"
	@echo "make demo-tests  five recorded tests of the sample project, without a model"
	@echo "make serve    run the same fleet headless"
	@echo "make test     the test suite (WORKERS=3 processes, 0 for one without xdist; ARGS=... for pytest)"
	@echo "make test-slow  its slow tests: hundreds of kills, thousands of sockets, the wheel, deployments, browsers"
	@echo "make ci       all that a change must pass, with the time of each part"
	@echo "make flaky    count how often tests fail on a busy machine (N=10 runs, LOAD=4 busy processes)"
	@echo "make conformance  the official MCP conformance suite, in both protocol versions"
	@echo "make check    lint, and the tests of single modules and of other packages: two minutes"
	@echo "make lint     ruff, strict types, import contracts, conformance table"
	@echo "make bench    figures of docs/figures.md, measured now (ARGS=peers: beside other frameworks)"
	@echo "make bench-gate  the figures that matter most, each with the most it may be; a part of test-slow"
	@echo "make simulate the claim protocol under failures (ARGS='--steps 10000000'); its invariants hold"
	@echo "make reference  xml-pipeline beside the environment, for the tests that compare both"
	@echo "make soak     load, reloads, kills and cancels for SECONDS=300; nothing may be lost"
	@echo "make chaos    replicas killed, stopped and updated under load for 15 minutes (ARGS=--help); nothing may be lost"
	@echo "make rehearse a rolling update of three replicas behind HAProxy under load: a minute; nothing may be lost"
	@echo "make fuzz     hostile XML at everything that reads it, N=100000 inputs; no crash, no hang"
	@echo "make house    signs of order in the source, beside their targets (ARGS='--list SIGN' for the places)"
	@echo "make screenshots  draw the recording of the README and the pictures of docs/workbench.md#pictures"
	@echo "make docs     build the documentation's site in build/docs/site; a broken link fails"
	@echo "make install  set up $(VENV) only"

# A second run finds the stamp newer than what it was made from and installs nothing.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 13))' || \
	  { echo "Pallas needs Python 3.13 or newer; found $$($(PYTHON) --version). Set PYTHON=/path/to/python3.13" >&2; exit 1; }
	@echo "Setting up $(VENV), once; this takes a minute"
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python "$(PYTHON)" $(VENV) && \
	  uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[dev]'; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; \
	fi
	@touch $(STAMP)

install: $(STAMP)

dev: $(STAMP)
	@$(BIN)/pallas dev $(DIR)

demo-tests: $(STAMP)
	@$(BIN)/pallas test --project $(DIR)

serve: $(STAMP)
	@$(BIN)/pallas --serve --project $(DIR)

# tmux drives the tests in a real terminal, chromium those in a browser; jq runs the recipe of docs/logging.md, curl
# commands of the tutorials; haproxy reads deploy/haproxy.cfg and stands before the replicas of `make chaos` and of
# `make rehearse`; systemd-analyze looks at units, setpriv takes the rights away in deploy/rehearse.py; PostgreSQL is
# started by the tests of what lasts, from Debian's folder of its programs, which are not in the path.
system-packages:
	@missing() { for program in tmux jq curl chromium haproxy systemd-analyze setpriv; do command -v $$program >/dev/null 2>&1 || printf ' %s' $$program; done; \
	  ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 || printf ' postgresql'; }; \
	if [ -n "$$(missing)" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "Installing$$(missing)"; apt-get update -qq && apt-get install -y -qq $$(missing | sed 's/systemd-analyze/systemd/; s/setpriv/util-linux/') >/dev/null || true; fi; \
	if [ -n "$$(missing)" ]; then \
	  echo "not installed:$$(missing); the tests that need it are skipped, with CI=true they fail" >&2; fi

$(REFERENCE_STAMP): $(STAMP)
	@if command -v uv >/dev/null 2>&1; then \
	  uv pip install --quiet --no-deps --python $(BIN)/python --target $(@D) $(REFERENCE); \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(@D) $(REFERENCE); \
	fi && touch $@ || echo "not installed: xml-pipeline; the tests that need it are skipped, with CI=true they fail" >&2

reference: $(REFERENCE_STAMP)

test: $(STAMP) system-packages reference
	@$(call run-tests,test) -m "not slow" $(ARGS)

test-slow: $(STAMP) system-packages reference
	@$(call run-tests,test-slow) -m slow --durations=30 $(ARGS)
	@$(BIN)/python -m benchmarks.gate

# The figures that matter most, as ratios: the status is 1 if one exceeds its bound twice.
bench-gate: $(STAMP)
	@$(BIN)/python -m benchmarks.gate $(ARGS)

# Counts how often each test fails on a busy machine: N=10 runs beside LOAD=4 processes that only compute.
flaky: $(STAMP) system-packages reference
	@$(BIN)/python tools/flaky_count.py $(N) $(LOAD) -n $(WORKERS) --dist worksteal $(ARGS)

# What needs no fleet; mypy takes one core, the tests the other.
quick: $(STAMP)
	@$(call run-tests,quick) -q -m "not slow" tests/unit tests/contract $(ARGS)

# All that a change must pass: what CI runs.
ci:
	@$(PYTHON) tools/ci_run.py

check: $(STAMP)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint quick

npm:
	@if ! command -v npm >/dev/null 2>&1; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "Installing npm"; apt-get update -qq && apt-get install -y -qq npm >/dev/null; \
	  else echo "make conformance needs npm; install it and run this again" >&2; exit 1; fi; fi

# Nothing of it is written down in the project: npm resolves it where this machine gets its packages.
$(SUITE_STAMP): | npm
	@echo "Installing the conformance suite into $(SUITE_DIR), once"
	@rm -rf $(SUITE_DIR) && mkdir -p $(SUITE_DIR)
	@npm install --loglevel=error --no-audit --no-fund --no-save --no-package-lock --prefix $(SUITE_DIR) $(SUITE) $(SUITE_NODE) >/dev/null
	@$(SUITE_DIR)/node_modules/.bin/node --version >/dev/null || \
	  { echo "npm installed no node: let it run the install script of the package node" >&2; exit 1; }
	@touch $@

conformance: $(STAMP) $(SUITE_STAMP)
	@$(BIN)/python tools/second_try.py conformance $(BIN)/python tests/conformance/run.py $(ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python docs/check_conformance.py

format: $(STAMP)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP)
	@$(BIN)/python -m benchmarks $(ARGS)

# Replicas that share a database, and everything that can happen to them: the status is 1 when an invariant broke.
simulate: $(STAMP)
	@$(BIN)/python -m benchmarks.claims_simulation $(ARGS)

# A fleet under load, reloads, kills and cancels: the status is 1 when anything was lost.
soak: $(STAMP)
	@$(BIN)/python tools/second_try.py soak $(BIN)/python -m benchmarks.soak --seconds $(SECONDS) $(ARGS)

# Three replicas on one PostgreSQL behind HAProxy: the status is 1 when an invariant of durable runs does not hold.
chaos: $(STAMP) system-packages
	@$(BIN)/python -m benchmarks.chaos $(ARGS)

# The replicas of deploy/compose.yaml as processes, updated one after the other under load: the status is 1 when a
# message was lost or a caller got an error after which it may not send again.
rehearse: $(STAMP) system-packages
	@$(BIN)/python tools/second_try.py rehearse $(BIN)/python -m deploy.rolling_update $(ARGS)

# Reads XML as strangers write it: the status is 1 when anything but a refusal was raised, or something hung.
fuzz: $(STAMP)
	@PYTHONPATH=tests $(BIN)/python -m fuzz.fuzz_xml $(N) $(ARGS)

house: $(STAMP)
	@$(BIN)/python tools/house.py $(ARGS)

screenshots: $(STAMP)
	@$(BIN)/python docs/screenshots.py

docs: $(STAMP)
	@$(BIN)/python docs/build_site.py

clean:
	rm -rf $(VENV) $(SUITE_DIR) .peers .mypy_cache .pytest_cache .ruff_cache
