# All a newcomer must know: make demo, make test, make check, make bench.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test check proto docs bench clean
install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt "torch==2.13.0"
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(STAMP)

# Streams a held-out function from a local cluster, then compares with plain decoding.
demo: $(STAMP)
	$(BIN)/foredraft demo

test: $(STAMP)
	$(BIN)/python -m pytest -q

check: $(STAMP)
	scripts/check $(BIN)

# Regenerates the gRPC code; `make check` fails when it is not current.
proto: $(STAMP)
	scripts/proto $(BIN)

# Regenerates the configuration reference; `make check` fails when it is not current.
docs: $(STAMP)
	PYTHONPATH=. $(BIN)/python scripts/config_reference.py > docs/configuration.md

bench: $(STAMP)
	$(BIN)/foredraft bench

clean:
	rm -rf $(VENV) build
