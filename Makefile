# Every command a contributor needs. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

CARGO ?= cargo
# The lock file is the truth: a build that would change it fails.
LOCKED := --locked
PARTS := tests/parts
NODE := $(PARTS)/node/node_modules/.bin/node
SUITE := $(PARTS)/node/node_modules/@modelcontextprotocol/conformance/dist/index.js
REVISIONS := 2025-11-25 2026-07-28
FUZZ_SECONDS ?= 60
# Every file of tests but those that meet real servers and clients.
TESTS := $(notdir $(patsubst %/main.rs,%,$(wildcard crates/*/tests/*/main.rs))) \
  $(basename $(notdir $(wildcard crates/*/tests/*.rs)))
FAST_TESTS := $(sort $(filter-out real_parts,$(TESTS)))
BENCHES := $(basename $(notdir $(wildcard crates/warmline*/benches/*.rs)))

.PHONY: help check fmt lint test test-fast parts conformance snap docs demo demo-svg bench bench-quick soak pages fuzz audit tidy words before fmt-check test-all

help:        ## list the targets
	@sed -n 's/^\([a-z-]*\): .*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

check:       ## before a commit, no network: fmt, clippy, docs, fast tests
check: fmt-check words lint docs test-fast

fmt:         ## format the code
	$(CARGO) fmt --all

lint:        ## clippy, warnings denied, and no cycles between modules
	@echo '== clippy'
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	python3 tests/house/cycles.py --check

test:        ## what .ci/run runs: all tests, real servers, real clients and the conformance suite included
test: parts fmt-check words lint docs test-all
	@echo '== all of it passed: format, clippy, docs, tests with real servers and the conformance suite'

test-fast:   ## the tests that need no real servers and nothing installed
	@echo '== tests without the real parts'
	$(CARGO) build $(LOCKED) --workspace --examples
	$(CARGO) test $(LOCKED) --workspace --lib --bins $(FAST_TESTS:%=--test %)

parts:       ## install the real servers, the real clients and the conformance suite, pinned, for the tests
	@echo '== real servers, real clients and the conformance suite'
	@$(PARTS)/install.sh

conformance: ## the official suite, both legs, whole, at both revisions
conformance: parts
	$(CARGO) build $(LOCKED) -p warmline-testkit --example conformance_client
	@client=$$($(CARGO) metadata $(LOCKED) --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/examples/conformance_client; \
	outcome=0; \
	for revision in $(REVISIONS); do \
	  echo "== conformance, client leg, $$revision"; \
	  $(NODE) $(SUITE) client --command "$$client" --requirements "$$revision" --timeout 60000 \
	    --expected-failures $(PARTS)/conformance/$$revision.yaml || outcome=1; \
	done; \
	echo '== conformance, server leg, through the gateway'; \
	$(CARGO) test $(LOCKED) -p warmline-testkit --test real_parts -- server_leg || outcome=1; \
	exit $$outcome

snap:        ## review changed snapshots of the command line
	@$(CARGO) insta --version >/dev/null 2>&1 || { \
	  echo 'cargo-insta is not installed, and nothing else can write inline snapshots: cargo install cargo-insta'; \
	  exit 1; }
	$(CARGO) insta test --review -p warmline-cli

docs:        ## the reference documentation, broken links denied
	@echo '== docs'
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(LOCKED) --workspace --lib --no-deps

demo:        ## the demo of the README, start to finish
	$(CARGO) run $(LOCKED) -- demo

demo-svg:    ## record the demo for the README
	$(CARGO) build $(LOCKED)
	docs/record_demo.py target/debug/warmline docs/demo.svg

bench:       ## leases, held sessions and spares beside what they save, as ratios of one run
bench: parts
	$(CARGO) bench $(LOCKED) -p warmline -p warmline-pool $(BENCHES:%=--bench %) --no-run
	taskset -c 0 $(CARGO) bench $(LOCKED) -p warmline -p warmline-pool $(patsubst %,--bench %,$(filter-out real_servers,$(BENCHES)))
	@echo '== real servers, on one core'
	taskset -c 0 $(CARGO) bench $(LOCKED) -p warmline --bench real_servers
	@echo '== real servers, on all cores'
	$(CARGO) bench $(LOCKED) -p warmline --bench real_servers

bench-quick: ## the gateway beside nginx in front of a fast server, all on one core, as ratios of one run
	@command -v nginx >/dev/null || { echo '== installing nginx'; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nginx-light >/dev/null; }
	$(CARGO) bench $(LOCKED) -p warmline-gateway --bench quick --no-run
	taskset -c 0 $(CARGO) bench $(LOCKED) -p warmline-gateway --bench quick

soak:        ## what runs for long: schedules, state machines, storms, thousands of runs
	@echo '== soak: schedules'
	WARMLINE_SCHEDULES=20000 $(CARGO) test $(LOCKED) --profile soak -p warmline-pool --test schedules
	@echo '== soak: state machines'
	WARMLINE_CASES=20000 $(CARGO) test $(LOCKED) --profile soak -p warmline-core --test core_rules pool
	@echo '== soak: runs, one after the other and side by side'
	WARMLINE_RUNS=10000 $(CARGO) test $(LOCKED) --profile soak -p warmline-testkit --test endurance many_runs -- --nocapture
	@echo '== soak: storms of restarts'
	WARMLINE_STORM=10 $(CARGO) test $(LOCKED) --profile soak -p warmline-testkit --test engine crash_storm
	@echo '== soak: hostile clients'
	WARMLINE_HOSTILE=100000 $(CARGO) test $(LOCKED) --profile soak -p warmline-testkit --test endurance hostile_clients -- --nocapture
	@echo '== soak: scripts, direct and through the gateway'
	WARMLINE_SCRIPTS=5000 $(CARGO) test $(LOCKED) --profile soak -p warmline-testkit --test gateway differential

pages:       ## write the generated pages of docs/
	$(CARGO) test $(LOCKED) -q -p warmline-core --test core_rules -- --ignored write_the_page_of_states
	$(CARGO) test $(LOCKED) -q -p warmline-config --lib -- --ignored write_the_reference_page
	WARMLINE_BLESS=1 $(CARGO) test $(LOCKED) -q -p warmline-testkit --test engine -- the_page_of_metrics
	WARMLINE_BLESS=1 $(CARGO) test $(LOCKED) -q -p warmline-testkit --test project guarantees

before:      ## write what a program of before kept, for the tests of promises: WARMLINE_BEFORE=PROGRAM
	$(CARGO) test $(LOCKED) -q -p warmline-cli --test promises -- --ignored write_what_is_kept

fuzz:        ## a minute of each fuzz target
	@for target in $(basename $(notdir $(wildcard fuzz/targets/*.rs))); do \
	  echo "== fuzz $$target for $(FUZZ_SECONDS) s"; \
	  fuzz/run.sh "$$target" $(FUZZ_SECONDS); \
	done

audit:       ## licences, sources, banned crates
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	  $(CARGO) deny check licenses bans sources; \
	else \
	  echo 'cargo-deny is not installed, so deny.toml was not asked: cargo install cargo-deny'; exit 1; \
	fi

words:       ## names that must not come back (tests/words.txt)
	@python3 tests/words.py

tidy:        ## what a reviewer would say: long files, unnumbered TODOs, names that say nothing
	@tests/tidy.sh

fmt-check:
	@echo '== format'
	$(CARGO) fmt --all --check

test-all:
	@echo '== tests'
	$(CARGO) test $(LOCKED) --workspace --no-fail-fast 2>&1 | awk '{ print; fflush() } \
	  /^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
	  END { printf "== tests: %d passed, %d failed, %d ignored\n", passed, failed, ignored }'
