# make help lists the targets. demo, test, bench and lab need root: they make
# network namespaces of their own and leave nothing behind.

GO      ?= go
BIN     := bin/netnice
TOOLS   := $(CURDIR)/bin/tools
LINT    := $(TOOLS)/golangci-lint-2.15.0
TESTSUM := $(TOOLS)/gotestsum-1.13.0
TWICE   := $(CURDIR)/bin/run-twice.txt
# Test programs and the compiler of the kernel object, from Debian's packages.
TEST_PACKAGES := iperf3 curl python3 wget rsync openssh-server openssh-client iputils-ping
VM_PACKAGES   := qemu-system-x86 xz-utils
GEN_PACKAGES  := clang-14 llvm-14 clang-format-14 libbpf-dev linux-libc-dev
EXPERIMENTS   := e01-overhead e02-change e03-input e05-hub e06-hub-two-servers e07-switch e08-smooth e09-sockets e10-process e11-uplink e12-throughput e13-latency
export CGO_ENABLED := 0

.PHONY: help build demo test test-vm bench bench-egress bench-ingress bench-udp bench-all bench-overhead bench-scale lab lint generate check-generated install clean deps-test deps-vm deps-lint

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/netnice (Go only; the kernel object is committed)
	$(GO) build -trimpath -o $(BIN) ./cmd/netnice

demo: build ## watch a running program being limited, live (45 s)
	./$(BIN) demo

# A test that fails is run once more, with nothing beside it, and named at the
# end: figures are measured on machines that others use too. A second failure, or
# more than six tests and subtests that fail, is a failure.
test: deps-test $(TESTSUM) build ## all tests, those in network namespaces included
	@mkdir -p $(dir $(TWICE)) && : > $(TWICE)
	NETNICE_MUST_RUN_PRIVILEGED=1 $(TESTSUM) --format pkgname \
		--rerun-fails=1 --rerun-fails-max-failures=6 --rerun-fails-run-root-test --rerun-fails-report=$(TWICE) \
		--packages ./... -- -count=1 -timeout 14m -p 1 -parallel 4
	@if [ -s $(TWICE) ]; then echo "run twice:"; cat $(TWICE); fi

test-vm: deps-vm build ## limits on Debian's stock kernels, emulated (3 minutes)
	NETNICE_TEST_VM=1 $(GO) test -count=1 -timeout 20m ./internal/testutil/vm/...

bench: bench-egress bench-ingress bench-udp ## the benches of limits, one after the other

bench-egress: build ## sending, beside HTB: goodput, fairness, retransmits, round trips, CPU
	$(GO) build -o bin/bench-egress ./lab/bench-egress
	NETNICE=$(CURDIR)/$(BIN) ./bin/bench-egress $(BENCH_ARGS)

bench-ingress: build ## receiving, beside an ifb with HTB and policing: the same, and added delay
	$(GO) build -o bin/bench-ingress ./lab/bench-ingress
	NETNICE=$(CURDIR)/$(BIN) ./bin/bench-ingress $(BENCH_ARGS)

bench-udp: build ## UDP, sent and received, alone and beside TCP: rate, gaps, losses, CPU (2 minutes)
	$(GO) build -o bin/bench-udp ./lab/bench-udp
	NETNICE=$(CURDIR)/$(BIN) ./bin/bench-udp $(BENCH_ARGS)

bench-all: BENCH_ARGS += -all
bench-all: bench ## every rate, number of connections, congestion control and path: hours

bench-overhead: build ## what unlimited traffic pays, without and with limits elsewhere
	$(GO) build -o bin/bench-overhead ./lab/bench-overhead
	for n in 0 1; do NETNICE=$(CURDIR)/$(BIN) ./bin/bench-overhead -limited $$n || exit 1; done
	NETNICE=$(CURDIR)/$(BIN) ./bin/bench-overhead -limited 1000 -rounds 8 -passes 4
	NETNICE=$(CURDIR)/$(BIN) ./bin/bench-overhead -both -rounds 20 -passes 2

bench-scale: build ## 10,000 sockets, 1,000 processes, 1,000 limits
	$(GO) build -o bin/bench-scale ./lab/bench-scale
	NETNICE=$(CURDIR)/$(BIN) ./bin/bench-scale

lab: deps-test build bench bench-overhead bench-scale ## every experiment and bench, into lab/out (35 minutes)
	@for e in $(EXPERIMENTS); do $(GO) build -o bin/lab-$$e ./lab/$$e && NETNICE=$(CURDIR)/$(BIN) ./bin/lab-$$e $(LAB_ARGS) || exit 1; done

lint: deps-lint check-generated ## formatting, vet, linters, generated code
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "run: gofmt -w"; exit 1; }
	clang-format-14 --dry-run -Werror bpf/*.c bpf/*.h include/*.h lab/internal/*/bpf/*.c
	$(GO) vet ./...
	$(LINT) run ./...

generate: ## compile the kernel object and regenerate what is committed
	CPATH=/usr/include/$(shell uname -m)-linux-gnu $(GO) generate ./internal/... ./lab/...
	$(GO) run ./cmd/netnice gen completions contrib/completions

check-generated: deps-lint
	$(MAKE) generate
	git diff --exit-code -- internal/bpf internal/clock 'lab/*_bpfel.*' contrib/completions

install: build ## into /usr/local, with man page, completions and unit
	install -D $(BIN) $(DESTDIR)/usr/local/bin/netnice
	ln -sf netnice $(DESTDIR)/usr/local/bin/nlimit
	install -D -m 644 docs/man/netnice.1 $(DESTDIR)/usr/local/share/man/man1/netnice.1
	install -D -m 644 docs/man/netnice.toml.5 $(DESTDIR)/usr/local/share/man/man5/netnice.toml.5
	install -D -m 644 include/netnice.h $(DESTDIR)/usr/local/include/netnice.h
	install -D -m 644 contrib/systemd/netnice.service $(DESTDIR)/usr/local/lib/systemd/system/netnice.service
	install -D -m 644 contrib/completions/netnice.bash $(DESTDIR)/usr/local/share/bash-completion/completions/netnice

clean: ## remove bin/
	rm -rf bin lab/out

# Install what is missing, where apt-get can.
define need
	@missing=""; for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
		command -v apt-get >/dev/null || { echo "install these first:$$missing"; exit 1; }; \
		echo "installing$$missing"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
endef

deps-test:
	$(call need,$(TEST_PACKAGES))

deps-vm:
	$(call need,$(VM_PACKAGES))

deps-lint: $(LINT)
	$(call need,$(GEN_PACKAGES))

$(LINT):
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(TOOLS)/golangci-lint $@

$(TESTSUM):
	GOBIN=$(TOOLS) $(GO) install gotest.tools/gotestsum@v1.13.0
	mv $(TOOLS)/gotestsum $@
