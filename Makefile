# Everything runs in .venv, which the first target that needs it creates.

PYTHON ?= python3
export PYTHON

VENV := .venv
RUN := $(VENV)/bin/python
PIP_INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check
ROOMS := actors analytics model strategies

.PHONY: help demo test test-browser lint bench bench-report clean tools links

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed ## run the demonstration
	@rm -rf runs/demo
	@$(VENV)/bin/wavetank run examples/scenarios/rolling_restart.toml --out runs/demo
	@echo
	@$(VENV)/bin/wavetank report runs/demo

test: $(VENV)/.installed ## run the tests
	@$(RUN) -m pytest

test-browser: $(VENV)/.browser ## open reports in a real browser
	@$(RUN) -m pytest -m browser

lint: $(VENV)/.installed links ## check format, style and types
	@$(RUN) -m ruff format --check
	@$(RUN) -m ruff check
	@$(RUN) -m mypy

bench: $(VENV)/.bench ## measure, side by side with the alternatives; ONLY=sweeps,… some of it
	@$(RUN) bench $(ONLY)

bench-report: $(VENV)/.installed ## write bench/REPORT.md from what was measured
	@$(RUN) bench/results.py

clean: ## remove the environment, caches and everything generated
	@rm -rf $(VENV) .lint build dist *.egg-info runs bench/results.json
	@rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Is there a Python and a Java to work with? Asked each time, for either can change under a venv.
tools:
	@.ci/check-tools

# tools comes first but, being order-only, never makes the environment look out of date.
$(VENV)/.installed: setup.cfg pyproject.toml | tools
	@echo "Preparing $(VENV); the first time takes a minute or two."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --editable '.[test,lint]'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	@$(PIP_INSTALL) --editable '.[bench]'
	@touch $@

$(VENV)/.browser: $(VENV)/.installed
	@$(PIP_INSTALL) --editable '.[browser]'
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
		$(RUN) -m playwright install chromium
	@touch $@

# The package under its own name for mypy, which cannot be told that this folder is wavetank.
links:
	@rm -rf .lint
	@mkdir -p .lint/wavetank
	@cd .lint/wavetank && ln -s ../../*.py $(ROOMS:%=../../%) .
