# Every target is one real command; `make help` lists them.
SHELL := /bin/bash
GO    ?= go
PREFIX ?= /usr/local
# Statically linked, so that one file runs on every distribution and in guests.
export CGO_ENABLED = 0
LINT_VERSION = v2.15.0

.PHONY: help build install test test-unit test-cgroup test-systemd test-vm test-vm-memory test-lineage lint bench bench-memory cross demo gen clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/sessionbox, static
	$(GO) build -trimpath -o bin/sessionbox ./cmd/sessionbox

install: build ## to $(PREFIX)/bin, with man pages and completions
	install -D -m 755 bin/sessionbox $(DESTDIR)$(PREFIX)/bin/sessionbox
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 docs/man/*.1
	install -D -m 644 docs/completions/sessionbox.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sessionbox
	install -D -m 644 docs/completions/sessionbox.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sessionbox
	install -D -m 644 docs/completions/sessionbox.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sessionbox.fish

test: ## all four tiers; SESSIONBOX_TEST_REQUIRE=unit,cgroup,systemd,vm makes missing ones fail
	$(GO) run ./integration/tiers

test-unit: ## the unit tier alone (likewise test-cgroup, test-systemd, test-vm)
	$(GO) run ./integration/tiers -tiers unit
test-cgroup:
	$(GO) run ./integration/tiers -tiers cgroup
test-systemd:
	$(GO) run ./integration/tiers -tiers systemd
test-vm:
	$(GO) run ./integration/tiers -tiers vm

test-lineage: ## the suite on the lineage box: what a default container or a Mac gets
	$(GO) run ./integration/tiers -tiers lineage
test-vm-memory: ## a leak and a burst in one guest: warned of in time, and the right one stopped
	SESSIONBOX_TEST_TIER=vm-memory $(GO) test -v -count=1 -timeout 60m -run '^TestMemoryVM$$' ./integration/membench

lint: ## gofmt, vet for linux and darwin, golangci-lint
	@test -z "$$(gofmt -l cmd pkg integration)" || { gofmt -l cmd pkg integration; exit 1; }
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./...
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION) run ./...

bench: build ## the budgets, as ratios in one run: cgroup and lineage box here, systemd box in a test host
	$(GO) build -o bin/empty ./integration/bench/empty
	$(GO) build -o bin/bench ./integration/bench
	bin/bench -backend cgroup -bin bin/sessionbox -empty bin/empty
	bin/bench -backend lineage -bin bin/sessionbox -empty bin/empty
	$(GO) build -o bin/nshost ./integration/hosts/cmd/nshost
	bin/nshost -route manager -linger -copy bin/sessionbox:/usr/local/bin/sessionbox -copy bin/empty:/opt/empty -copy bin/bench:/opt/bench -- /opt/bench -backend systemd -bin /usr/local/bin/sessionbox -empty /opt/empty

bench-memory: build ## the memory scenarios in guests, scored, beside other guards; BENCH_MEMORY=flags
	$(GO) build -o bin/membench-guest ./integration/membench/guest
	$(GO) build -o bin/membench ./integration/membench
	bin/membench $(BENCH_MEMORY)

cross: ## build and vet code and tests for the other systems
	for t in darwin/arm64 darwin/amd64 linux/arm64 linux/riscv64; do \
	  echo $$t; GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build -o /dev/null ./cmd/sessionbox && GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) vet ./... || exit 1; done

demo: build ## a session that leaves three processes behind, and its receipt
	@$(GO) build -o bin/demo ./integration/demo && bin/demo bin/sessionbox

gen: ## man pages, completions and JSON schemas
	$(GO) run ./cmd/sessionbox/internal/gen

clean: ## remove what build made
	rm -rf bin
