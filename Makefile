# Two commands on a fresh machine: `make demo` and `make test`. Each sets up what it needs by itself,
# in its own virtual environment, and is quick when that is already there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test lint format types house bench chaos check clean

help:
	@echo "make demo    jobs running before your eyes, for about 20 seconds"
	@echo "make test    the whole test suite"
	@echo "make check   lint, types and house rules"
	@echo "make bench   the figures of the README, as JSON"
	@echo "make chaos   kills, stops and cuts for SECONDS=60; SEED=n repeats the faults of a run"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "redisched needs Python 3.11 or newer; name one: make PYTHON=python3.12 demo"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)
	@$(BIN)/python examples/demo.py

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/mypy

house: $(READY)
	$(BIN)/python -m pytest tests/house

check: lint types house

bench: $(READY)
	@mkdir -p benchmarks/results
	$(BIN)/python -m benchmarks drain latency recovery cron_storm --json benchmarks/results/engine.json
	$(BIN)/python -m benchmarks.report benchmarks/results/engine.json README.md docs/benchmarks.md

# `make chaos SECONDS=300 SEED=7`; without SEED one is drawn, and printed.
SECONDS = 60
chaos: $(READY)
	$(BIN)/python -m tests.chaos.soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis
