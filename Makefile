# Every target sets up what it needs: a fresh clone with Python 3.13, pip and make is enough.
PYTHON ?= $(shell command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DIR ?= sample_project

.PHONY: help dev serve test lint format types imports conformance-table bench install check clean system-packages

help:
	@echo "make dev      open the workbench on the sample project (DIR=path for another)"
	@echo "make serve    run the same fleet headless"
	@echo "make test     the whole test suite"
	@echo "make lint     ruff, strict types, import contracts, conformance table"
	@echo "make bench    figures of the README, measured now"
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

serve: $(STAMP)
	@$(BIN)/pallas --serve --project $(DIR)

# tmux drives the tests in a real terminal; jq runs the recipe of docs/logging.md.
system-packages:
	@missing=; for program in tmux jq; do command -v $$program >/dev/null 2>&1 || missing="$$missing $$program"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    apt-get update -qq && apt-get install -y -qq $$missing >/dev/null; \
	  else echo "not installed:$$missing; the tests that need it will be skipped" >&2; fi; fi

test: $(STAMP) system-packages
	@$(BIN)/python -m pytest $(ARGS)

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

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
