# Belay. `make help` lists what there is.

GO       ?= go
BIN      := bin
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -s -w -X belay.run/internal/version.version=$(VERSION)
FUZZTIME ?= 30s

GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
WORKFLOWCHECK := go.temporal.io/sdk/contrib/tools/workflowcheck@v0.6.0
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.9.0
CYCLONEDX     := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the command line and the worker into bin/
	GOWORK=off CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/belay ./starter
	GOWORK=off CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/belay-worker ./worker

.PHONY: test
test: ## run every test of both modules
	$(GO) test -shuffle=on -count=1 ./... ./dev/...

.PHONY: test-race
test-race: ## the same under the race detector
	$(GO) test -race -shuffle=on -count=1 -timeout 20m ./... ./dev/...

.PHONY: e2e
e2e: ## only the tests that run whole pipelines on a real Temporal
	$(GO) test -count=1 -timeout 20m ./dev/e2e/...

.PHONY: fuzz
fuzz: ## fuzz each target for FUZZTIME (30s)
	@grep -rl --include='*_test.go' '^func Fuzz' internal | sort | while read -r file; do \
		grep -o '^func Fuzz[A-Za-z0-9_]*' $$file | cut -d' ' -f2 | while read -r target; do \
			echo "== $$target ($$(dirname $$file))"; \
			$(GO) test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) ./$$(dirname $$file) || exit 1; \
		done || exit 1; \
	done

.PHONY: bench
bench: ## measure against bare Temporal in the same run, briefly
	$(GO) run ./dev/bench all --quick

.PHONY: lint
lint: lint-root lint-dev workflowcheck ## hold both modules to .golangci.yml

.PHONY: lint-root
lint-root: $(BIN)/golangci-lint
	$(BIN)/golangci-lint run ./...

.PHONY: lint-dev
lint-dev: $(BIN)/golangci-lint
	cd dev && ../$(BIN)/golangci-lint run ./...

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## format both modules
	$(BIN)/golangci-lint fmt ./...
	cd dev && ../$(BIN)/golangci-lint fmt ./...

.PHONY: workflowcheck
workflowcheck: $(BIN)/workflowcheck ## look for what is not deterministic in workflows
	$(BIN)/workflowcheck -config workflowcheck.config.yaml ./workflows/...

.PHONY: vuln
vuln: ## look for known vulnerabilities that are reached (asks the Go vulnerability database)
	GOWORK=off $(GO) run $(GOVULNCHECK) ./...

.PHONY: sbom
sbom: $(BIN)/cyclonedx-gomod ## list what both programs are made of, with licences, as CycloneDX
	GOWORK=off $(BIN)/cyclonedx-gomod app -json -licenses -std -noserial -notimestamp -main starter -output $(BIN)/belay.cdx.json .
	GOWORK=off $(BIN)/cyclonedx-gomod app -json -licenses -std -noserial -notimestamp -main worker -output $(BIN)/belay-worker.cdx.json .

.PHONY: tidy
tidy: ## tidy both modules and the workspace
	GOWORK=off $(GO) mod tidy
	cd dev && GOWORK=off $(GO) mod tidy
	$(GO) work sync

.PHONY: image
image: ## build the worker's image
	docker build --build-arg VERSION=$(VERSION) -t belay:$(VERSION) .

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN) dist coverage.out

$(BIN)/golangci-lint:
	GOBIN=$(CURDIR)/$(BIN) GOWORK=off $(GO) install $(GOLANGCI_LINT)

$(BIN)/cyclonedx-gomod:
	GOBIN=$(CURDIR)/$(BIN) GOWORK=off $(GO) install $(CYCLONEDX)

$(BIN)/workflowcheck:
	GOBIN=$(CURDIR)/$(BIN) GOWORK=off $(GO) install $(WORKFLOWCHECK)
