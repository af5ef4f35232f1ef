# Two commands on a fresh machine: `make demo` and `make test`. Each fills .venv first if need be.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AGENT_VENV := .venv-agent

# Tests start hundreds of interpreters; with this set, as in many images, each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# What `make test` runs side by side, the longest first. One more at a time than there are CPUs: the daemons' tests mostly wait.
PARTS := test-rest test-detect test-daemons test-agent test-root
JOBS ?= $(shell expr $$(nproc) + 1)
KEEP_GOING := $(MAKE) --no-print-directory --keep-going
# Tests that run make are not to ask this one for jobs.
UNTIED := env -u MAKEFLAGS
# Their temporary files lie in /dev/shm where it has room, unless TMPDIR names a folder.
ON_RAM := $(UNTIED) LAGGARD_TEST_RAM_DISK=1
# test-agent runs these, in a node's environment.
AGENT_TESTS := tests/common tests/agent
BUT_AGENT := $(AGENT_TESTS:%=--ignore=%)
# test-detect runs these: about as long as the rest.
DETECT_TESTS := tests/aggregator/detect tests/bench

# What `make quick` runs: lint and types, and tests that start no process, in two parts of some 25 s of CPU each.
# `make quick QUICK_TESTS=tests/aggregator/web` takes those of another area.
QUICK := quick-static quick-tests quick-house
QUICK_TESTS ?= tests/aggregator/alarms tests/aggregator/groups tests/aggregator/log tests/aggregator/metrics \
	tests/aggregator/settings tests/aggregator/status tests/aggregator/windows tests/agent/sampling tests/agent/spool

.PHONY: quick $(QUICK) demo test test-all test-alone test-parts $(PARTS) check bench native wheels lock advisories deb rpm tarball try-packages try-ansible try-bare clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# A node's environment: the base dependencies and what the tests themselves need, nothing of the extras.
$(AGENT_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(AGENT_VENV)
	$(AGENT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/laggard demo $(DEMO_ARGS)

test: $(VENV)/.installed $(AGENT_VENV)/.installed
	@$(KEEP_GOING) --jobs=1 test-alone test-parts

# The same in one process, one test after another, all with what developers have installed.
test-all: $(VENV)/.installed
	$(UNTIED) $(BIN)/python -m pytest $(PYTEST_ARGS)

test-alone: $(VENV)/.installed
	$(UNTIED) $(BIN)/python -m pytest -m alone $(PYTEST_ARGS)

# Each says what it has to say when it is over.
test-parts:
	@$(KEEP_GOING) --jobs=$(JOBS) --output-sync=target $(PARTS)

test-daemons: $(VENV)/.installed
	$(ON_RAM) $(BIN)/python -m pytest -m 'e2e and not root' $(PYTEST_ARGS)

test-rest: $(VENV)/.installed
	$(ON_RAM) $(BIN)/python -m pytest -m 'not e2e and not root' $(BUT_AGENT) $(DETECT_TESTS:%=--ignore=%) $(PYTEST_ARGS)

test-detect: $(VENV)/.installed
	$(ON_RAM) $(BIN)/python -m pytest -m 'not e2e and not root' $(DETECT_TESTS) $(PYTEST_ARGS)

test-root: $(VENV)/.installed
	$(UNTIED) $(BIN)/python -m pytest -m 'root and not alone' $(BUT_AGENT) $(PYTEST_ARGS)

test-agent: $(AGENT_VENV)/.installed
	$(UNTIED) LAGGARD_AGENT_ONLY=1 $(AGENT_VENV)/bin/python -m pytest $(AGENT_TESTS) $(PYTEST_ARGS)

# A contributor's loop: under a minute on two idle cores once mypy has its cache.
quick: $(VENV)/.installed
	@$(KEEP_GOING) --jobs=2 --output-sync=target $(QUICK)

quick-static: $(VENV)/.installed
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

quick-tests: $(VENV)/.installed
	$(ON_RAM) $(BIN)/python -m pytest -q -m 'not e2e and not root' $(QUICK_TESTS) $(PYTEST_ARGS)

quick-house: $(VENV)/.installed
	$(UNTIED) $(BIN)/python -m pytest -q -m 'not e2e and not root' tests/house tests/common/wire $(PYTEST_ARGS)

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed
	$(BIN)/python -m bench

# The library that instrumented programs are linked with; needs gcc and no Python.
native:
	@$(MAKE) --no-print-directory -C native

# Packages (docs/install.md). Only the first of these reads the package index; what is built comes into dist.
PACKAGING := build/packaging

$(PACKAGING)/bin/python:
	$(PYTHON) -m venv $(PACKAGING)

wheels: $(PACKAGING)/bin/python
	$(PACKAGING)/bin/python packaging/wheels.py build/wheels

# After a change of the dependencies in pyproject.toml: their versions and hashes anew, for every Python and architecture.
LOCK := packaging/requirements.txt
lock: $(PACKAGING)/bin/python
	$(PACKAGING)/bin/python -m pip install --quiet uv
	echo '# Written by `make lock`: versions and hashes of all that packages and images hold besides Laggard itself.' > $(LOCK).new
	$(PACKAGING)/bin/uv pip compile pyproject.toml --extra aggregator --extra broker --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --quiet >> $(LOCK).new
	mv $(LOCK).new $(LOCK)

# Known advisories about them; status 2 where the database cannot be reached.
advisories: $(PACKAGING)/bin/python
	$(PACKAGING)/bin/python -m pip install --quiet pip-audit
	-$(PACKAGING)/bin/pip-audit --disable-pip --require-hashes --requirement $(LOCK) --format json --output build/audit.json \
		--progress-spinner off
	$(PACKAGING)/bin/python packaging/advisories.py build/audit.json

deb rpm tarball: wheels
	PYTHON=$(CURDIR)/$(PACKAGING)/bin/python packaging/$@/build build/wheels dist

# As root: installs, uses, upgrades, rolls back and purges the Debian packages in a container, or, with TRY_ARGS='--format rpm',
# the RPMs. Ten minutes.
try-packages: $(VENV)/.installed wheels
	$(BIN)/python packaging/try_packages.py $(TRY_ARGS)

# As root, after try-packages: the Ansible role on the packages that it built. ANSIBLE: see packaging/README.md.
ANSIBLE ?= build/ansible
try-ansible: $(VENV)/.installed
	$(BIN)/python packaging/try_ansible.py $(ANSIBLE)

# As root: the README's two commands on a bare Debian root, as root and as an ordinary user. Twenty minutes.
try-bare:
	$(PYTHON) packaging/try_bare.py $(BARE_ARGS)

clean:
	rm -rf native/build $(VENV) $(AGENT_VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
