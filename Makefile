# Needs Python 3.10 or newer, make and PyPI; a sourced ROS 2 installation is used where there is one.
#   make demo [MODEL=wiski] [ARGS="…"]   a simulated robot maps a magnetic field over ROS 2, with any model
#   make test [ARGS="…"]   all tests, file by file on JOBS=3 processes (some wait); what fails is run again alone, and told in full. ARGS go to pytest
#   make lint              ruff, and mypy on the rooms that pyproject.toml names
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
MODEL ?=
JOBS ?= 3

.PHONY: help environment demo test lint
help:
	@sed -n '2,4s/^#   //p' Makefile

environment:
	@$(PYTHON) requirements/environment.py $(VENV)

demo: environment
	@$(VENV)/bin/python -m gp_mapping.cli demo $(if $(MODEL),--model $(MODEL)) $(ARGS)

test: environment
	@export OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1}; unset PYTHONDONTWRITEBYTECODE; code=0; \
	$(VENV)/bin/python -m compileall -q gp_mapping test benchmark; \
	$(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile --assert=plain $(ARGS) || code=$$?; \
	if [ $$code -eq 1 ]; then \
	    echo "Run again, one at a time: what failed. A fault fails again; what passes now lost its turn on busy cores."; \
	    code=0; $(VENV)/bin/python -m pytest --last-failed --last-failed-no-failures none $(ARGS) || code=$$?; \
	fi; exit $$code

lint: environment
	@$(VENV)/bin/python -m ruff check .
	@$(VENV)/bin/python -m ruff format --check --quiet .
	@$(VENV)/bin/python -m mypy
