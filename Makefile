# What a developer runs and what CI runs is the same: see .ci/run.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X github.com/kyma-project/eventmesh-migration/internal/cli.linkedVersion=$(VERSION)
# The linter is built from the module cache, at the version pinned in tools/go.mod.
GOLANGCI := go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint
# Two packages at once: each integration test package starts a control plane of its own, and mostly waits, for leases of
# killed runs to expire.
GOTEST := go test -race -p 2

##@ First steps
.PHONY: help
help: ## Show this
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'Set KUBECONFIG to use that cluster instead of an own control plane: only one you can lose.'

.PHONY: demo
demo: cluster ## Migrate a sample Kyma 1.10 cluster, on this machine, step by step
	@go run ./test/demo

.PHONY: test
test: cc cluster ## All tests, with the race detector: unit, and integration on a real API server
	go build -race ./... # with all cores, which -p 1 would not
	go test -C test/cluster ./...
	$(GOTEST) -timeout 25m ./...

##@ Building
.PHONY: build
build: ## Build bin/<job> for this machine
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: cluster
cluster: ## Build the control plane of tests and demo (once; about 5 minutes on 2 cores)
	@if [[ -z "$${KUBECONFIG:-}" ]]; then go -C test/cluster run . build; fi

##@ Testing
.PHONY: test-unit
test-unit: cc ## Unit tests only: seconds, needs no cluster
	$(GOTEST) -short -timeout 5m ./...

.PHONY: soak
soak: cc cluster ## Kill loops at scale and random faults (hours; its numbers go into docs/measurements.md)
	$(GOTEST) -tags soak -timeout 6h -count 1 -v -run "^TestSoak" ./test/integration/...

.PHONY: bench
bench: cluster ## Time, requests and memory against a bare client-go loop
	go run ./test/bench

##@ Keeping it tidy
.PHONY: lint
lint: ## Lint, with the version pinned in tools/go.mod
	$(GOLANGCI) run ./...
	cd test/cluster && $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...

.PHONY: fmt
fmt: ## Format, and tidy the go.mod files
	gofmt -w cmd internal test
	for dir in . test/cluster; do go -C $$dir mod tidy; done

.PHONY: verify
verify: ## Fail if "make fmt" would change anything
	@unformatted=$$(gofmt -l cmd internal test); \
	if [[ -n "$$unformatted" ]]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	for dir in . test/cluster; do go -C $$dir mod tidy -diff; done
	go vet ./...

.PHONY: clean
clean: ## Remove bin/ and the cached control plane
	rm -rf bin
	rm -rf "$${EVENTMESH_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/eventmesh-migration}"

# The race detector needs a C compiler, the only thing that Go does not bring along.
.PHONY: cc
cc:
	@if ! command -v "$$(go env CC)" >/dev/null; then \
	  if [[ $$EUID != 0 ]] || ! command -v apt-get >/dev/null; then \
	    echo "the race detector needs a C compiler: install gcc" >&2; exit 1; fi; \
	  echo "installing gcc, which the race detector needs"; \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends gcc libc6-dev >/dev/null; \
	fi
