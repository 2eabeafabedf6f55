# Every command of the house. A fresh machine needs Python (>=3.11,<3.14) with venv, and make.
#   make test PYTHON=python3.12      another interpreter (rebuilds .venv); VENV=folder keeps the two apart

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check --quiet
PYTEST := $(PY) -m pytest --quiet
ROOMS  := events proxy replay

.DELETE_ON_ERROR:
.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand --tabs=14

# --- the environment -------------------------------------------------------------------------------------------------

.PHONY: install
install: $(VENV)/.installed ## .venv from the lock, and the rooms as wiretape.* in it

# The interpreter is part of the stamp's name, so that another PYTHON=... rebuilds. Always from empty: nothing outlives
# a changed lock.
LOCKED := $(VENV)/.locked-$(subst /,_,$(PYTHON))
$(LOCKED): requirements-dev.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --require-hashes --no-deps -r requirements-dev.txt
	@touch $@

# The strict editable install links the files that exist when it is made: it depends on their list, not their contents.
$(VENV)/.rooms: $(LOCKED) FORCE
	@find $(ROOMS) -name '*.py' -o -name py.typed | LC_ALL=C sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# For pyright (see pyproject.toml); and, since the install lies below build/ too, the sign that `rm -r build` took both.
build/types/wiretape:
	@mkdir -p $@
	@ln -s $(addprefix ../../../,$(ROOMS)) $@

$(VENV)/.installed: $(LOCKED) $(VENV)/.rooms build/types/wiretape pyproject.toml setup.cfg
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

COMPILE := $(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url
.PHONY: lock
lock: install ## both lock files anew from pyproject.toml (add UPGRADE=--upgrade for newer versions)
	$(COMPILE) $(UPGRADE) pyproject.toml --output-file requirements.txt
	$(COMPILE) $(UPGRADE) --extra dev pyproject.toml --output-file requirements-dev.txt

# --- to look at it ---------------------------------------------------------------------------------------------------

# What users install, without the tools of this house: seconds instead of minutes. The rooms are linked, not built.
RUN_VENV := .venv-run
RUN      := $(RUN_VENV)/bin/wiretape
$(RUN): requirements.txt
	$(PYTHON) -m venv --clear $(RUN_VENV)
	$(RUN_VENV)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps -r requirements.txt
	@pwd | sed 's|$$|/build/types|' > "$$(echo $(RUN_VENV)/lib/python*/site-packages)/wiretape.pth"
	@printf '#!%s/$(RUN_VENV)/bin/python\nfrom wiretape.proxy.cli.main import main\n\nmain()\n' "$$(pwd)" > $@
	@chmod +x $@

.PHONY: demo
demo: $(RUN) build/types/wiretape ## what it does, in three streams and without any provider
	@$(RUN) demo

.PHONY: serve
serve: $(RUN) build/types/wiretape ## before a provider: make serve UPSTREAM=https://api.example.com/v1
	@$(RUN) serve --upstream "$(UPSTREAM)"

# --- every day -------------------------------------------------------------------------------------------------------

.PHONY: test
test: install ## the default suite, on a fresh machine too (under 5 minutes)
	$(PYTEST) --numprocesses auto --dist worksteal

# pyright keeps one core busy for as long as the tests need both: side by side, each one's words in one piece.
.PHONY: check
check: lint ## format, lint, rooms, types, fast tests (a minute to a minute and a half)
	@$(MAKE) --no-print-directory --jobs 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) types quick

.PHONY: lint
lint: install
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports --no-logo

.PHONY: types
types: install
	$(VENV)/bin/mypy
	$(VENV)/bin/pyright --pythonpath $(PY)

# Half of what all tests that are not slow take, in a tenth of the files: whole streams through the whole proxy, and
# tables of secrets. `make check` leaves them to `make test`.
LONGER := tests/failures tests/conformance tests/proxy/test_catalogue.py tests/proxy/test_masking.py \
	$(addprefix tests/replay/test_,$(addsuffix .py,beginnings channels coded fixtures formats key prompts seal sealed serving \
	shapes sound))
.PHONY: quick
quick: install
	$(PYTEST) --numprocesses auto --dist worksteal -m "not slow" $(LONGER:%=--ignore=%)

.PHONY: fast
fast: install
	$(PYTEST) --numprocesses auto --dist worksteal -m "not slow"

.PHONY: format
format: install ## rewrites what `make check` would only complain about
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

.PHONY: docs
docs: install ## the documents that are drawn from the code
	$(PY) -m tests.support.docs

# --- heavy -----------------------------------------------------------------------------------------------------------

# Tests beside those of tests/failures that name the case which they show.
NAMED := aborts cancel_sweep durability kill recovery
.PHONY: failures
failures: install ## every failure case through the whole proxy, and docs/internals/failures.md anew
	WIRETAPE_LAWS=full $(PYTEST) --numprocesses auto -p tests.failures.report tests/failures $(NAMED:%=tests/proxy/test_%.py)

.PHONY: coverage
coverage: install ## branch coverage of events/ by its fast tests (100 %)
	$(PY) -m coverage run -m pytest --quiet -m "not slow" tests/events
	$(PY) -m coverage report

# Of these too the default suite takes a sample: of the captures, of the cancels, of what is sealed.
SAMPLED := tests/events/test_emit.py tests/proxy/test_catalogue.py tests/conformance/test_openai_python.py \
    tests/proxy/test_cancellation.py tests/failures/test_upstream_limits.py tests/failures/test_upstream_frames.py
.PHONY: laws
laws: replay-laws ## the laws over the full product of splits, line endings and cuts
	WIRETAPE_LAWS=full $(PYTEST) --numprocesses auto tests/laws $(SAMPLED) tests/proxy/test_cancel_sweep.py
	$(PY) -m tests.laws.runs 2000

.PHONY: replay-laws
replay-laws: install ## every captured stream sealed, normalised, redacted, compared and exported; part of `make laws`
	WIRETAPE_LAWS=full $(PYTEST) --numprocesses auto tests/replay

# The default suite has a bounded number of each; here they print what they measured (docs/internals/laws.md).
.PHONY: runs
runs: install ## 2,000 seeded runs of the whole proxy, each twice: every reader against the tape
	$(PY) -m tests.laws.runs 2000

.PHONY: kills
kills: install ## 200 real kill -9 of a proxy under load: every delivered frame is on the tape
	$(PY) -m tests.proxy.kills 200

.PHONY: aborts
aborts: install ## 20,000 requests that are aborted at random moments: nothing is left
	$(PY) -m tests.proxy.aborts 20000

.PHONY: mutants
mutants: install ## mutation testing of codec, tape and repair
	$(PY) tests/mutants/run.py

.PHONY: fuzz
fuzz: install ## coverage-guided fuzzing, ten minutes a target
	$(PY) tests/fuzz/run.py

.PHONY: bench
bench: install ## the speed of the core, with its floors
	$(PY) -m tests.bench

# --- what the proxy costs --------------------------------------------------------------------------------------------

# The opponents live in environments of their own, from locks of their own; nothing of theirs is a dependency of ours.
YARDSTICK := tests/bench/yardstick
OPPONENTS := .cache/bench
$(OPPONENTS)/%/.installed: $(YARDSTICK)/%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps -r $<
	@touch $@

.PHONY: bench-proxy
bench-proxy: install $(OPPONENTS)/relay/.installed $(OPPONENTS)/litellm/.installed ## the proxy's cost beside a relay and LiteLLM, with its bars
	$(PY) -m tests.bench.proxy $(BENCH)

COMMIT ?= HEAD~1
.PHONY: bench-against
bench-against: install $(OPPONENTS)/relay/.installed ## the core and the proxy beside an earlier commit, in alternating runs: make bench-against COMMIT=abc123
	$(PY) -m tests.bench.against $(COMMIT)
	$(PY) -m tests.bench.proxy_against $(COMMIT)

.PHONY: bench-replay
bench-replay: install ## tapes of 100 MB read, folded and emitted: events a second and memory, with their bars (three minutes)
	$(PY) -m tests.bench.replay

.PHONY: bench-recording
bench-recording: install ## what recording adds to a read, in alternating turns; writes its part of docs/recording.md
	$(PY) -m tests.bench.recording

.PHONY: bench-lock
bench-lock: install ## the opponents' locks anew (add UPGRADE=--upgrade for newer versions)
	$(COMPILE) --no-annotate $(UPGRADE) $(YARDSTICK)/relay.in --output-file $(YARDSTICK)/relay.txt
	$(COMPILE) --no-annotate $(UPGRADE) $(YARDSTICK)/litellm.in --output-file $(YARDSTICK)/litellm.txt

SECONDS ?= 600
.PHONY: soak
soak: install ## ten minutes of mixed faults at 50 streams: memory, descriptors and tasks stay flat (SECONDS=30 for a short one)
	$(PY) -m tests.soak --seconds $(SECONDS)

# Real clients and real upstreams, where there is npm. All packages are locked by version and hash; the registries are the
# machine's. From empty it takes a quarter of an hour, most of it to build llama-cpp-python, once.
.PHONY: test-real
test-real: test-node stories ## real clients, directly and through the proxy; writes docs/internals/real-peers.md, compatibility.md and hermes.md
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory real-peers && $(PY) -m tests.real && $(PY) -m tests.real.matrix && $(PY) -m tests.real.hermes; \
	else \
	    echo "UNTESTED: no npm found, so no real client asked a real upstream"; \
	fi

# What installs and starts within seconds; the whole of it, from empty, stays below five minutes.
.PHONY: test-real-ci
test-real-ci: install ## the part of it for CI: one upstream and one cut, the clients that start in seconds
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory real-clients && $(PY) -m tests.real --part ci --seconds 180 \
	        && $(PY) -m tests.real.matrix --part ci; \
	else \
	    echo "UNTESTED: no npm found, so no real client asked a real upstream"; \
	fi

.PHONY: stories
stories: install ## the users' stories with all their clients: openai, LangChain, anthropic, Node, curl; where there is npm
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory real-clients $(REAL)/anthropic/.installed; \
	else \
	    echo "UNTESTED: no npm found, so LangChain, anthropic and the SDK for Node read no tape"; \
	fi
	cd tests/stories && CI=1 $(abspath $(PY)) -m pytest --quiet -rs -p no:cacheprovider

REAL := .cache/real
.PHONY: real-clients
real-clients: install tests/real/node/node_modules $(REAL)/clients/.installed

.PHONY: real-peers
real-peers: real-matrix $(REAL)/litellm/.installed $(REAL)/llama/.ready

# The clients of the matrices (tests/real/matrix), which pin what the others pin otherwise.
.PHONY: real-matrix
real-matrix: real-clients $(foreach each,agents hermes litellm llama_index,$(REAL)/$(each)/.installed)

$(REAL)/%/.installed: tests/real/requirements/%.txt
	$(PYTHON) -m venv --clear $(REAL)/$*
	$(REAL)/$*/bin/python -m pip --disable-pip-version-check -qq install --require-hashes --no-deps -r $<
	@touch $@

# It comes as source only; the wheel outlives its environment. The weights are a model of ours (tests/real/tiny_gguf.py).
$(REAL)/wheels/.built: tests/real/requirements/llama_cpp_python.txt | $(REAL)/llama/.installed
	rm -rf $(@D)
	$(REAL)/llama/bin/python -m pip --disable-pip-version-check -qq wheel --require-hashes --no-deps -r $< -w $(@D)
	@touch $@

$(REAL)/llama/.ready: $(REAL)/llama/.installed $(REAL)/wheels/.built tests/real/tiny_gguf.py
	$(REAL)/llama/bin/python -m pip --disable-pip-version-check -qq install --no-deps $(REAL)/wheels/*.whl
	$(REAL)/llama/bin/python tests/real/tiny_gguf.py $(REAL)/tiny.gguf
	@touch $@

# Peers that record and replay, each in an environment of its own; one that cannot be installed is told in the table.
.PHONY: comparison-peers
comparison-peers: tests/real/node/node_modules $(foreach each,mitmproxy vcrpy,$(REAL)/$(each)/.installed)

.PHONY: replay-comparison
replay-comparison: install ## seven scenarios through aimock, VCR.py, mitmproxy and Wiretape; writes docs/internals/replay-comparison.md (five minutes)
	-$(MAKE) --no-print-directory --keep-going comparison-peers
	$(PY) -m tests.real.comparison

# Of the project's own tests; the tapes are made anew, from the same questions to the same upstreams.
.PHONY: record-fixtures
record-fixtures: real-peers ## every tape below fixtures/ anew, recorded from real upstreams (after `make real-peers`: two minutes)
	$(PY) -m tests.real.record_fixtures

REAL_LOCKS := $(patsubst %.in,%.txt,$(wildcard tests/real/requirements/*.in))
.PHONY: lock-real
lock-real: install ## the lock files of the real peers anew from their .in files (add UPGRADE=--upgrade)
	for lock in $(REAL_LOCKS); do \
	    case $$lock in *llama_cpp_python*) only=--no-deps;; *) only=;; esac; \
	    $(COMPILE) $(UPGRADE) $$only $${lock%.txt}.in --output-file $$lock || exit; \
	done

NODE := tests/conformance/node
%/node_modules: %/package-lock.json
	npm ci --prefix $*
	@touch $@

.PHONY: test-node
test-node: install ## the official openai SDK for Node over every captured chat stream, where there is npm
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory $(NODE)/node_modules && $(PY) -m tests.conformance.openai_node; \
	else \
	    echo "UNTESTED: no npm found, so the SDK for Node did not run"; \
	fi

.PHONY: conformance
conformance: install $(NODE)/node_modules ## docs/internals/conformance.md anew: both SDKs over every captured chat stream
	$(PY) -m tests.conformance.report

# Quart has one version pair below Python 3.13 and another from there on (pyproject.toml): both are products. Each
# candidate is run, because a shim on PATH may stand for an interpreter that is not there.
SUITE ?= test
.PHONY: test-next
test-next: ## the default suite (or SUITE=fast) under Python 3.13 and its version pair, where one is found
	@for next in python3.13 $(HOME)/.pyenv/versions/3.13*/bin/python3.13; do \
	    if "$$next" -c '' 2>/dev/null; then \
	        exec $(MAKE) --no-print-directory $(SUITE) PYTHON="$$next" VENV=.venv-next; \
	    fi; \
	done; \
	echo "UNTESTED: no Python 3.13 found, so the second version pair (quart 0.23, quart-trio 0.13) did not run"

.PHONY: FORCE
FORCE:
