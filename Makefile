# The two commands: `make demo` and `make test`. Both do all the set-up they need.
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PYTHONPATH := $(CURDIR)/.collections

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | column -t -s "$$(printf '\t')"

.PHONY: setup
setup: ## OS packages, .venv, and the checkout as an installed collection
	@tests/setup.sh

.PHONY: quick
quick: setup ## Seconds: ruff, mypy, unit tests without the slow ones
	ruff check .
	ruff format --check .
	mypy
	pytest -q -n 2 -m "not slow" tests/unit

.PHONY: unit
unit: setup ## All unit tests
	pytest -n 2 tests/unit

.PHONY: lock
lock: ## Renew the locks from their .in files
	uv pip compile -q --universal --python-version 3.11 --no-annotate --no-header -o tests/requirements.txt tests/requirements.in
	uv pip compile -q --universal --python-version 3.10 --no-annotate --no-header -o roles/tools/files/requirements.txt roles/tools/files/requirements.in
