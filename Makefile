# Each target does all its own set-up into $(VENV), from python3 (3.11 or newer) and
# make alone; a second run reuses what is there.

PYTHON ?= python3
VENV ?= .venv
# A dependency group that pins Django: django52, django60, django61.
DJANGO ?=
# Passed on to what the target runs: make test ARGS="-k codec".
ARGS ?=

BIN := $(VENV)/bin
RUN := $(VENV)/.run-$(DJANGO)
DEVELOP := $(VENV)/.develop-$(DJANGO)
DOCS := $(VENV)/.docs-$(DJANGO)
LOCK := $(VENV)/.lock
OLDEST := 3,11

# $(call install,NAME): what requirements/NAME.txt locks. Nothing is taken that has another
# hash, and nothing is built: what a build would need has none.
PIP := $(BIN)/python -m pip install --quiet
LOCKED := $(PIP) --require-hashes --only-binary :all:
install = $(LOCKED) --requirement requirements/$(1).txt$(if $(DJANGO), \
    && $(LOCKED) --requirement requirements/$(DJANGO).txt && $(BIN)/python -m pip --quiet check)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
unexport PYTHONHOME PYTHONPATH

CAMPAIGNS := $(addprefix chaos-,kill volume database time bloat deploy faults mutants)

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint format types imports audit docs chaos-smoke $(CAMPAIGNS) bench lock dist clean

help: ## list the targets
	@echo 'make TARGET [ARGS="..."] [PYTHON=python3.12] [VENV=.venv]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1@\2/p' $(firstword $(MAKEFILE_LIST)) | \
	    while IFS=@ read -r name text; do printf '%-18s %s\n' "  $$name" "$$text"; done

install: $(DEVELOP) ## install all that the other targets need

demo: $(RUN) ## see relay work: real jobs, a retry, a killed worker (ARGS=--once ends by itself)
	$(BIN)/python -m relay.standalone.demo $(ARGS)

test: $(DEVELOP) ## run every test but those of tests/chaos (ARGS=--full: at full size)
	$(BIN)/python -m pytest $(ARGS)

check: lint types imports ## lint, types and imports

lint: $(DEVELOP) ## check format and rules with ruff
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(DEVELOP) ## format with ruff
	$(BIN)/ruff format .

types: $(DEVELOP) ## check types with mypy
	$(BIN)/mypy

imports: $(DEVELOP) ## check that layers import downwards only
	$(BIN)/lint-imports

audit: $(DEVELOP) ## look up known vulnerabilities of what is locked (ARGS=--strict: or fail)
	$(BIN)/python -m requirements.audit $(ARGS)

docs: $(DOCS) ## build the site of the docs into build/docs; a warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto -d build/doctrees -c docs/site docs build/docs
	@echo "build/docs/index.html"

chaos-smoke: $(DEVELOP) ## kill workers under load, and prove that two broken engines are caught
	$(BIN)/python -m tests.chaos smoke --mutants M1,M2 $(ARGS)

chaos-kill: ## 1,000 kills, 200 stops and 100 cut sessions under 200,000 jobs (10 minutes)
chaos-volume: ## 1,000,000 jobs through 50 kills and a crash of PostgreSQL
chaos-database: ## restarts, read-only spells, a full disk and cut connections
chaos-time: ## schedules through clock changes and clocks that are wrong
chaos-bloat: ## 1,000,000 jobs beside a transaction that is held open
chaos-deploy: ## workers of the previous commit on the new tables, and back
chaos-faults: ## poison, herds, lost wake-ups, upkeep and restores
chaos-mutants: ## break relay by one line at a time: each must be seen by the checks it names
$(CAMPAIGNS): $(DEVELOP)
	$(BIN)/python -m tests.chaos $(@:chaos-%=%) $(ARGS)

bench: $(DEVELOP) ## measure speed beside PostgreSQL's limit (ARGS=--quick: in a minute)
	$(BIN)/python -m bench $(ARGS)

# For each Python from the one named on, and for each system. What several files lock is the
# same version in each, but for Django in those that pin it.
COMPILE := $(BIN)/uv pip compile --quiet --universal --system-certs --only-binary :all: \
    --generate-hashes --annotation-style line --custom-compile-command 'make lock' $(ARGS) --python-version

lock: $(LOCK) ## lock in requirements what pyproject.toml asks for (ARGS=--upgrade: at newest versions)
	$(COMPILE) 3.11 pyproject.toml --output-file requirements/develop.txt \
	    --extra standalone --group backend --group test --group lint --group types
	$(COMPILE) 3.11 pyproject.toml --output-file requirements/run.txt \
	    --extra standalone --group backend --constraint requirements/develop.txt
	for group in docs pip lock; do $(COMPILE) 3.11 --output-file requirements/$$group.txt \
	    --group $$group --constraint requirements/develop.txt || exit 1; done
	$(COMPILE) 3.11 --output-file requirements/django52.txt --group django52
	for group in django60 django61; do $(COMPILE) 3.12 --output-file requirements/$$group.txt \
	    --group $$group || exit 1; done
	$(BIN)/python -m requirements.bom

# By the clock of the commit and with the locked backend: whoever builds gets the same bytes.
dist: $(RUN) ## build the sdist and the wheel into dist
	rm -rf dist
	epoch=$$(git log -1 --format=%ct) && \
	    SOURCE_DATE_EPOCH=$$epoch $(BIN)/python -m hatchling build --directory dist

clean: ## stop the embedded PostgreSQL and remove all that was made here, its data too
	@set -e; for root in .relay/*/*/ .relay/demo/postgres/*/; do \
	    if [ -e "$$root/data" ] && [ -x $(BIN)/python ]; then \
	        $(BIN)/python -m relay.standalone.postgres stop --root "$$root"; fi; done
	rm -rf .relay .venv .venv-* .tox build dist bench/out tests/chaos/out
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN): pyproject.toml requirements/pip.txt requirements/run.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < ($(OLDEST)))' || \
	    { echo '$(PYTHON) is not Python 3.11 or newer: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	    { echo 'no virtual environment can be made: on Debian, apt-get install python3-venv' >&2; exit 1; }
	$(LOCKED) --requirement requirements/pip.txt
	$(call install,run)
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEVELOP): $(RUN) requirements/develop.txt
	$(call install,develop)
	@touch $@

$(DOCS): $(RUN) requirements/docs.txt
	$(call install,docs)
	@touch $@

$(LOCK): $(RUN) requirements/lock.txt
	$(LOCKED) --requirement requirements/lock.txt
	@touch $@
