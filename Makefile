# Everything runs in .venv, which the first target that needs it creates.

PYTHON ?= python3
export PYTHON

VENV := .venv
RUN := $(VENV)/bin/python
PIP_INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check
# Strict: a page that is not in the menu, or a link that leads nowhere, is an error. The variable
# silences an advertisement that the theme prints with every build.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs --quiet build --strict
ROOMS := actors analytics cli model scenarios strategies

.PHONY: help demo test test-storms test-kill test-durability test-raft test-replication test-browser test-kafka lint docs picture bench bench-report clean tools links

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed ## run the demonstration
	@rm -rf runs/demo
	@$(VENV)/bin/wavetank run examples/scenarios/rolling_restart.toml --out runs/demo
	@echo
	@$(VENV)/bin/wavetank report runs/demo

test: $(VENV)/.installed ## run the tests, except those in a browser and with Kafka's tools
	@$(RUN) -m pytest -m 'not browser and not kafka'

test-storms: $(VENV)/.installed ## try eight times as many random runs of groups
	@STORMS=8 $(RUN) -m pytest tests/actors/broker/test_coordinator.py \
		tests/actors/broker/test_delivery_storms.py

test-kill: $(VENV)/.installed ## kill a cluster with a data directory a hundred times
	@KILLS=100 $(RUN) -m pytest -n 0 tests/actors/test_kill.py

test-durability: $(VENV)/.installed ## try a thousand random runs with crashes and power losses
	@DURABILITY=25 $(RUN) -m pytest tests/actors/test_durability.py

test-raft: $(VENV)/.installed ## try ten thousand random runs of Raft clusters
	@RAFT=10000 $(RUN) -m pytest tests/model/consensus/test_random_runs.py

test-replication: $(VENV)/.installed ## try two thousand random runs of clusters with replicas
	@REPLICATION=2000 $(RUN) -m pytest tests/actors/test_replicated_runs.py

test-browser: $(VENV)/.browser ## open reports in a real browser
	@if .ci/find-browser >/dev/null; then \
		$(RUN) -m pytest -m browser; \
	else \
		echo "***************************************************************"; \
		echo "* NO BROWSER: the tests of reports in a browser were NOT RUN. *"; \
		echo "* Install Chromium or Google Chrome, then: make test-browser  *"; \
		echo "***************************************************************"; \
	fi

test-kafka: $(VENV)/.installed ## compare the log's files with Kafka's own tools, by Maven
	@$(RUN) -m pytest -m kafka

lint: $(VENV)/.installed links ## check format, style, types and documentation
	@$(RUN) -m ruff format --check
	@$(RUN) -m ruff check
	@$(RUN) -m mypy
	@$(MKDOCS)

docs: $(VENV)/.installed links ## build the documentation into site/
	@$(MKDOCS)
	@echo "the documentation is in site/index.html"

picture: $(VENV)/.browser ## take the picture in the README again, after make demo
	@$(RUN) docs/picture.py

bench: $(VENV)/.bench ## measure, side by side with the alternatives; ONLY=sweeps,… some of it
	@$(RUN) bench $(ONLY)

bench-report: $(VENV)/.installed ## write bench/REPORT.md from what was measured
	@$(RUN) bench/results.py

clean: ## remove the environment, caches and everything generated
	@rm -rf $(VENV) .lint build dist site *.egg-info runs bench/results.json
	@rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Is there a Python and a Java to work with? Asked each time, for either can change under a venv.
tools:
	@.ci/check-tools

# tools comes first but, being order-only, never makes the environment look out of date.
$(VENV)/.installed: setup.cfg pyproject.toml | tools
	@echo "Preparing $(VENV); the first time takes a minute or two."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --editable '.[test,lint,docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	@$(PIP_INSTALL) --editable '.[bench]'
	@touch $@

$(VENV)/.browser: $(VENV)/.installed
	@$(PIP_INSTALL) --editable '.[browser]'
	@touch $@

# The package under its own name for mypy, which cannot be told that this folder is wavetank.
links:
	@rm -rf .lint
	@mkdir -p .lint/wavetank
	@cd .lint/wavetank && ln -s ../../*.py $(ROOMS:%=../../%) .
