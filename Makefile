# The door of the repository. What is behind it: cargo, scripts/ and xtask/.

PYTHON ?= python3
CARGO ?= cargo
# Arguments of `baro up` for `make run`, of the benchmark for `make bench`, of the evaluation for
# `make interference-evaluation` and `make staging-evaluation`.
ARGS ?=
# Number of agents for `make run-cluster`.
N ?= 3
# Where `make install` puts program, library and headers.
PREFIX ?= /usr/local
DESTDIR ?=

# As the tests are built, so that either finds compiled what the other needs.
TESTED := --workspace --exclude barograph-python --locked

.DEFAULT_GOAL := help
.PHONY: help run run-cluster install test test-rust test-python test-web test-e2e fmt lint docs bench generate forecast-evaluation events-evaluation tango-evaluation interference-evaluation clarisse-evaluation placement-evaluation tasks-evaluation staging-evaluation web clean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## build quickly and start the agent on this node (ARGS="--http 127.0.0.1:7171")
	-@$(PYTHON) scripts/cache.py restore
	$(CARGO) build $(TESTED) --bin baro
	$${CARGO_TARGET_DIR:-target}/debug/baro up $(ARGS)

run-cluster: ## the same with N agents that form a cluster (N=3)
	-@$(PYTHON) scripts/cache.py restore
	$(CARGO) build $(TESTED) --bin baro
	$${CARGO_TARGET_DIR:-target}/debug/baro cluster run $(N) $(ARGS)

test: ## set up what the tests need and run all of them
	@$(PYTHON) scripts/test.py

test-rust: ## form, layers, lints, Rust tests
	@$(PYTHON) scripts/test.py checks rust

test-python: ## scripts, the SQLite extension, the Python package
	@$(PYTHON) scripts/test.py scripts sql python

test-web: ## the page: types, bundle, units
	@$(PYTHON) scripts/test.py web

test-e2e: ## the real binary, through every way in, and in a browser
	@$(PYTHON) scripts/test.py e2e browser

fmt: ## format the Rust code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path crates/query/extension/Cargo.toml

lint: ## what the checks of `make test` say, and clippy
	@$(PYTHON) scripts/test.py checks
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

generate: ## write the generated documents anew
	$(CARGO) xtask generate

forecast-evaluation: ## replay all traces; writes docs/evaluation/forecast.md and its figures anew
	mkdir -p target
	$(CARGO) run --release --locked -p barograph-forecast --example selector > target/selector.txt
	$(CARGO) run --release --locked -p barograph-lab --example evaluation -- --selector target/selector.txt

events-evaluation: ## measure file events beside watchdog and inotifywait; writes docs/evaluation/events.md
	$(PYTHON) scripts/event_peers.py
	$(CARGO) build --release --locked -p barograph-bench
	target/release/barograph-bench fs.rate changelog.rate event.memory rule.eval ripple
	target/release/barograph-bench --events > target/events.md
	mv target/events.md docs/evaluation/events.md

tango-evaluation: ## measure packed arrays beside zfp, SZ3 and SPERR, and forecasts; writes docs/evaluation/tango.md
	mkdir -p target
	$(CARGO) run --release --locked -p barograph-forecast --example interference > target/interference.txt
	$(CARGO) build --release --locked -p barograph --bin baro
	$(PYTHON) scripts/tango_evaluation.py

interference-evaluation: ## as root, a reader beside six checkpoint writers on an emulated disk (ARGS=--sweeps); writes docs/evaluation/interference.md
	$(CARGO) build --release --locked -p barograph --bin baro
	$(PYTHON) scripts/interference_evaluation.py --publish $(ARGS)

clarisse-evaluation: ## policies of I/O scheduling, simulated and with the agent; writes docs/evaluation/clarisse.md
	mkdir -p target
	$(CARGO) build --release --locked -p barograph -p barograph-libbaro
	$(CARGO) run --release --locked -p barograph-lab --example clarisse > target/clarisse.md
	$(PYTHON) scripts/schedule_evaluation.py >> target/clarisse.md
	$(CARGO) run --release --locked -p barograph-control --example scale >> target/clarisse.md
	$(CARGO) run --release --locked -p barograph-control --example plan_cost >> target/clarisse.md
	$(CARGO) run --release --locked -p barograph-control --example nodes >> target/clarisse.md
	mv target/clarisse.md docs/evaluation/clarisse.md

placement-evaluation: ## hashing counted, locality and advisers simulated; writes docs/evaluation/placement.md
	mkdir -p target
	$(CARGO) run --release --locked -p barograph-placement --example placement > target/placement.md
	mv target/placement.md docs/evaluation/placement.md

tasks-evaluation: ## file copy and word count with tasks at their data and without, on emulated nodes; writes docs/evaluation/tasks.md
	mkdir -p target
	$(CARGO) build --release --locked -p barograph --bin baro
	$(PYTHON) scripts/tasks_evaluation.py > target/tasks.md
	mv target/tasks.md docs/evaluation/tasks.md

staging-evaluation: ## as root, loss under SIGKILL and rates beside Redis, placement on emulated tiers (ARGS="--parts loss"); writes docs/evaluation/staging.md
	@[ "$$(id -u)" != 0 ] || scripts/peers.sh
	$(CARGO) build --release --locked -p barograph -p barograph-python
	$(PYTHON) scripts/staging_evaluation.py $(ARGS)

web: ## build the page into web/dist
	cd web && npm ci && npm run build

docs: ## the documentation of the crates, in target/doc
	$(CARGO) doc --workspace --exclude barograph-python --no-deps --locked

bench: ## measure, beside peers; writes target/bench.json
	@[ "$$(id -u)" != 0 ] || scripts/peers.sh
	$(CARGO) build --release --locked -p barograph -p barograph-bench
	target/release/barograph-bench $(ARGS)

install: ## build in release; put baro, libbaro and headers below PREFIX (/usr/local)
	$(CARGO) build --release --locked -p barograph -p barograph-libbaro
	scripts/install.sh target/release "$(DESTDIR)" "$(PREFIX)"

clean: ## remove all that was built or installed here
	rm -rf target .venv web/node_modules e2e/browser/node_modules
