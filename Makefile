# Every command of the project. A fresh machine needs Python (>=3.11,<3.14) with venv, and make.
#   make test PYTHON=python3.12      another interpreter (rebuilds .venv); VENV=folder keeps both

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check --quiet
PYTEST := $(PY) -m pytest --quiet
PACKAGES := events proxy replay
# The package `wiretape` itself.
ROOT_FILES := $(addprefix proxy/wiretape/,__init__.py __main__.py py.typed)

# Set in some containers. The tests start some two hundred processes, which would compile every module they import.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand --tabs=14

# --- the environment -------------------------------------------------------------------------------------------------

.PHONY: install
install: $(VENV)/.installed ## create .venv from the lock and install wiretape into it

# Empty if $(PYTHON) can make an environment; otherwise the reason, in any Python. Debian splits ensurepip off from venv.
UNSUITABLE = $(shell $(PYTHON) -c 'import sys; v = sys.version_info[:2]; fits = (3, 11) <= v <= (3, 13); \
    print("" if fits and __import__("venv") and __import__("ensurepip") else "is Python %d.%d" % v)' 2>/dev/null \
    || echo "does not run or has no venv (on Debian and Ubuntu: python3-venv)")
CHECK_PYTHON = $(if $(UNSUITABLE),$(error Wiretape needs Python 3.11, 3.12 or 3.13 with venv, and $(PYTHON) $(UNSUITABLE). \
    Choose another one: make $(MAKECMDGOALS) PYTHON=python3.12))

# The interpreter is part of the stamp's name, so another PYTHON=... rebuilds. Always from empty: nothing survives a
# changed lock.
LOCKED := $(VENV)/.locked-$(subst /,_,$(PYTHON))
$(LOCKED): requirements-dev.txt
	$(CHECK_PYTHON)$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --require-hashes --no-deps -r requirements-dev.txt
	@touch $@

# The strict editable install links the files that exist when it runs, so it depends on their list, not their contents.
$(VENV)/.files: $(LOCKED) FORCE
	@find $(PACKAGES) -name '*.py' -o -name py.typed -o -path '*/inspector/*' -type f ! -name '*.pyc' | LC_ALL=C sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# For pyright (see pyproject.toml). The install is below build/ too: if this is missing, `rm -r build` removed both.
LINKS := build/types/wiretape
$(LINKS)/__init__.py:
	@rm -rf $(LINKS) && mkdir -p $(LINKS)
	@ln -s $(addprefix ../../../,$(PACKAGES) $(ROOT_FILES)) $(LINKS)

$(VENV)/.installed: $(LOCKED) $(VENV)/.files $(LINKS)/__init__.py pyproject.toml setup.cfg
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

COMPILE := $(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url
.PHONY: lock
lock: install ## update the lock files from pyproject.toml (UPGRADE=--upgrade for newer versions)
	$(COMPILE) $(UPGRADE) --extra postgres pyproject.toml --output-file requirements.txt
	$(COMPILE) $(UPGRADE) --extra dev pyproject.toml --output-file requirements-dev.txt
	$(COMPILE) $(UPGRADE) --resolution lowest-direct pyproject.toml --output-file tests/real/requirements/lowest.txt

# --- try it ---------------------------------------------------------------------------------------------------

# What users install, without development tools: seconds instead of minutes. The packages are linked, not built.
RUN_VENV := .venv-run
RUN      := $(RUN_VENV)/bin/wiretape
$(RUN): requirements.txt
	$(CHECK_PYTHON)$(PYTHON) -m venv --clear $(RUN_VENV)
	$(RUN_VENV)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps -r requirements.txt
	@pwd | sed 's|$$|/build/types|' > "$$(echo $(RUN_VENV)/lib/python*/site-packages)/wiretape.pth"
	@printf '#!%s/$(RUN_VENV)/bin/python\nfrom wiretape.__main__ import main\n\nmain()\n' "$$(pwd)" > $@
	@chmod +x $@

.PHONY: demo
demo: $(RUN) $(LINKS)/__init__.py ## show what it does with three streams, without a provider
	@$(RUN) demo

.PHONY: serve
# docs/guides/production.md
ALLOCATOR := MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072 MALLOC_TRIM_THRESHOLD_=262144
serve: $(RUN) $(LINKS)/__init__.py ## run in front of a provider: make serve UPSTREAM=https://api.example.com/v1
	@$(ALLOCATOR) $(RUN) serve --upstream "$(UPSTREAM)"

# --- every day -------------------------------------------------------------------------------------------------------

.PHONY: test
test: install ## run the default suite (installs on a fresh machine)
	$(PYTEST) --numprocesses auto --dist worksteal

# Types and tests run in parallel; output-sync keeps their output apart.
.PHONY: check
check: lint ## run format, lint, import rules, types and fast tests
	@$(MAKE) --no-print-directory --jobs 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) types quick

.PHONY: lint
lint: install
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports --no-logo
	$(PY) -m tests.house.english

.PHONY: types
types: install
	$(VENV)/bin/mypy
	$(VENV)/bin/pyright --pythonpath $(PY)

# Half of the fast tests' time in a tenth of the files: whole streams through the whole proxy and tables of secrets.
# `make check` leaves them to `make test`.
LONGER := tests/failures tests/conformance tests/proxy/test_catalogue.py tests/proxy/test_masking.py \
	$(addprefix tests/replay/test_,$(addsuffix .py,body_codec fixtures formats incomplete_secrets joined_text json_safety \
	key prompts seal sealed serving shapes))
.PHONY: quick
quick: install
	$(PYTEST) --numprocesses auto --dist worksteal -m "not slow" $(LONGER:%=--ignore=%)

.PHONY: fast
fast: install
	$(PYTEST) --numprocesses auto --dist worksteal -m "not slow"

.PHONY: format
format: install ## fix what `make check` would report
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

.PHONY: docs
docs: install ## regenerate the documents that come from the code
	$(PY) -m tests.support.docs

.PHONY: test-docs
test-docs: install ## run every command of the documents; the default suite runs those of README.md
	DOCUMENTS=all $(PYTEST) --numprocesses auto --dist worksteal tests/docs/test_commands.py

.PHONY: newcomer
newcomer: install ## follow README and tutorial to the letter in an empty home, with the built wheel and a stopwatch
	$(PY) -m tests.docs.newcomer

# --- heavy -----------------------------------------------------------------------------------------------------------

# Tests outside tests/failures that name the failure case they show.
NAMED := cancel_sweep durability processes recovery
.PHONY: failures
failures: install ## run every failure case through the whole proxy, write docs/internals/failures.md
	WIRETAPE_LAWS=full $(PYTEST) --numprocesses auto -p tests.failures.report tests/failures $(NAMED:%=tests/proxy/test_%.py)

# The tests outside tests/events of what only the proxy and the replay tools ask of events/.
COVERING := tests/failures/test_dialect_streams.py $(addprefix tests/proxy/test_,crossing.py faults_of_counting.py \
	stream_request.py summary.py) $(addprefix tests/replay/test_,every_dialect.py faults.py)
.PHONY: coverage
coverage: install ## measure branch coverage of events/ by its fast tests (100 %)
	$(PY) -m coverage run -m pytest --quiet -m "not slow" tests/events $(COVERING)
	$(PY) -m coverage report

# The default suite takes a sample of these: of the captures, the cancels, the sealed streams.
SAMPLED := tests/events/test_emit.py tests/proxy/test_catalogue.py tests/conformance/test_openai_python.py tests/conformance/test_dialects.py \
    tests/proxy/test_cancellation.py tests/failures/test_upstream_limits.py tests/failures/test_upstream_frames.py
.PHONY: laws
laws: replay-laws run-laws ## run the laws over the full product of splits, line endings and cuts
	WIRETAPE_LAWS=full $(PYTEST) --numprocesses auto tests/laws $(SAMPLED) tests/proxy/test_cancel_sweep.py
	$(PY) -m tests.laws.runs 2000

.PHONY: same-truth
same-truth: install ## compare every captured chat stream with an older worktree: make same-truth BASE=/path [CUTS=200]
	$(PY) -m tests.laws.same_truth $(BASE) --cuts $(or $(CUTS),200)

.PHONY: replay-laws
replay-laws: install ## seal, normalise, redact, compare and export every captured stream
	WIRETAPE_LAWS=full $(PYTEST) --numprocesses auto tests/replay

# The default suite runs a bounded number of each; these print what they measured (docs/internals/laws.md).
.PHONY: runs
runs: install ## 2,000 seeded runs of the whole proxy, each twice, every reader checked against its tape
	$(PY) -m tests.laws.runs 2000

.PHONY: run-laws
run-laws: install ## seeded stories of /v1/runs, on one machine and on three: each viewer gets one complete history
	$(PY) -m tests.laws.run_laws 1000
	$(PY) -m tests.laws.run_machines 300

.PHONY: kills
kills: run-kills ## kill -9 a proxy under load 200 times: every delivered frame is on its tape
	$(PY) -m tests.proxy.kills 200

.PHONY: run-kills
run-kills: install ## kill -9 a proxy in the middle of 50 runs 20 times: every state right, every event on its tape
	$(PY) -m tests.proxy.run_kills 20

.PHONY: sweep
sweep: install ## fail every system call of a scenario once in a real proxy, write docs/internals/faults.md (needs cc)
	$(PY) -m tests.sweep $(SWEEP)

.PHONY: aborts
aborts: install ## abort 20,000 requests at random moments: nothing leaks
	$(PY) -m tests.proxy.aborts 20000

.PHONY: mutants
mutants: install ## mutation testing of events/
	$(PY) tests/mutants/run.py

.PHONY: fuzz
fuzz: install ## coverage-guided fuzzing, ten minutes per target
	$(PY) tests/fuzz/run.py

.PHONY: walk
walk: install ## count the calls and files of one streamed request, step by step
	$(PY) -m tests.bench.walk
	$(PY) -m tests.bench.walk --client responses
	$(PY) -m tests.bench.walk --client messages
	$(PY) -m tests.bench.walk_seal

.PHONY: bench
bench: install ## measure the speed of the core against its limits, and how the search for secrets grows
	$(PY) -m tests.bench
	$(PY) -m tests.bench.search_growth

# --- what the proxy costs --------------------------------------------------------------------------------------------

# The opponents have their own environments and locks; none of their packages is a dependency of ours.
YARDSTICK := tests/bench/yardstick
OPPONENTS := .cache/bench
$(OPPONENTS)/%/.installed: $(YARDSTICK)/%.txt
	$(CHECK_PYTHON)$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps -r $<
	@touch $@

.PHONY: bench-proxy
bench-proxy: install $(OPPONENTS)/relay/.installed $(OPPONENTS)/litellm/.installed ## measure the proxy against a raw relay and LiteLLM
	$(PY) -m tests.bench.proxy $(BENCH)

.PHONY: bench-dialects
bench-dialects: install ## CPU time per frame of every dialect and of crossed streams, against plain chat
	@mkdir -p .cache/bench
	$(PY) -m tests.bench.dialects

.PHONY: bench-runs
bench-runs: install ## 500 runs with two viewers each: events lost, lag, CPU against plain streams
	$(PY) -m tests.bench.runs

.PHONY: bench-workers
bench-workers: install ## two workers against one process, each under 40 % of a core (needs root and cgroup v1)
	@mkdir -p .cache/bench
	$(PY) -m tests.bench.workers

.PHONY: capacity
capacity: install ## what 1,000 to 10 million streams need, from measured costs; writes docs/internals/capacity.md
	$(PY) -m tests.bench.capacity

COMMIT ?= HEAD~1
.PHONY: bench-inspectors
bench-inspectors: install ## a busy proxy with ten open inspectors: latency and CPU per frame within 5 %
	@mkdir -p .cache/bench
	$(PY) -m tests.bench.inspectors

.PHONY: bench-against
bench-against: install $(OPPONENTS)/relay/.installed ## compare core and proxy with an earlier commit, alternating runs: make bench-against COMMIT=abc123
	$(PY) -m tests.bench.against $(COMMIT)
	$(PY) -m tests.bench.against --part proxy $(COMMIT)

.PHONY: bench-lock
bench-lock: install ## update the opponents' locks (UPGRADE=--upgrade for newer versions)
	$(COMPILE) --no-annotate $(UPGRADE) $(YARDSTICK)/relay.in --output-file $(YARDSTICK)/relay.txt
	$(COMPILE) --no-annotate $(UPGRADE) $(YARDSTICK)/litellm.in --output-file $(YARDSTICK)/litellm.txt

LOAD_SECONDS ?= 12
.PHONY: hostile-loads
hostile-loads: install ## ten loads that want memory, with memory_max_bytes; all of them write docs/internals/hostile-loads.md
	$(PY) -m tests.proxy.hostile $(LOADS) --seconds $(LOAD_SECONDS) $(if $(LOADS),,--write)

SECONDS ?= 600
.PHONY: soak
soak: install ## ten minutes of mixed faults at 50 streams; memory, descriptors and tasks stay flat (SECONDS=30 for less)
	$(ALLOCATOR) $(PY) -m tests.soak --seconds $(SECONDS)

# Real clients and real upstreams; needs npm. All packages are locked by version and hash. The first run takes a quarter
# of an hour, most of it to build llama-cpp-python.
.PHONY: test-real
test-real: test-node stories ## run real clients directly and through the proxy; writes real-peers.md, compatibility.md, clients.md, translators.md, hermes.md and hermes-runs.md
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory real-peers real-agents && $(PY) -m tests.real && $(PY) -m tests.real.matrix \
	        && $(PY) -m tests.real.translators && $(PY) -m tests.real.dialects.guides && $(PY) -m tests.real.dialects \
	        && $(PY) -m tests.real.hermes && $(PY) -m tests.real.hermes_runs; \
	else \
	    echo "UNTESTED: no npm found, so no real client ran"; \
	fi

# The part that installs and starts within seconds; under five minutes from empty.
.PHONY: test-real-ci
test-real-ci: install ## the part for CI: one upstream, one cut, the clients that start in seconds
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory real-clients tests/real/programs/node_modules \
	        && $(PY) -m tests.real --part ci --seconds 180 && $(PY) -m tests.real.matrix --part ci \
	        && $(PY) -m tests.real.dialects.guides codex claude && $(PY) -m tests.real.dialects --part ci && $(PY) -m tests.conformance.readers --part ci; \
	else \
	    echo "UNTESTED: no npm found, so no real client ran"; \
	fi

.PHONY: stories
stories: install ## the user stories with all clients: openai, LangChain, anthropic, Node, curl (needs npm)
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory real-clients $(REAL)/anthropic/.installed; \
	else \
	    echo "UNTESTED: no npm found, so LangChain, anthropic and the Node SDK did not run"; \
	fi
	cd tests/stories && CI=1 $(abspath $(PY)) -m pytest --quiet -rs -p no:cacheprovider

REAL := .cache/real
.PHONY: real-clients
real-clients: install tests/real/node/node_modules $(REAL)/clients/.installed

.PHONY: real-peers
real-peers: real-matrix $(REAL)/litellm/.installed $(REAL)/llama/.ready

# The agents and translators of the three dialects, 1.2 GB.
.PHONY: real-agents
real-agents: real-clients $(foreach each,programs node22,tests/real/$(each)/node_modules) \
    $(foreach each,lines vercel,tests/real/node22/$(each).mjs) $(foreach each,agents translators,$(REAL)/$(each)/.installed)

# Copies, because Node looks for packages next to the program.
tests/real/node22/%.mjs: tests/real/node/%.mjs
	cp $< $@

# The clients of tests/real/matrix; they pin other versions than the rest.
.PHONY: real-matrix
real-matrix: real-clients $(foreach each,agents hermes litellm llama_index,$(REAL)/$(each)/.installed)

$(REAL)/%/.installed: tests/real/requirements/%.txt
	$(CHECK_PYTHON)$(PYTHON) -m venv --clear $(REAL)/$*
	$(REAL)/$*/bin/python -m pip --disable-pip-version-check -qq install --require-hashes --no-deps -r $<
	@touch $@

# Own endpoints that never end are left out. The environment is apart: the tool's pytest plugin would slow every test.
.PHONY: fuzz-api
fuzz-api: install $(REAL)/schemathesis/.installed ## five minutes of requests made from the OpenAPI document: no 500, every answer as documented
	$(PY) -m tests.fuzz.api --seconds $(or $(API_SECONDS),300)

.PHONY: wheel
wheel: install ## build dist/, from which the image is made
	rm -rf dist
	$(PY) -m build --no-isolation --outdir dist >/dev/null

.PHONY: test-deploy
test-deploy: wheel $(REAL)/deploy/.installed ## lint deploy/, and run the image's command line read-only, without user, home or capabilities
	$(PY) -m tests.deploy $(REAL)/deploy/bin

.PHONY: test-telemetry
test-telemetry: install $(REAL)/phoenix/.installed ## alerts and every panel on a real Prometheus, traces to a real Phoenix and read by OpenTelemetry's own package
	$(PY) -m tests.telemetry $(REAL)/phoenix

.PHONY: test-telemetry-ci
test-telemetry-ci: install ## the part for CI: alerts and panels
	$(PY) -m tests.telemetry

# Source only; the wheel outlives its environment. The weights are our own tiny model (tests/real/tiny_gguf.py).
$(REAL)/wheels/.built: tests/real/requirements/llama_cpp_python.txt | $(REAL)/llama/.installed
	rm -rf $(@D)
	$(REAL)/llama/bin/python -m pip --disable-pip-version-check -qq wheel --require-hashes --no-deps -r $< -w $(@D)
	@touch $@

$(REAL)/llama/.ready: $(REAL)/llama/.installed $(REAL)/wheels/.built tests/real/tiny_gguf.py
	$(REAL)/llama/bin/python -m pip --disable-pip-version-check -qq install --no-deps $(REAL)/wheels/*.whl
	$(REAL)/llama/bin/python tests/real/tiny_gguf.py $(REAL)/tiny.gguf
	@touch $@

# Re-records the project's own fixtures: the same questions to the same upstreams.
.PHONY: record-fixtures
record-fixtures: real-peers ## re-record every tape below fixtures/ from real upstreams (two minutes after `make real-peers`)
	$(PY) -m tests.real.record_fixtures

REAL_LOCKS := $(patsubst %.in,%.txt,$(wildcard tests/real/requirements/*.in))
.PHONY: lock-real
lock-real: install ## update the lock files of the real peers (UPGRADE=--upgrade for newer versions)
	for lock in $(REAL_LOCKS); do \
	    case $$lock in *llama_cpp_python*) only=--no-deps;; *) only=;; esac; \
	    $(COMPILE) $(UPGRADE) $$only $${lock%.txt}.in --output-file $$lock || exit; \
	done

# The theme and the pictures have their own environments; the default suite checks links and drawn pictures without them.
.PHONY: site
site: install $(REAL)/site/.installed ## build the documents as a site in build/site, with llms.txt and every page as Markdown
	$(PY) -m tests.docs.site $(REAL)/site/bin/zensical

# The inspector's page, in Debian's Chromium. The vendored file is preact/standalone.module.js of the package htm, unchanged.
UI := tests/ui/node/node_modules
UI_PRESENT := command -v npm >/dev/null && test -x /usr/bin/chromium
.PHONY: ui-check
ui-check: $(UI) ## check the page's types, and its vendored file against the package
	cmp $(UI)/htm/preact/standalone.module.js proxy/inspector/static/vendor/preact-htm.js
	! $(UI)/.bin/tsc --project tests/ui/tsconfig.json 2>&1 | grep -v /static/vendor/

.PHONY: test-ui
test-ui: install ## the inspector in Chromium: pages, keyboard, axe, foreign text, speed (needs npm and chromium)
	@if $(UI_PRESENT); then \
	    $(MAKE) --no-print-directory $(REAL)/ui/.installed ui-check && $(PYTEST) -p no:cacheprovider $(ONLY) tests/ui; \
	else \
	    echo "UNTESTED: no npm or no /usr/bin/chromium found, so the inspector's page did not run"; \
	fi

.PHONY: test-ui-ci
test-ui-ci: ## the part for CI, at most three minutes
	@$(MAKE) --no-print-directory test-ui ONLY='-m "not slow"'

# Its own PostgreSQL servers, as a user other than root. Debian: apt-get install postgresql.
.PHONY: test-postgres
test-postgres: install ## the store in PostgreSQL: several proxies, outages, faults, kills (ten minutes)
	$(PYTEST) -p no:cacheprovider $(ONLY) tests/postgres

.PHONY: test-postgres-ci
test-postgres-ci: install ## the part for CI, at most two minutes; without PostgreSQL it fails
	WIRETAPE_TEST_POSTGRES=required $(PYTEST) -p no:cacheprovider --numprocesses 2 --dist worksteal -m "not slow" tests/postgres

.PHONY: pictures
pictures: install $(REAL)/ui/.installed ## make the pictures in docs/pictures: diagrams, the demo's output, screenshots of the inspector
	$(PY) -m tests.docs.pictures

NODE := tests/conformance/node
NODE22 := tests/conformance/node22
# Node 22 comes with pyright, so npm may be older than some packages want; none of them is built.
%/node_modules: %/package-lock.json
	npm ci --prefix $*
	@touch $@

.PHONY: test-node
test-node: install ## run the openai Node SDK over every captured chat stream (needs npm)
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory $(NODE)/node_modules && $(PY) -m tests.conformance.openai_node; \
	else \
	    echo "UNTESTED: no npm found, so the Node SDK did not run"; \
	fi

.PHONY: conformance
conformance: $(NODE)/node_modules real-clients conformance-dialects ## run every reader over every captured stream, write docs/internals/conformance*.md
	$(PY) -m tests.conformance.report

.PHONY: conformance-dialects
conformance-dialects: install $(NODE22)/node_modules ## outside judges over Responses, Messages and crossed streams, write docs/internals/conformance-dialects.md
	$(PY) -m tests.conformance.dialects

.PHONY: readers
readers: install ## read every captured chat stream with LangChain, Vercel's ai and the openai helpers (needs npm)
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory real-clients && $(PY) -m tests.conformance.readers; \
	else \
	    echo "UNTESTED: no npm found, so LangChain, Vercel's ai and the openai helpers did not run"; \
	fi

# Quart needs one version pair below Python 3.13 and another from 3.13 on (pyproject.toml); both are supported. Each
# candidate is tried, because a shim on PATH may name an interpreter that is not installed.
SUITE ?= test
.PHONY: test-next
test-next: ## run the default suite (or SUITE=fast) under Python 3.13, if installed
	@for next in python3.13 $(HOME)/.pyenv/versions/3.13*/bin/python3.13; do \
	    if "$$next" -c '' 2>/dev/null; then \
	        exec $(MAKE) --no-print-directory $(SUITE) PYTHON="$$next" VENV=.venv-next; \
	    fi; \
	done; \
	echo "UNTESTED: no Python 3.13 found, so the second version pair (quart 0.23, quart-trio 0.13) did not run"

# The tests come from .venv. What touches a dependency: JSON, trio, httpx, Quart, the metrics, the command line, the plugin.
LOWEST := tests/events/test_json_text.py tests/events/emission $(addprefix tests/proxy/test_,$(addsuffix .py, \
    cli control server service store_files streams_api upstream)) $(addprefix tests/replay/test_,$(addsuffix .py, \
    demo pytest_plugin runs transport verify))
.PHONY: test-lowest
test-lowest: install $(REAL)/lowest/.installed ## run a part of the tests with the oldest versions that pyproject.toml allows
	@$(PY) -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
	    > "$$(echo $(REAL)/lowest/lib/python*/site-packages)/tests.pth"
	$(REAL)/lowest/bin/python -m pytest --quiet --numprocesses auto --dist worksteal -m "not slow" $(LOWEST)

.PHONY: resolve
resolve: install ## check that each Python has a wheel of every locked package
	@for version in 3.12 3.13 3.14; do \
	    $(PY) -m uv pip compile --quiet --only-binary :all: --python-version $$version requirements.txt >/dev/null \
	        && echo "wheels for Python $$version: all of requirements.txt" || exit; \
	done
	@echo "UNTESTED: no test runs on Python 3.14, which pyproject.toml refuses until pgjones/hypercorn#354 and #351 are fixed"

.PHONY: FORCE
FORCE:
