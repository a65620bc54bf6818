# Parley: the commands that a user and a developer need. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs-installed
PYTEST := $(BIN)/pytest --durations=10 --durations-min=5
STEPS ?= 1000000
JOBS ?= 3
# programs that tests start are compiled once, not at each start
unexport PYTHONDONTWRITEBYTECODE
APART := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: help env machine demo test check lint types unit soak crowd integration e2e kind kind-if-built docs crds protos lock manifests sbom dashboard bench cluster kind-cluster cluster-down clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

env: $(STAMP) ## the environment in .venv, from the pinned versions in requirements.lock

$(STAMP): requirements.lock pyproject.toml devcluster/pyproject.toml
	@test -x $(BIN)/uv || ($(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9')
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable . --editable devcluster
	@touch $@

$(DOCS_STAMP): $(STAMP) docs/requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r docs/requirements.lock
	@touch $@

lock: ## pin the versions anew
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --group dev \
	  --no-header --no-emit-index-url --no-emit-package parley pyproject.toml devcluster/pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --group docs \
	  --no-header --no-emit-index-url --constraint requirements.lock -o docs/requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-emit-index-url --constraint requirements.lock pyproject.toml -o deploy/requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --group build \
	  --no-header --no-emit-index-url --constraint requirements.lock -o deploy/build.lock

demo: env ## negotiate examples/ on the embedded control plane, no Kubernetes needed
	@$(BIN)/parley demo examples/*.yaml

check: lint types ## lint and types only

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(DOCS_STAMP)
	$(BIN)/mypy
	$(BIN)/pyright

unit: $(DOCS_STAMP)
	$(PYTEST) tests/unit

soak: env ## random lives on a simulated cluster, every rule checked after every step: STEPS=1000000 SEED=the time
	$(BIN)/python -m tests.soak --steps $(STEPS) $(if $(SEED),--seed $(SEED))

crowd: machine ## random pods on real nodes, plugins and kubelets killed meanwhile: PODS=200 SEED=a new one
	RANDOM_PODS=$(or $(PODS),200) RANDOM_SEED=$(SEED) $(BIN)/pytest -s tests/e2e/test_random_pods.py

machine: env ## what a real cluster needs on this machine: packages (as root), programs (built once, cached)
	$(BIN)/python -m parley_devcluster

integration: machine $(DOCS_STAMP) ## on a real control plane
	$(PYTEST) tests/integration

e2e: machine ## with real nodes
	$(PYTEST) tests/e2e

kind: machine ## the image and the chart on nodes in containers, made by kind; builds the nodes' image if need be
	$(BIN)/python -m parley_devcluster kind
	$(PYTEST) -rs tests/kind

kind-if-built: machine
	$(PYTEST) -rs tests/kind

# Tests on a real cluster mostly wait, the others mostly compute.
test: machine ## everything, JOBS=3 parts at once
	@echo "Lint, types, unit, integration, e2e and kind tests, $(JOBS) at once. What one said is shown when it has ended."
	@$(MAKE) --no-print-directory --jobs=$(JOBS) $(APART) check unit integration e2e kind-if-built

docs: $(DOCS_STAMP) ## the docs site in dist/site, every link checked
	$(BIN)/python -m mkdocs build --strict

crds: env ## generate crds/ from the models
	$(BIN)/python -m parley.api.crd crds

manifests: crds ## render what kustomize builds below deploy/ from the chart
	$(BIN)/python -m parley_devcluster.manifests

protos: env ## generate the node plugin's gRPC stubs from protos/
	cd protos && PATH="$(CURDIR)/$(BIN):$$PATH" python -m grpc_tools.protoc -I parley_kubelet/proto=. \
	  --python_out=../kubelet-plugin --grpc_python_out=../kubelet-plugin \
	  --mypy_out=../kubelet-plugin --mypy_grpc_out=only_async:../kubelet-plugin *.proto

sbom: env ## what the image consists of, in dist/parley.cdx.json: IMAGE=registry/parley:0.1.0, or one built now
	@mkdir -p dist
	$(BIN)/python -m tools.image_sbom $(IMAGE) > dist/parley.cdx.json.partial
	@mv dist/parley.cdx.json.partial dist/parley.cdx.json

dashboard: env ## generate Grafana's dashboard in deploy/monitoring
	$(BIN)/python -m parley_devcluster.dashboard deploy/monitoring/dashboard.json

cluster: env ## a real control plane and two real nodes on this machine, Parley running in it
	@$(BIN)/parley cluster up

kind-cluster: env ## the same with nodes in containers, made by kind, and Parley in pods
	@$(BIN)/parley cluster up --kind

cluster-down: env ## remove all of it
	@$(BIN)/parley cluster down

bench: env ## one JSON line per workload, on a local control plane
	@$(BIN)/python -m benchmarks

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
