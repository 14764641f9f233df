# All a newcomer must know: make demo, make test-fast, make check, make test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test-fast test check packages format proto docs bench build clean
# Two processes share the tests that need no cluster of their own, file by file, as they come: xdist
# would begin with the files of most tests, and end with one process at those of the longest.
PYTEST := $(BIN)/python -m pytest -q
SPREAD := -n 2 --dist loadfile --no-loadscope-reorder
# One thread a process of these, from the first import on.
ALONE := OMP_NUM_THREADS=1

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt "torch==2.13.0"
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	$(BIN)/foredraft fetch || true
	touch $(STAMP)

# Streams a held-out function from a local cluster, then compares with plain decoding.
demo: $(STAMP)
	$(BIN)/foredraft demo

# The rings without a cluster, without what takes many seconds, and fewer random examples.
test-fast: $(STAMP)
	FOREDRAFT_TEST_EXAMPLES=0.125 $(ALONE) $(PYTEST) $(SPREAD) -m "not slow" tests/wire tests/unit

# All rings. One cluster serves the app ring.
test: $(STAMP)
	$(ALONE) $(PYTEST) $(SPREAD) tests/wire tests/unit
	$(PYTEST) tests/app tests/gpu

check: $(STAMP)
	scripts/check $(BIN)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Debian's packages that some tests use, as root: Chromium for the playground's, promtool for the
# metrics', ip for those of two hosts. Without them these tests are skipped.
packages:
	(command -v chromium && command -v promtool && command -v ip) || (apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends chromium prometheus iproute2)

# Regenerates the gRPC code; `make check` fails when it is not current.
proto: $(STAMP)
	scripts/proto $(BIN)

# Regenerates the configuration reference and the dashboard; `make check` fails when it is not current.
docs: $(STAMP)
	PYTHONPATH=. $(BIN)/python scripts/config_reference.py > docs/configuration.md
	PYTHONPATH=. $(BIN)/python scripts/scenario_reference.py > docs/scenarios.md
	PYTHONPATH=. $(BIN)/python scripts/dashboard.py > cluster/grafana/foredraft.json

bench: $(STAMP)
	$(BIN)/foredraft bench

# A wheel in dist/.
build: $(STAMP)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist
