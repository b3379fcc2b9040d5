# Two commands for a fresh machine: `make analyze` and `make test`. Both make their own virtual environment.
PYTHON ?= python3
# A failed run to diagnose; a bundled one unless you name yours: make analyze RUN=/path/to/logs
RUN ?= fixtures/zero1-shape-2nodes-4ranks/logs
REPORT ?= report.html

.PHONY: analyze test bench translations clean

analyze: .venv/ready
	.venv/bin/logforensics analyze '$(RUN)' --html '$(REPORT)'
	@echo "HTML report: $(abspath $(REPORT))"

# The harness extra brings torch and DeepSpeed, for the fresh failing runs that the tests make.
# On a machine without them: make test EXTRAS=dev (the fresh runs are then skipped, and said to be).
EXTRAS ?= dev,harness

test: .venv-test/ready-$(EXTRAS)
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy
	.venv-test/bin/pytest

bench: .venv/ready
	.venv/bin/python benchmarks/scan.py

# Brings the catalogues in reports/locale in step with the texts, and says what is not translated.
translations: .venv-test/ready-$(EXTRAS)
	.venv-test/bin/python tools/translations.py

.venv/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "logforensics needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv-test/ready-$(EXTRAS): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "logforensics needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	touch '$@'

clean:
	rm -rf .venv .venv-test build dist .pytest_cache .mypy_cache .ruff_cache
