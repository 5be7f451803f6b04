# Two targets are all a newcomer needs: `make demo` and `make test`. Everything else they call themselves.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Bytecode makes every start twice as fast; some environments switch it off.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# The largest module of aws-cdk-lib takes uv's limit of 60 seconds where other work leaves a tenth of a core.
export UV_COMPILE_BYTECODE_TIMEOUT := 900
# Node.js may come from the venv.
export PATH := $(PATH):$(CURDIR)/$(BIN)
CATALOG := src/shiplap_lab/catalogue/data/.built
CODE := action layers src functions infra tests benchmarks tools

.PHONY: help setup dynamodb-local demo deploy-local test test-all deletable e2e e2e-short e2e-versions e2e-upstream verdicts kube karpenter check bench bench-karpenter docs site pictures upstream format clean lock simulate simulate-long mutants mutate fuzz model dist helm version release-check kills combinations conformance-scheduler conformance-karpenter

help: ## Show this help
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: .venv/.ready node_modules/.ready $(CATALOG) build/.layers build/parliament/.ready ## Install everything into .venv and node_modules (idempotent)

.venv/.ready: requirements/dev.txt requirements/bootstrap.txt pyproject.toml tools/find-python
	@echo "setup: the first time takes one to three minutes and 1.5 GB; later it takes a second"
	@python=$$(tools/find-python) && echo "setup: using $$python" && \
	  { [ -x $(BIN)/python ] && $(BIN)/python -c '' || "$$python" -m venv --clear .venv; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@echo "setup: 1 of 5, Python packages into .venv"
	@$(BIN)/uv pip sync --quiet --require-hashes --compile-bytecode --python $(BIN)/python requirements/dev.txt
	@$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python --editable .
	@touch $@

node_modules/.ready: package.json package-lock.json .venv/.ready
	@echo "setup: 2 of 5, the CDK's command into node_modules"
	@$(BIN)/npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# The downloads of the layers, done once, so that neither demo nor tests wait for them.
build/.layers: .venv/.ready $(CATALOG) requirements/lambda.txt $(wildcard src/shiplap_cdk/artifacts/*.py)
	@echo "setup: 4 of 5, the layers of the functions"
	@$(BIN)/python -m shiplap_cdk.artifacts.layers
	@touch $@

# A linter with an environment of its own: what it imports would hold back everything else.
build/parliament/.ready: .venv/.ready requirements/parliament.txt
	@echo "setup: 5 of 5, a linter of policies, for the tests"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/parliament
	@$(BIN)/uv pip sync --quiet --require-hashes --python build/parliament/bin/python requirements/parliament.txt
	@touch $@

# MkDocs has an environment of its own for the same reason; setup leaves it out.
build/mkdocs/.ready: .venv/.ready requirements/site.txt
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/mkdocs
	@$(BIN)/uv pip sync --quiet --require-hashes --python build/mkdocs/bin/python requirements/site.txt
	@touch $@

$(CATALOG): .venv/.ready tools/build_catalog.py layers/shiplap/python/shiplap/instances/catalog/ec2_catalog.py
	@echo "setup: 3 of 5, the catalogue of EC2's instance types"
	@$(BIN)/python tools/build_catalog.py
	@touch $@

demo: setup ## The whole system on this machine: pods pending in, nodes out, live
	@$(BIN)/shiplap lab dev --scenario flex-first

deploy-local: SCENARIO ?= flex-first

deploy-local: setup ## The stack as synthesised, deployed on a local emulator; SCENARIO=flex-first plays against it
	@$(BIN)/shiplap lab dev --once --scenario $(SCENARIO)

TESTS ?= tests

test: setup ## What finds what breaks, in minutes; of some folders alone: TESTS="tests/unit tests/conformance"
	@$(BIN)/pytest -n auto --dist worksteal -m "not e2e and not thorough" $(TESTS)

test-all: setup ## All tests, with deeper draws: what CI runs
	@SHIPLAP_TESTS=all $(BIN)/pytest -n auto --dist worksteal $(TESTS)

deletable: setup ## Each policy can be deleted: types, layers and all other tests of trees without their files
	@$(BIN)/pytest -v tests/deletability

# A minor version of tests/e2e/versions; empty means the newest.
K8S ?=
export SHIPLAP_KUBE_VERSION := $(K8S)

e2e: kube karpenter ## The tests that need a real Kubernetes control plane, built from Go modules first; K8S=1.33 selects the version
	@$(BIN)/pytest -m e2e tests/e2e tests/integration/contracts tests/simulation

# Without what takes many minutes.
e2e-short: kube
	@$(BIN)/pytest -m "e2e and not long" tests/simulation tests/integration/contracts tests/e2e

e2e-versions: setup ## The shorter of them on every version of Kubernetes in tests/e2e/versions; each takes 9 minutes to build
	@for folder in tests/e2e/versions/*/; do \
	  $(MAKE) --no-print-directory e2e-short K8S=$$(basename "$$folder"); done

CLUSTERS ?= 2

# A part keeps its outcomes, and goes on where it ended.
e2e-upstream: kube ## Karpenter's own suites against Shiplap; SUITE=aws PART=1/8 are its AWS provider's; ONLY=regexp selects tests, CLUSTERS=2 run side by side
	@$(BIN)/python -m tests.e2e.upstream.suites --clusters $(CLUSTERS) $(if $(SUITE),--suite $(SUITE)) $(if $(PART),--part $(PART)) $(if $(ONLY),--only '$(ONLY)')

verdicts: kube ## 100,000 manifests of a fresh seed: `shiplap validate` beside a real API server; SEED=… repeats one
	@SHIPLAP_VERDICTS=100000 SHIPLAP_SEED=$${SEED:-$$RANDOM$$RANDOM} $(BIN)/pytest -m e2e tests/e2e/test_api_server_verdicts.py

kube: setup
	@$(BIN)/python -m tests.e2e.programs

dynamodb-local: setup ## Amazon's DynamoDB Local from Maven: with it the tests of the stores run on it as well; needs Java and Maven
	@$(BIN)/python -m tests.dynamodb_local.server

# Upstream's controllers, without which the tests beside them are skipped.
karpenter: setup
	@$(BIN)/python -m tests.e2e.beside.karpenter || [ $$? = 3 ]

check: setup ## Style, types, layers: the checks of CI beside the tests
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check --quiet $(CODE)
	@$(BIN)/mypy --num-workers 2
	@$(BIN)/lint-imports

SUBJECT ?= *
# Every module runs but inputs that several share, and what needs Go.
BENCHMARKS = $(filter-out benchmarks/shared/% benchmarks/karpenter/%,$(wildcard benchmarks/$(SUBJECT)/*.py))

bench: setup ## Benchmarks, as tables; ends with their figures beside those of the commit before, and the bars that are missed; SUBJECT=planning runs one folder
	@missed=; for module in $(subst /,.,$(basename $(BENCHMARKS))); do \
	  echo; echo "== $$module"; $(BIN)/python -m "$$module" || missed="$$missed $$module"; done; \
	  $(BIN)/python -m benchmarks.shared.figures; \
	  [ -z "$$missed" ] || { echo "a bar is missed, or a run failed:$$missed" >&2; exit 1; }

INSTANCES ?= 50

bench-karpenter: setup ## Prices of plans beside Karpenter's own scheduler, compiled from its Go module; INSTANCES=50 SEED=0 LARGE=1
	@$(BIN)/python -m benchmarks.karpenter.karpenter_comparison --instances $(INSTANCES) --seed $(SEED) $(if $(LARGE),--large) || [ $$? = 3 ]

SEEDS ?= 20000
simulate-long: SCENARIO ?= mixed

# With STORE=dynamodb-local: 50 fresh seeds with the real adapter there and on the fake, which must have the same trace;
# with SHARE=0.04, faults are injected into this share of its requests, and only the promises count.
SHARE ?= 0

simulate: setup ## 2,000 seeds of everything going wrong, 500 of an unkind world, 50 each of twenty harder ones, in virtual time; or STORE=dynamodb-local
ifeq ($(STORE),dynamodb-local)
	@$(BIN)/python -m tests.dynamodb_local.server >/dev/null
	@$(BIN)/python -m tests.dynamodb_local.played mixed --seeds 50 --first $${SEED:-$$(date +%s)} --share $(SHARE)
else
	@$(BIN)/shiplap lab simulate mixed --seeds 2000
	@$(BIN)/shiplap lab simulate unkind --seeds 500
	@for name in constrained restored blocked-drains ceilings ceilings-monthly spot-risk commitments crowds long-taints long-refusals live-manifests sleep gangs gangs-requests undisturbed watched upgrade lagging strays edges two-installs races; do $(BIN)/shiplap lab simulate $$name --seeds 50 || exit 1; done
endif

simulate-long: setup ## SEEDS=20000 seeds of SCENARIO=mixed, or as asked; may be interrupted and continued
	@mkdir -p build && $(BIN)/shiplap lab simulate $(SCENARIO) --seeds $(SEEDS) --results build/$(SCENARIO).jsonl

mutants: setup ## Which defects, planted on purpose, the simulation finds, and after how many seeds
	@$(BIN)/shiplap lab simulate mixed --mutant list --seeds 500

# A sample of another seed shows other mutants; verdicts are kept in build/mutation, so that a run may be interrupted.
SEED ?= 0
MUTATE ?=

mutate: setup ## Mistakes in single lines, drawn by SEED, and the share that tests find; MUTATE='--only resume.py' chooses others
	@$(BIN)/python -m tools.mutation.mutate --seed $(SEED) $(MUTATE)

# With FUZZ=1000 fewer. A failure prints the input; it becomes a test case.
FUZZ ?= 100000

fuzz: setup ## Manifests, messages, answers of the API server and of EC2 gone wrong, bytes, globs, names: FUZZ=100000 of each kind, others each time
	@FUZZ_EXAMPLES=$(FUZZ) $(BIN)/pytest -q -n auto -m fuzz --show-capture=no tests/property tests/integration/test_odd_answers_of_ec2.py

# It goes on where it ended; results and shrunk failures are in build/combinations.
COUNT ?= 5000
LAWS ?=

combinations: setup ## Laws of plans on COUNT=5000 clusters in which every two options meet; SEED=… draws others, LAWS=5 judges each by five
	@$(BIN)/python -m tests.combinations --seed $(SEED) --count $(COUNT) $(if $(LAWS),--laws $(LAWS))

conformance-scheduler: CLUSTERS = 20000

conformance-scheduler: setup ## Bind the pods of plans for CLUSTERS=20000 drawn clusters with kube-scheduler's own filters; SEED=… draws others
	@$(BIN)/python -m tests.combinations --suite scheduler --seed $(SEED) --count $(CLUSTERS) || [ $$? = 3 ]

conformance-karpenter: CLUSTERS = 20000

conformance-karpenter: setup ## Zones used and pods left out beside Karpenter's own scheduler on CLUSTERS=20000 drawn clusters; SEED=… draws others
	@$(BIN)/python -m tests.combinations --suite karpenter --seed $(SEED) --count $(CLUSTERS) || [ $$? = 3 ]

model: setup ## The protocol's model in Promela, searched by Spin: its states, and the defects that it finds
	@$(BIN)/pytest -n 0 -s -v tests/model/test_*.py tests/model/long_protocol_search.py

# It goes on where it ended; its logs and summary are in build/kills.
KILLS ?= 200
LOAD ?= 8
SESSIONS ?= 1

kills: setup ## Kill each function of `shiplap lab dev` KILLS times beside LOAD=8 busy processes, in SESSIONS=1 at once, and explain each standstill
	@$(BIN)/python -m tools.kills --kills $(KILLS) --load $(LOAD) --sessions $(SESSIONS)

docs: setup ## Write llms.txt, docs/reference/commands.md from the commands' own help, the tables of fields, and the Grafana dashboard
	@$(BIN)/python tools/command_reference.py
	@$(BIN)/python tools/llms_text.py
	@$(BIN)/python tools/karpenter_fields.py
	@$(BIN)/python tools/kubernetes_fields.py
	@$(BIN)/python tools/api_types.py
	@$(BIN)/python tools/remedy_table.py
	@$(BIN)/python tools/ec2_fields.py
	@$(BIN)/python tools/settings_reference.py
	@$(BIN)/python tools/grafana_dashboard.py 2>/dev/null

site: setup build/mkdocs/.ready ## The documentation as a site in build/site, with search; a link that leads nowhere fails it
	@$(BIN)/python -m tools.documentation_site

pictures: setup ## Draw the terminal of README anew from what the commands print now
	@$(BIN)/python tools/terminal_picture.py

upstream: setup ## What changed in the CRDs of another Karpenter release: KARPENTER=v1.16.0; writes docs/reference/karpenter-fields.md from it
	@$(BIN)/python tools/karpenter_fields.py $(KARPENTER)

format: .venv/.ready ## Format the code
	@$(BIN)/ruff check --quiet --fix $(CODE) || true
	@$(BIN)/ruff format --quiet $(CODE)

dist: setup build/mkdocs/.ready ## All of a release in dist/, the same bytes for the same commit; SHIPLAP_SIGNING_KEY=FILE signs what it attests
	@$(BIN)/python -m tools.dist

helm: ## Helm, built from its Go module, with which tests render the chart
	@GOBIN=$(CURDIR)/build/helm go install helm.sh/helm/v3/cmd/helm@v3.22.0

version: .venv/.ready ## Make the tree that of VERSION=0.2.0: changelog, dated DATE or today, and every place that names it
	@$(BIN)/python -m tools.release_version '$(VERSION)' '$(DATE)'

release-check: setup build/mkdocs/.ready ## What a release lacks, one line each, and what other channels ask
	@$(BIN)/python -m tools.release_check

lock: .venv/.ready ## Lock the newest versions of all dependencies, with hashes and without addresses
	@for name in dev lambda bootstrap parliament site; do \
	  constraint=$$([ $$name = dev ] || echo "-c requirements/dev.txt"); \
	  $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    $$constraint requirements/$$name.in -o requirements/$$name.txt; done

clean: ## Remove everything that make built
	@rm -rf .venv node_modules build dist cdk.out .mypy_cache .ruff_cache .pytest_cache .hypothesis $(dir $(CATALOG))
