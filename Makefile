# Two commands do everything: `make demo` and `make test`. Both set up `.venv` first when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# `make test CONSTRAINTS=` takes the newest version of every dependency instead of the pinned ones.
CONSTRAINTS ?= constraints.txt
PIP_CONSTRAINTS := $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
# `make smoke PYTHONS=python3.12` tries the wheel with one interpreter only.
PYTHONS ?= python3.11 python3.12 python3.13

.PHONY: setup demo test lint bench browser dist smoke docs reproduce clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "make: python venv is missing; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_CONSTRAINTS) --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/capspoe train mnist --out runs/demo
	$(BIN)/capspoe report runs/demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/hadolint Dockerfile
	$(BIN)/zizmor --offline --quiet .github

# Tests of the explorer's page want Debian's Chromium; without it they are skipped, and nothing else is.
browser:
	@if command -v chromedriver >/dev/null 2>&1; then :; \
	elif command -v apt-get >/dev/null 2>&1 && { [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then \
	  as=; [ "$$(id -u)" = 0 ] || as="sudo -n"; \
	  echo "make: installing chromium and chromium-driver for the tests of the explorer's page"; \
	  { $$as apt-get -qq update && $$as env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 \
	    || echo "make: chromium cannot be installed here; the tests of the explorer's page are skipped"; \
	else echo "make: there is no chromedriver; the tests of the explorer's page are skipped"; fi

test: lint browser
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

bench: setup
	$(BIN)/python -m benchmarks.speed.kernels

# The sdist and the wheel in dist/, tried in empty environments; what they install, and under which licences, in sbom/.
dist: setup
	rm -rf build dist sbom
	$(BIN)/python -m build --outdir dist
	@$(MAKE) smoke

smoke: setup
	$(BIN)/python .ci/smoke.py $(PIP_CONSTRAINTS) --sbom sbom $(PYTHONS)

# Warnings are errors: a link that leads nowhere, a page that is in no menu.  (--quiet would hide them.)
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "the documentation is in site/index.html"

# Hours: trains and evaluates what docs/results.md reports, and writes it. Interrupt it at will; it carries on.
reproduce: setup
	$(BIN)/python -m benchmarks.pages.reproduce

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist sbom site src/*.egg-info
