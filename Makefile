# What a developer runs and what CI runs is the same: see .ci/run.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X github.com/kyma-project/eventmesh-migration/internal/version.linked=$(VERSION)
# Tools are built from the module cache, at the versions pinned in tools/go.mod.
GOLANGCI := go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint
VALE := go tool -modfile=$(CURDIR)/tools/vale/go.mod vale
GOVULNCHECK := go tool -modfile=$(CURDIR)/tools/go.mod govulncheck
# The definitions of our own kinds, and the copying of their types, from the types in api/.
CRDS := charts/eventing-manager/crds
CONTROLLER_GEN := go tool -modfile=$(CURDIR)/tools/api/go.mod controller-gen object crd:crdVersions=v1 paths=./api/...
# Of one run: a program under test is built by the first process that needs it.
ifndef EVENTMESH_TEST_RUN
export EVENTMESH_TEST_RUN := $(shell echo $$PPID.$$(date +%s))
endif
# Three packages at once: each integration test package starts a control plane of its own, and
# mostly waits, for leases of killed runs to expire.
GOTEST := go test -race -p 3
# The race detector makes a schedule take six times as long: with it, a tenth of them is played. The
# demo does without it.
MODEL := go test -vet=off -count 1

##@ First steps
.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'The library (pkg/) has no target of its own: docs/library, go doc ./pkg/migration, examples.'
	@echo 'EVENTMESH_TEST_KUBECONFIG=file: tests use that cluster instead of a control plane of their own. They delete what they'
	@echo 'find, and refuse a cluster with Applications that tests did not create. They ignore KUBECONFIG.'
	@echo 'E2E=all: make e2e upgrades in each order of the charts, with each version of Helm. E2E=connector-first/helm4 is one of'
	@echo 'them. E2E=auto skips make e2e on a machine that cannot run it.'
	@echo 'KUBEBUILDER_ASSETS=directory: etcd and kube-apiserver of envtest are used, and not built.'
	@echo 'EVENTMESH_TEST_KUBERNETES=1.16: the control plane is Kubernetes 1.16, on which Kyma 1.10 ran.'

.PHONY: test
# A tenth less time, for more memory of API servers and tests. The programs under test do not get
# it. Without API servers there is room for more.
test e2e lint test-slow: export GOGC ?= 200
test-unit: export GOGC ?= 400
# A race binary sleeps for a second at its end, in case that a race is just being reported: that is
# a minute in all.
test: export GORACE ?= atexit_sleep_ms=0
test: cc cluster ## All tests, with the race detector: unit, and integration on a real API server
	@($(TEST_PROCESSES)) & processes=$$!; status=0; ($(TEST_OTHERS)) || status=$$?; wait $$processes || status=$$?; exit $$status
	$(MODEL) -timeout 10m -run "^(TestModelSchedules|TestLimitsAreNoPermissions|TestMarksOfAFullJournal|TestKilledBetweenParts|TestDemo)$$" ./test/model ./test/demo

# PROCESSES only start programs, and PLAIN run nothing beside anything else (internal/plain_test.go):
# the race detector would find nothing of the product there, and its binaries take a fifth longer to
# link. The programs have it where they are the subject; the tests, whose stand-ins and snapshots
# would take a third of the time with it, do not: those have tests of their own (decision 0002). Three
# of all packages run at once: one alone keeps two processors busy for three quarters of its time. So
# TEST_PROCESSES runs two at once, and TEST_OTHERS one of LONGEST at a time until only short ones are
# there. Vet is in make verify. Those of build/release compress, and its modulepack, decide, eventing's
# chart and internal compile rules, play schedules and read all sources, which takes up to ten times as
# long with the race detector. RACED need it, and mostly wait: they come after PROCESSES, so that both
# take equally long. SLOWEST are those of the rest that begin first.
PROCESSTEST := EVENTMESH_TEST_RACE=programs go test -p 2 -vet=off
PROCESSES := ./test/integration/eventingmanager ./test/integration/takeover ./internal ./internal/eventing/chart ./internal/eventing/decide ./test/integration/httpsource ./test/integration/trigger ./test/integration/charts ./test/integration/serviceinstance ./test/prober ./test/sandbox ./test/eventing ./test/newjob
PLAIN := ./build/sizes ./charts/eventing-manager ./internal/eventing/backend ./internal/eventing/guide ./internal/eventing/repeats ./internal/eventing/stored ./internal/eventing/takeover ./internal/eventservice/legacy ./internal/eventservice/publish ./internal/flowpage ./internal/k8sobject ./internal/migration/jobs/trigger/route ./internal/migration/kyma ./internal/migration/kyma/eventpath ./internal/natsutil ./internal/redact
LONGEST := ./test/integration/eventing ./test/integration/eventbus ./test/guide ./test/eventservice
RACED := ./test/model ./test/integration/engine ./test/integration/migrationtest ./test/standin ./test/kubernetes
SLOWEST := ./test/integration/jobmanager

# What fails lets the others run. Of the examples, test/guide has the rest. Some tests of the engine
# have the clock of testing/synctest, and run without the race detector.
define TEST_PROCESSES
status=0; \
(cd build/release && $(PROCESSTEST) -count 1 -timeout 25m $$(go list ./... | grep -v /artifact$$)) || status=$$?; \
$(PROCESSTEST) -timeout 25m $(PROCESSES) $(PLAIN) || status=$$?; \
$(GOTEST) -p 2 -vet=off -timeout 25m $(RACED) || status=$$?; exit $$status
endef
define TEST_OTHERS
status=0; \
go test -C test/kubernetes/build ./... || status=$$?; \
go test -C examples/installer -short ./... || status=$$?; \
go test -C examples/registry -short ./... || status=$$?; \
go test -C test/knative -vet=off -count 1 ./... || status=$$?; \
(cd build/release && $(GOTEST) -vet=off -count 1 -timeout 25m ./artifact) || status=$$?; \
go test -short -vet=off ./pkg/engine/... || status=$$?; \
$(PROCESSTEST) -p 1 -timeout 25m $(LONGEST) || status=$$?; \
$(GOTEST) -p 2 -vet=off -timeout 25m \
  $$(go list $(SLOWEST) ./... | grep -vxF -f <(go list $(PROCESSES) $(PLAIN) $(LONGEST) $(RACED))) || status=$$?; exit $$status
endef

##@ The migration: docs/migration
.PHONY: demo
demo: cluster ## Migrate a sample Kyma 1.10 cluster, on this machine, step by step
	@go run ./test/demo

.PHONY: sandbox
sandbox: cluster build ## The demo's cluster that stays up, to try bin/eventmesh-migrate on; Ctrl-C ends it
	@go run ./test/sandbox

KYMA_VERSION ?= 1.11
# A file with a line <repository>/<program>@sha256:... for each image.
DIGESTS ?=
.PHONY: overlay
overlay: ## Put the hooks over Kyma's own chart: KYMA_CHART=kyma/resources/core (KYMA_VERSION=1.11)
	go run ./build/overlay -chart "$(KYMA_CHART)" -kyma "$(KYMA_VERSION)" -repository "$(REPOSITORY)" -tag "$(TAG)" -digests "$(DIGESTS)"

KYMA ?= kyma
OPERATOR ?= eu.gcr.io/kyma-project/application-operator:39d1ab87
.PHONY: operator-image
operator-image: ## Build application-operator's image with our event-service, and set both in Kyma's values: KYMA=kyma
	@if [[ -z "$(BUILDER)" ]]; then echo "needs Docker or Buildah (Debian: apt-get install buildah)" >&2; exit 1; fi
	rm -rf bin/image/application
	go run ./build/applicationoverlay -chart "$(KYMA)/components/application-operator/charts/application" -into bin/image/application
	$(BUILDER) --quiet -f Dockerfile.application-operator --build-arg OPERATOR=$(OPERATOR) -t $(REPOSITORY)/application-operator:$(TAG) . >/dev/null
	go run ./build/applicationoverlay -connector "$(KYMA)/resources/application-connector" -repository "$(REPOSITORY)" -tag "$(TAG)"

##@ Eventing: docs/eventing
# Without root, or where a node cannot run, processes are in the place of pods, and there is no
# switch: see test/eventing.
.PHONY: eventing run-dev
eventing: kubectl ## Show the eventing operator: install it, publish, switch the backend under load, remove it (3 minutes after make node)
	@go run ./test/eventing

run-dev: eventing ## The same as make eventing

.PHONY: eventing-up
eventing-up: kubectl ## The same cluster, with eventing installed, to try it; Ctrl-C or make stop ends it
	@go run ./test/eventing -up

.PHONY: stop
stop: ## End what make eventing-up has left, also after a crash
	@go run ./test/eventing -stop

# The images of the module: an OCI layout such as that of a release, or - for those in
# $(REPOSITORY). Without one, what is here is packed for linux/amd64, to try the module.
MODULE_IMAGES ?= bin/module/images
MODULE_PROGRAMS := $(patsubst cmd/%/main.go,%,$(wildcard cmd/eventing-*/main.go)) nats-server
MODULE_VERSION = $(shell cat module/VERSION)
MODULEPACK := go -C build/release run ./modulepack
.PHONY: module
module: ## Everything that a module provider delivers, into dist/<version> (MODULE_IMAGES=layout of a release)
ifeq ($(origin MODULE_IMAGES),file)
	mkdir -p bin/module
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -buildvcs=false -ldflags '-s -w -X github.com/kyma-project/eventmesh-migration/internal/version.linked=$(MODULE_VERSION)' \
	  -o bin/module/ $(foreach program,$(MODULE_PROGRAMS),$(or $(PACKAGE_$(program)),./cmd/$(program)))
	$(MODULEPACK) images -programs bin/module -images $(MODULE_IMAGES) -commit "$$(git rev-parse HEAD)"
endif
	$(MODULEPACK) render -images $(MODULE_IMAGES) -repository "$(REPOSITORY)"

# What no channel may fall behind: module/channels.yaml of the branch that a change is submitted to.
BASE ?= HEAD
# The directory of the bundle that a channel has now: the new one is applied over it. Without one,
# over a copy with a lower version.
PREVIOUS ?=
.PHONY: module-check
module-check: module cluster ## The submission pipeline: verify, install, and upgrade from what a channel has (BASE=main, PREVIOUS=directory)
	@git show "$(BASE):module/channels.yaml" >bin/channels-before.yaml 2>/dev/null || cp module/channels.yaml bin/channels-before.yaml
	$(MODULEPACK) verify -images $(MODULE_IMAGES) -repository "$(REPOSITORY)" -before bin/channels-before.yaml
	MODULE_BUNDLE="$(CURDIR)/dist/$(MODULE_VERSION)" MODULE_PREVIOUS="$(if $(PREVIOUS),$(abspath $(PREVIOUS)))" go test -C build/release -count 1 -timeout 10m -v -run '^TestSmoke$$' ./modulepack/moduletest

REGISTRY ?= $(REPOSITORY)
KEY ?=
.PHONY: module-push
module-push: ## Push dist/<version> and sign it, and what it refers to: REGISTRY=registry.example/path KEY=private.pem
	@if [[ -z "$(KEY)" ]]; then echo "module-push: name the private key, KEY=private.pem (docs/eventing/module.md#sign)" >&2; exit 2; fi
	$(MODULEPACK) push -registry "$(REGISTRY)" -record
	$(MODULEPACK) sign -registry "$(REGISTRY)" -key "$(KEY)"

##@ Building all of it
.PHONY: build
build: ## Build bin/<job> for this machine
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# Where images go, and what they are called there: <REPOSITORY>/<job>:<TAG>.
REPOSITORY ?= eu.gcr.io/kyma-project/eventmesh-migration
TAG ?= $(VERSION)
IMAGES ?= $(patsubst cmd/%/main.go,%,$(wildcard cmd/*/main.go)) nats-server
# The package of a program that is not directly in cmd/.
PACKAGE_nats-server := ./cmd/internal/nats-server
# Docker if it runs, or else Buildah.
BUILDER ?= $(shell if docker info >/dev/null 2>&1; then echo docker build; elif command -v buildah >/dev/null; then echo buildah bud --isolation chroot --format docker; fi)
CA_CERTIFICATES ?= $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem))

.PHONY: api-diff
api-diff: ## What pkg/ has changed for importers since the newest version (API_BASE=v0.1.0: another)
	@build/api-diff $(API_BASE)

.PHONY: site
# A version of it: git checkout v0.1.0 && make site SITE_VERSION=0.1.0. The versions that are in
# bin/site are in its selector. SITE=auto skips it where mkdocs is missing.
SITE_VERSION ?= main
site: ## Build the documentation as a site, in bin/site/index.html; its links are checked
	@if ! command -v mkdocs >/dev/null; then \
	  echo "site: NOT BUILT: it needs mkdocs and mkdocs-material (Debian: apt-get install --no-install-recommends mkdocs mkdocs-material)" >&2; \
	  if [[ "$(SITE)" == auto ]]; then exit 0; else exit 1; fi; \
	fi; \
	PYTHONPATH=build/site PYTHONDONTWRITEBYTECODE=1 mkdocs build -q -f build/site/mkdocs.yml -d "$(CURDIR)/bin/site/$(SITE_VERSION)"

.PHONY: images
images: image-files ## Build all container images, with Docker or Buildah
	@if [[ -z "$(BUILDER)" ]]; then echo "needs Docker or Buildah (Debian: apt-get install buildah)" >&2; exit 1; fi
	@for cmd in $(IMAGES); do \
	  file=Dockerfile; if [[ -e Dockerfile.$$cmd ]]; then file=Dockerfile.$$cmd; fi; \
	  $(BUILDER) --quiet -f $$file --build-arg CMD=$$cmd --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) \
	    -t $(REPOSITORY)/$$cmd:$(TAG) . >/dev/null; \
	  size=$$(du -sbc bin/image/$$cmd bin/image/ca-certificates.crt bin/image/licenses/$$cmd | awk 'END {print $$1 / 1e6}'); \
	  printf '%-60s %5.1f MB\n' $(REPOSITORY)/$$cmd:$(TAG) $$size; \
	  if [[ $${size%.*} -ge 50 ]]; then echo "$$cmd has 50 MB or more: what does it link? (go version -m, go tool nm -size)" >&2; exit 1; fi; \
	done

# Static binaries for Linux, the licences of what they are linked from, and the certificates that
# TLS needs.
.PHONY: image-files
image-files:
	@if [[ -z "$(CA_CERTIFICATES)" ]]; then echo "no CA certificates found: set CA_CERTIFICATES (Debian: apt-get install ca-certificates)" >&2; exit 1; fi
	mkdir -p bin/image && cp -L "$(CA_CERTIFICATES)" bin/image/ca-certificates.crt
	CGO_ENABLED=0 GOOS=linux go build -trimpath -ldflags '$(LDFLAGS)' -o bin/image/ $(foreach image,$(IMAGES),$(or $(PACKAGE_$(image)),./cmd/$(image)))
	go run ./build/licenses -into bin/image/licenses -programs bin/image $(foreach image,$(IMAGES),$(image)$(addprefix =,$(PACKAGE_$(image))))

.PHONY: charts
charts: ## Generate charts and documentation tables from internal/migration/registry and values.yaml, and definitions of kinds from api/
	go run ./build/generate
	$(CONTROLLER_GEN) output:crd:artifacts:config=$(CRDS)

# The private key: ECDSA P-256 in PEM. PUSH=1 pushes images, charts and module.
# PLATFORMS=linux/amd64 makes a version to try, for that platform alone.
KEY ?=
PUSH ?=
PLATFORMS ?=
.PHONY: release
release: ## Make everything for a version, signed: VERSION=0.1.0 KEY=release.key (PUSH=1: push it, too)
	go -C build/release run . build -version "$(VERSION)" -repository "$(REPOSITORY)" -key "$(KEY)" -platforms "$(PLATFORMS)" $(if $(PUSH),-push)

.PHONY: cluster
cluster: ## Build the control plane of tests and demo (once; about 5 minutes on 2 cores)
	@if [[ -z "$${EVENTMESH_TEST_KUBECONFIG:-}" ]]; then go -C test/kubernetes/build run . build; go -C test/servicecatalog/build run . build >/dev/null; fi
	@CGO_ENABLED=0 GOFLAGS= GOWORK=off go -C test/natsstreaming run -trimpath . </dev/null >/dev/null # it ends with stdin

.PHONY: node
# The programs of eventing are compiled here, and linked by who needs them: make eventing would take
# three minutes more.
node: ## Build and install the node of end-to-end tests, and Knative Eventing (once; about 15 minutes; root)
	@go -C test/kubernetes/build run . build --knative
	@CGO_ENABLED=0 go build -trimpath ./cmd/eventing-... ./cmd/internal/nats-server ./test/eventing/...

##@ Testing
# Without the race detector, which makes the tests compile and run for several times as long: make
# test has it. Without vet, too: make verify has all of it. Left out are packages of which -short
# skips all, because linking takes longer than tests. Eight tests of a package run at once if they
# may: those mostly wait.
.PHONY: test-unit
test-unit: ## Unit tests only: less than a minute, needs no cluster
	go test -C build/release -p 3 -short -vet=off -count 1 -timeout 5m $$(go -C build/release list ./... | grep -v /moduletest$$)
	go test -C test/knative -short -vet=off -count 1 -timeout 5m ./...
	go test -p 3 -parallel 8 -short -vet=off -timeout 5m $$(go list ./... | grep -vE '/test/(integration/|demo$$|eventing$$|newjob$$|sandbox$$)')

# The machine is checked first. With E2E=auto, a machine that cannot run them is no failure; a
# failed test is one. Other values of E2E choose how the upgrade is made: see
# test/e2e/upgrade_test.go. The recipe does not call make: "make -n e2e" would run it.
.PHONY: e2e
e2e: ## Jobs in pods, with the real Knative Eventing; needs root (E2E=auto: skip where it cannot run)
	@if ! why=$$(go -C test/kubernetes/build run . check 2>/dev/null); then \
	  if [[ "$${E2E:-}" == auto ]]; then echo "e2e: skipped, because: $$why"; exit 0; fi; \
	  echo "e2e: $$why" >&2; exit 1; \
	fi; \
	go -C test/kubernetes/build run . build --knative; \
	go test -v -p 1 -parallel 6 -vet=off -tags e2e -count 1 -timeout 50m ./test/e2e/... && \
	go test -v -p 1 -vet=off -tags e2e -count 1 -timeout 20m -run '^TestKnative' ./test/integration/eventing

.PHONY: test-slow
test-slow: cc cluster ## Suites that make test leaves out: too long, or too new for CI
	$(GOTEST) -tags slow -count 1 -timeout 40m $(SLOW)
	$(if $(filter file,$(origin SLOW)),cd build/release && $(GOTEST) -tags slow -count 1 -timeout 40m . ./modulepack ./modulepack/moduletest)
	$(if $(filter file,$(origin SLOW)),go run ./test/kubernetes/with INSTALLER_TEST_KUBECONFIG go test -C examples/installer -race -count 1 -timeout 40m ./...)
	$(if $(filter file,$(origin SLOW)),$(MAKE) test-old) # packages named by hand are all that is run

# Their files carry the build tag slow.
SLOW := ./internal/eventing/decide ./internal/eventing/page ./internal/migration/eventmap ./test/eventing ./test/servicecatalog ./test/prober ./test/sandbox ./test/vuln \
  ./test/integration/charts ./test/integration/eventing ./test/integration/eventingmanager ./test/integration/jobmanager ./test/integration/rbac ./test/integration/serviceinstance ./test/integration/takeover ./test/integration/trigger

.PHONY: test-old
test-old: export EVENTMESH_TEST_KUBERNETES := 1.16
test-old: cc ## The demo, and the suites of the engine and the jobs, on the Kubernetes that Kyma 1.10 ran on
	$(MAKE) demo
	$(GOTEST) -count 1 -timeout 40m $(OLD)
	$(GOTEST) -count 1 -timeout 20m -run "^TestTheAPIServerTakesWhatTheChartsRender$$" ./test/integration/charts

OLD := ./test/kubernetes ./test/snapshot ./test/integration/engine ./test/integration/eventbus ./test/integration/httpsource \
  ./test/integration/jobmanager ./test/integration/serviceinstance ./test/integration/trigger

.PHONY: release-check
release-check: ## Make a version twice, from two clones with cold caches, and compare the bytes (an hour on 2 cores)
	go test -C build/release -tags release -count 1 -timeout 4h -v -run '^TestRelease' .

.PHONY: soak
soak: cc cluster ## Kill loops at scale and random faults (hours; its numbers go into docs/measurements.md)
	go run ./test/mutation
	go run ./test/mutation -reverts
	$(GOTEST) -tags soak -timeout 6h -count 1 -v -run "^TestSoak" ./test/integration/... ./test/prober
	$(MODEL) -tags soak -timeout 3h -v -run "^TestSoak" ./test/model
	@if why=$$(go -C test/kubernetes/build run . check 2>/dev/null); then \
	  go -C test/kubernetes/build run . build --knative && go test -p 1 -tags e2e,soak -timeout 12h -count 1 -v -run '^TestSoak' ./test/e2e; \
	else echo "soak: the switch of the backend is left out, because: $$why"; fi

.PHONY: bench
bench: cluster ## Compare time, requests and memory with a plain client-go loop and a plain reverse proxy
	go run ./test/bench
	go run ./test/bench/eventservice -overload 10m
	go test -tags bench -count 1 -timeout 2h -v -run '^TestBench' ./test/integration/eventing
	go test -tags bench -count 1 -timeout 30m -v -run '^TestPublisher(Bench|Memory)$$' ./test/integration/eventing
	go test -tags bench -count 1 -timeout 19m -v -run '^TestBenchPublish$$' ./test/integration/takeover

##@ Keeping it tidy
MODULES := build/release examples/installer examples/registry tools/api tools/vale test/cosign test/helm/v2 test/helm/v3 test/knative test/kubernetes/build test/natsstreaming test/ocm test/servicecatalog/build
.PHONY: lint
lint: ## Lint code and prose, with the versions pinned in tools/
	@# First: it has an answer in seconds.
	git ls-files -z -- '*.md' '*.go' ':!*_test.go' ':!*/testdata/*' ':!examples' | xargs -0 $(VALE) --config tools/vale/vale.ini --output line
	$(GOLANGCI) run --allow-serial-runners ./...
	for dir in build/release examples/installer examples/registry test/knative test/kubernetes/build test/natsstreaming test/ocm; do (cd $$dir && $(GOLANGCI) run --allow-serial-runners --config $(CURDIR)/.golangci.yml ./...); done

# Only what the programs and the examples call is checked, not what a tool or a test imports. CI may
# not reach the database: docs/decisions/0001-libraries.md.
VULNDB ?= https://vuln.go.dev
PROGRAMS ?= ./cmd/...
.PHONY: vuln
vuln: ## Fail if the programs call something with a known vulnerability (VULNDB=file:///...: another database)
	@for what in ". $(PROGRAMS)" "examples/installer ./..." "examples/registry ./..."; do \
	  read -r dir packages <<<"$$what"; \
	  status=0; out=$$($(GOVULNCHECK) -C "$$dir" -db "$(VULNDB)" $$packages 2>&1) || status=$$?; \
	  if [[ $$status == 1 ]] && grep -qE '(creating client|fetching vulnerabilities):' <<<"$$out"; then \
	    echo "vuln: NOT CHECKED: the database $(VULNDB) cannot be read (make vuln VULNDB=... takes another): $$out"; exit 0; \
	  fi; \
	  echo "$$dir: $$out"; if [[ $$status != 0 ]]; then exit $$status; fi; \
	done

.PHONY: fmt
fmt: ## Format, and tidy the go.mod files
	gofmt -w api build charts cmd examples internal pkg test
	for dir in . $(MODULES); do go -C $$dir mod tidy; done
	go -C test/kubernetes/build mod tidy -modfile=kubernetes-1.16.mod

.PHONY: verify
verify: ## Fail if "make fmt" would change anything
	@unformatted=$$(gofmt -l api build charts cmd examples internal pkg test); \
	if [[ -n "$$unformatted" ]]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	for dir in . $(MODULES); do go -C $$dir mod tidy -diff; done
	go -C test/kubernetes/build mod tidy -modfile=kubernetes-1.16.mod -diff
	go run ./build/generate -check
	go run ./build/sizes
	@copy=$$(mktemp -d) && trap "rm -rf $$copy" EXIT && cp -r go.mod go.sum api $$copy && \
	(cd $$copy && $(CONTROLLER_GEN) output:crd:artifacts:config=crds) && \
	if ! { diff -r api $$copy/api && diff -r $(CRDS) $$copy/crds; }; then echo "not generated from api/ as it is now (make charts)"; exit 1; fi
	for dir in . build/release test/knative; do go vet -C $$dir ./...; done

# Without the base, or in a clone without history, only the last commit is looked at.
BASE ?= origin/main
.PHONY: commits
commits: ## Fail if the subject of a commit since BASE is not "dir: verb what" with at most 72 characters
	@base=$$(git rev-parse -q --verify "$(BASE)^{commit}" || true); \
	range=$${base:+$$base..}HEAD; [[ -n "$$base" && "$$base" != "$$(git rev-parse HEAD)" ]] || range="-1 HEAD"; \
	git log --no-merges --format='%h %s' $$range | awk '{subject = substr($$0, length($$1) + 2)} \
	  length(subject) > 72 || subject !~ /^[^ :]+(, [^ :]+)*: [a-z]/ {print "commit " $$1 ": want \"dir: verb what\" with at most 72 characters (git commit --amend): " subject; bad = 1} END {exit bad}'

.PHONY: clean
clean: ## Remove bin/ and the cached control plane
	rm -rf bin
	rm -rf "$${EVENTMESH_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/eventmesh-migration}"

# The commands that make eventing prints are those of kubectl and curl.
.PHONY: kubectl
kubectl:
	@for program in kubectl:kubernetes-client curl:curl; do \
	  if command -v "$${program%:*}" >/dev/null; then continue; fi; \
	  if [[ $$EUID != 0 ]] || ! command -v apt-get >/dev/null; then \
	    echo "$${program%:*} is not installed, and make eventing needs it. Install it (Debian: apt-get install $${program#*:})" >&2; exit 1; fi; \
	  echo "installing $${program#*:}, which has $${program%:*}"; \
	  apt-get update -qq -o Acquire::Retries=5 && apt-get install -qq -y -o Acquire::Retries=5 --no-install-recommends "$${program#*:}" >/dev/null; \
	done

# The race detector needs a C compiler, the only thing that Go does not include.
.PHONY: cc
cc:
	@if ! command -v "$$(go env CC)" >/dev/null; then \
	  if [[ $$EUID != 0 ]] || ! command -v apt-get >/dev/null; then \
	    echo "the race detector needs a C compiler: install gcc" >&2; exit 1; fi; \
	  echo "installing gcc, which the race detector needs"; \
	  apt-get update -qq -o Acquire::Retries=5 && apt-get install -qq -y -o Acquire::Retries=5 --no-install-recommends gcc libc6-dev >/dev/null; \
	fi
