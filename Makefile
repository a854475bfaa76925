# Both `make demo` and `make test` do everything from a bare clone: .venv, the pinned packages, the jars, then the work.
# A second run fetches nothing and works off line. PYTHON=/path/to/python3.11 chooses the interpreter.

export PYTHON
BIN := .venv/bin

.PHONY: help setup fetch demo docs soak test check format lock clean bench bench-large

help:
	@echo 'make demo    set up, then see a table hand its old rows to a lake'
	@echo 'make test    set up, then every check and test'
	@echo 'make soak    a hundred thousand generated queries against Postgres itself, a thousand faults: some hours'
	@echo 'make check   style, types and import directions only'
	@echo 'make format  let ruff write the style'
	@echo 'make bench   every benchmark on 20 million cold rows; renews docs/benchmarks.md (20 minutes, 8 GB of disk)'
	@echo 'make bench-large  the same on 2, 20 and 100 million'
	@echo 'make docs    renew the pages that are written from the code'
	@echo 'make lock    renew the lock files (needs uv)'
	@echo 'make clean   stop the stack here, remove .venv and all caches of this checkout'

setup:
	@scripts/setup

fetch: setup
	@$(BIN)/frostline fetch

demo: fetch
	@$(BIN)/frostline demo

# Two files at a time: much of a test is waiting, for a server to start or for a lock.
test: setup check
	@$(BIN)/frostline fetch --prepare
	$(BIN)/pytest -n 2 --dist loadfile

# SOAK_EXAMPLES counts expressions, of which half go ten to a statement: 90,000 make 51,300 queries under each of two
# collations, and again on Postgres 15. Then a thousand faults; these write docs/faults.md, and SOAK_SEED=<seed> plays the
# same ones again.
soak: fetch
	SOAK_EXAMPLES=90000 $(BIN)/pytest tests/integration/gateway/test_generated.py
	SOAK_EXAMPLES=50000 $(BIN)/pytest tests/integration/writes/test_machine.py
	SOAK_EXAMPLES=10000 $(BIN)/pytest tests/integration/tiering/test_lives.py
	SOAK_FAULTS=1000 $(BIN)/pytest -s tests/faults

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup
	$(BIN)/python -m frostline.gateway.listing docs/operators.md
	$(BIN)/python -m frostline.model.listing docs/types.md
	$(BIN)/python -m frostline.gateway.operations docs/writes.md

bench: fetch
	$(BIN)/python -m bench --rows 20000000

bench-large: fetch
	$(BIN)/python -m bench --rows 2000000 --rows 20000000 --rows 100000000

lock:
	@scripts/lock

# A running server would keep writing into files that are gone.
clean:
	@if [ -x $(BIN)/frostline ] && [ -d .frostline ]; then $(BIN)/frostline down; fi
	rm -rf .venv .frostline .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
