# make help lists the targets. demo, test, bench and lab need root: they make
# network namespaces of their own and leave nothing but two empty lock files in /tmp,
# and what was interrupted, until the next start: docs/internals/testing.md.

GO      ?= go
BIN     := bin/netnice
LAB     := bin/lab
TOOLS   := $(CURDIR)/bin/tools
LINT    := $(TOOLS)/golangci-lint-2.15.0
TESTSUM := $(TOOLS)/gotestsum-1.13.0
NFPM    := $(TOOLS)/nfpm-2.43.0
DOCS    := .cache/docs
WORDS   := .cache/words
MERMAID := 11.17.2
WORKER  := 1.0.4
PREFIX  ?= /usr/local
VERSION  = $(shell contrib/package/version.sh)
# Without tables of symbols, which the program does not read: a third of its size.
GO_LINK  = -s -w -X github.com/netnice/netnice/internal/cli.linkedRelease=$(VERSION)
# Test programs and the compiler of the kernel object, from Debian's packages.
TEST_PACKAGES := iperf3 curl python3 wget rsync openssh-server openssh-client iputils-ping nftables zsh fish bash-completion tmux vsftpd
# What the examples need, file:packages: taken as it is where it is there already.
TEST_FILES    := cc:gcc,libc6-dev rustc:rustc node:nodejs,libnode-dev /usr/include/node/node_api.h:libnode-dev
VM_PACKAGES   := qemu-system-x86 xz-utils nftables wireguard-tools iptables debootstrap e2fsprogs
GEN_PACKAGES  := clang-14 llvm-14 clang-format-14 libbpf-dev linux-libc-dev
EXPERIMENTS   := e01-overhead e02-change e03-input e04-fair-inetd e05-hub e06-hub-two-servers e07-switch e08-smooth e09-sockets e10-process e11-uplink e12-throughput e13-latency e14-path e15-path-shared e16-tcp-path e17-tcp-paths e18-slices e19-reservations e20-hog e21-share-per-rate e22-senders e23-power e24-slots e26-throughput e27-packet-sizes e28-path-in-time e29-slow-lines e30-whole-file
export CGO_ENABLED := 0

.PHONY: $(LAB) help build demo quick test test-all fuzz mutations test-vm test-systemd bench bench-egress bench-ingress bench-udp bench-all bench-overhead bench-calls bench-scale bench-share bench-reserve bench-cpu bench-probe bench-adapt bench-delay experiments lab lint words generate reference drawing picture docs screenshots check-generated install uninstall package lint-package clean deps-test deps-vm deps-lint deps-words deps-generate deps-package deps-docs deps-screenshots

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The product and the lab are modules, which go.work joins; the product is built by its own go.mod alone.
PACKAGES := ./... ./lab/...
build package: export GOWORK := off

build: ## build bin/netnice (Go only; the kernel object is committed)
	$(GO) build -trimpath -ldflags '$(GO_LINK)' -o $(BIN) ./cmd/netnice

demo: build ## watch a running program being limited, live (45 s)
	./$(BIN) demo

# Three stages, each with the one before: docs/internals/testing.md. Packages that limit or measure
# run one after the other, with nothing beside them.
ALONE   := ./internal/cpu ./internal/demo ./internal/e2e ./internal/enforce/... ./internal/probe ./internal/testbed/... ./internal/testutil/... ./lab/...
# The package that takes longest is the first one.
LONGEST := github.com/netnice/netnice/internal/daemon
BESIDE   = $(LONGEST) $(filter-out $(LONGEST) $(shell $(GO) list $(ALONE)),$(shell $(GO) list $(PACKAGES)))
RESULTS := $(CURDIR)/bin/test
PURE     = $(shell $(GO) list $(PACKAGES) | grep -v -e /internal/testutil/vm -e /internal/e2e$$)
REPORT  := $(GO) run ./internal/testutil/cmd/testreport
SUM      = NETNICE_TEST_FAILURES=$(RESULTS)/failures NETNICE_MUST_RUN_PRIVILEGED=1 $(TESTSUM) --format pkgname

quick: ## tests without root and traffic: pure code, models, fakes, the CLI's scripts (a minute)
	@mkdir -p $(RESULTS)
	@NETNICE_TEST_STAGE=quick $(GO) test -json -count=1 $(PURE) >$(RESULTS)/quick.json; code=$$?; \
	$(REPORT) $(RESULTS)/quick.json && exit $$code

test: export NETNICE_TEST_STAGE := test
test: deps-test $(TESTSUM) build ## each behaviour once, end to end in network namespaces as well (8 minutes)
	@mkdir -p $(RESULTS) && rm -rf $(RESULTS)/failures
	$(SUM) --jsonfile $(RESULTS)/test.json --raw-command -- sh -c '$(GO) test -json -count=1 $(BESIDE); code=$$?; \
		$(GO) test -json -count=1 -timeout 25m -p 1 -parallel 7 $(ALONE) && exit $$code'; code=$$?; \
	$(REPORT) -strict $(RESULTS)/test.json && exit $$code

# .ci/run alone sets TWICE, where what failed is run once more with nothing beside it, and named.
AGAIN = $(if $(TWICE),--rerun-fails=1 --rerun-fails-max-failures=16 --rerun-fails-run-root-test --rerun-fails-report=$(TWICE).$(1))

test-all: export NETNICE_TEST_STAGE := all
test-all: deps-test $(TESTSUM) build ## all tests; those without root also under the race detector (30 minutes)
	@mkdir -p $(RESULTS) && rm -rf $(RESULTS)/failures
	$(SUM) --jsonfile $(RESULTS)/beside.json $(call AGAIN,beside) --packages "$(BESIDE)" -- -count=1; code=$$?; \
	$(SUM) --jsonfile $(RESULTS)/alone.json $(call AGAIN,alone) --packages "$(ALONE)" -- -count=1 -timeout 45m -p 1 -parallel 6 || code=$$?; \
	$(if $(TWICE),cat $(TWICE).beside $(TWICE).alone >$(TWICE); rm -f $(TWICE).beside $(TWICE).alone;) \
	cat $(RESULTS)/beside.json $(RESULTS)/alone.json >$(RESULTS)/all.json; \
	$(REPORT) -strict $(RESULTS)/all.json && exit $$code
	CGO_ENABLED=1 NETNICE_TEST_STAGE=quick $(GO) test -race -count=1 $(PURE)

# What fails is kept as a seed, which plain go test runs from then on: commit it with what mends it.
FUZZ_TIME ?= 60s

fuzz: ## random input at every door, one target after the other, each for FUZZ_TIME (60s)
	@mkdir -p $(RESULTS)/fuzz; failed=0; \
	for target in $$(grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' client cmd internal lab | sed 's,/[^/]*_test.go:func ,:,' | sort -u); do \
		package=$${target%%:*}; name=$${target##*:}; log=$(RESULTS)/fuzz/$$(echo $$package | tr / -)-$$name; said=ok; \
		$(GO) test ./$$package -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 1s >$$log 2>&1 || { said="FAILED: $$log"; failed=1; }; \
		printf '%-26s %-16s %10s executions  %s\n' $$package $$name "$$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' $$log | tail -1)" "$$said"; \
	done; exit $$failed

mutations: deps-test deps-generate $(TESTSUM) ## put faults into a copy of the code, one at a time, and look whether a test of make test finds each; goes on where it was stopped
	$(GO) run ./internal/testutil/cmd/mutate -state $(RESULTS)/mutations.json

test-vm: deps-vm $(TESTSUM) build ## limits on Debian's stock kernels, emulated (20 minutes)
	@mkdir -p $(RESULTS)
	NETNICE_TEST_VM=1 $(TESTSUM) --format testname --jsonfile $(RESULTS)/vm.json \
		--packages ./internal/testutil/vm/... -- -count=1 -timeout 40m; code=$$?; \
	$(REPORT) -strict -show verifier: $(RESULTS)/vm.json && exit $$code

test-systemd: deps-vm package ## the package and units on a Debian with systemd, emulated (5 to 15 minutes)
	NETNICE_TEST_SYSTEMD=1 NETNICE_DEB=$$(ls -t $(CURDIR)/bin/package/*.deb | head -1) $(GO) test -count=1 -v -timeout 40m ./internal/testutil/vm/systemd

RUN_LAB = NETNICE=$(CURDIR)/$(BIN) ./$(LAB)

$(LAB):
	$(GO) build -o $@ ./lab

bench: bench-egress bench-ingress bench-udp ## the benches of limits, one after the other

bench-egress: build $(LAB) ## sending, beside HTB: goodput, fairness, retransmits, round trips, CPU
	$(RUN_LAB) bench egress $(BENCH_ARGS)

bench-ingress: build $(LAB) ## receiving, beside an ifb with HTB and policing: the same, and added delay
	$(RUN_LAB) bench ingress $(BENCH_ARGS)

bench-udp: build $(LAB) ## UDP, sent and received, alone and beside TCP: rate, gaps, losses, CPU (2 minutes)
	$(RUN_LAB) bench udp $(BENCH_ARGS)

bench-all: BENCH_ARGS += -all
bench-all: bench ## every rate, number of connections, congestion control and path: hours

bench-overhead: build $(LAB) ## what unlimited traffic pays, without and with limits elsewhere
	for n in 0 1; do $(RUN_LAB) bench overhead -limited $$n || exit 1; done
	$(RUN_LAB) bench overhead -limited 1000 -rounds 8 -passes 4
	$(RUN_LAB) bench overhead -both -rounds 20 -passes 2

bench-calls: build $(LAB) ## what others' socket options, sockets, fork and exec pay, in each state
	$(RUN_LAB) bench calls $(BENCH_ARGS)

bench-scale: build $(LAB) ## 10,000 sockets, 1,000 processes, 1,000 limits
	$(RUN_LAB) bench scale

bench-share: build $(LAB) ## shares of 2 to 100 programs of a limit and of a line, beside HTB (13 minutes)
	$(RUN_LAB) bench share $(BENCH_ARGS)

bench-reserve: build $(LAB) ## up to 50 guarantees and reservations of a link beside 512 connections and a flood (5 minutes)
	$(RUN_LAB) bench reserve $(BENCH_ARGS)

bench-cpu: build $(LAB) ## shares of the processors, 1 to 100 per cent, beside a quota, cpulimit and nice (20 minutes)
	$(call need,cpulimit)
	$(RUN_LAB) bench cpu $(BENCH_ARGS)

bench-probe: build $(LAB) ## what netnice probe says of paths of 28 kbit/s to 1 Gbit/s beside none to 70% of others' traffic (20 minutes)
	$(RUN_LAB) bench probe $(BENCH_ARGS)

bench-adapt: build $(LAB) ## UDP through bottlenecks, as it is and as the path carries it, alone and beside TCP (15 minutes)
	$(RUN_LAB) bench adapt $(BENCH_ARGS)

bench-delay: build $(LAB) ## how long a question by UDP and a small answer by HTTP take beside what uses up their limit (13 minutes)
	$(RUN_LAB) bench delay $(BENCH_ARGS)

experiments: deps-test build $(LAB) ## every experiment of the papers, into lab/out, and the table of what they found into lab/README.md
	@trap 'exit 130' INT TERM; failed=; \
	for e in $(EXPERIMENTS); do $(RUN_LAB) $$e $(LAB_ARGS) || failed="$$failed $$e"; done; \
	./$(LAB) verdicts -readme lab/README.md $(VERDICT_ARGS); missed=$$?; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }; exit $$missed

BENCHES := bench bench-overhead bench-calls bench-scale bench-share bench-reserve bench-cpu bench-probe bench-adapt bench-delay

lab: build $(LAB) ## every experiment and bench, into lab/out (hours), whatever is missed; the table of verdicts at the end
	@trap 'exit 130' INT TERM; failed=; \
	for t in experiments $(BENCHES); do $(MAKE) $$t || failed="$$failed $$t"; done; \
	./$(LAB) verdicts $(VERDICT_ARGS); \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

lint: deps-lint check-generated words ## formatting, vet, linters, generated code, words of the documents
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "run: gofmt -w"; exit 1; }
	clang-format-14 --dry-run -Werror bpf/*.c bpf/*.h include/*.h lab/internal/*/bpf/*.c
	GOWORK=off $(GO) vet ./...
	GOWORK=off $(GO) -C lab vet ./...
	$(LINT) run $(PACKAGES)

# Misspellings, and words that contrib/words/style.txt has a plainer one for. Each is to be mended by hand, or, if it is a
# name, added to contrib/words/ignored.txt.
DOCUMENTS = $(shell git ls-files '*.md' '*.yml' '*.yaml' 'docs/man/*' 'docs/site_hooks.py' 'include/*.h' 'examples/*' 'contrib/package/*' 'contrib/systemd/*' Makefile)
words: deps-words ## spelling and style of the documents' words (1 s, at first 10)
	@test ! -e $(WORDS)/venv/installed || $(WORDS)/venv/bin/codespell --builtin=clear,rare,usage \
		--dictionary=-,contrib/words/style.txt --ignore-words=contrib/words/ignored.txt $(DOCUMENTS)

generate: deps-generate ## compile the kernel object and regenerate what is committed
	CPATH=/usr/include/$(shell uname -m)-linux-gnu $(GO) generate ./internal/... ./lab/...
	$(GO) run ./cmd/netnice gen completions contrib/completions

reference: ## write docs/reference anew, from the code
	$(GO) generate ./internal/reference

drawing: ## draw anew: the packages and their imports in ARCHITECTURE.md, the steps of each docs/internals/life-of-*.md
	$(GO) test -count=1 ./internal/arch -run 'TestDrawing$$|TestLifeDrawings$$' -write-drawing

# The commands are run as root, with a network of their own, and what they print goes into the page that is drawn.
picture: deps-test ## record and draw anew the terminal that README.md shows, docs/img/terminal.svg (20 s)
	NETNICE_MUST_RUN_PRIVILEGED=1 NETNICE_TEST_WRITE_GUIDE=all $(GO) test -count=1 ./internal/e2e -run 'TestGuide$$/^terminal.md$$'
	$(GO) run ./internal/testutil/cmd/picture docs/img/terminal.md docs/img/terminal.svg

docs: $(DOCS)/venv/installed $(DOCS)/scripts/$(MERMAID) ## the documents as a site with search, into bin/docs; broken links and anchors fail (2 s, at first 20)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/venv/bin/mkdocs build --quiet --strict
	@echo "open bin/docs/index.html"

screenshots: deps-screenshots docs ## look at each page of the site, 1280 and 390 px wide, and take the documents' pictures of it (2 minutes)
	python3 docs/site_pictures.py bin/docs docs/img

check-generated:
	$(MAKE) generate
	git diff --exit-code -- internal/bpf internal/clock 'lab/*_bpfel.*' contrib/completions docs/reference

install: build ## into PREFIX (/usr/local), with man page, header, completions and units
	install -D $(BIN) $(DESTDIR)$(PREFIX)/bin/netnice
	ln -sf netnice $(DESTDIR)$(PREFIX)/bin/nlimit
	install -D -m 644 docs/man/netnice.1 $(DESTDIR)$(PREFIX)/share/man/man1/netnice.1
	install -D -m 644 docs/man/nlimit.1 $(DESTDIR)$(PREFIX)/share/man/man1/nlimit.1
	install -D -m 644 docs/man/netnice.3 $(DESTDIR)$(PREFIX)/share/man/man3/netnice.3
	install -D -m 644 docs/man/netnice.toml.5 $(DESTDIR)$(PREFIX)/share/man/man5/netnice.toml.5
	install -D -m 644 docs/man/netnice.7 $(DESTDIR)$(PREFIX)/share/man/man7/netnice.7
	install -D -m 644 include/netnice.h $(DESTDIR)$(PREFIX)/include/netnice.h
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for u in netnice.service netnice.socket; do \
		sed 's,/usr/bin/netnice,$(PREFIX)/bin/netnice,' contrib/systemd/$$u >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$u && \
		chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/$$u || exit 1; done
	install -D -m 644 contrib/systemd/netnice.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/netnice.conf
	install -D -m 644 examples/rules/netnice.toml $(DESTDIR)$(PREFIX)/share/doc/netnice/examples/netnice.toml
	for p in netnice nlimit; do \
		install -D -m 644 contrib/completions/$$p.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$p && \
		install -D -m 644 contrib/completions/_$$p $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$p && \
		install -D -m 644 contrib/completions/$$p.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$p.fish || exit 1; done

uninstall: ## remove what install put there; lift limits first: netnice down
	cd $(DESTDIR)$(PREFIX) && rm -f bin/netnice bin/nlimit share/man/man1/netnice.1 share/man/man1/nlimit.1 share/man/man3/netnice.3 share/man/man5/netnice.toml.5 share/man/man7/netnice.7 include/netnice.h \
		lib/systemd/system/netnice.service lib/systemd/system/netnice.socket lib/sysusers.d/netnice.conf share/doc/netnice/examples/netnice.toml \
		share/bash-completion/completions/netnice share/zsh/site-functions/_netnice share/fish/vendor_completions.d/netnice.fish \
		share/bash-completion/completions/nlimit share/zsh/site-functions/_nlimit share/fish/vendor_completions.d/nlimit.fish

# All times in the packages are that of the last commit, so that the same source makes the same packages.
package: export SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || date +%s))
package: build $(NFPM) ## deb and rpm for this machine's architecture, into bin/package
	mkdir -p bin/package && rm -f bin/package/*.deb bin/package/*.rpm
	for page in docs/man/*; do gzip -9nc $$page >bin/package/$${page##*/}.gz || exit 1; done
	GO=$(GO) contrib/package/modules.sh >bin/package/go-modules && gzip -9nf bin/package/go-modules
	contrib/package/nfpm.sh $(NFPM) $(VERSION) $$($(GO) env GOARCH) bin/package

lint-package: deps-package package ## what lintian and rpmlint say of the packages, and whether they come out the same once more
	lintian --allow-root --suppress-tags statically-linked-binary --fail-on error,warning bin/package/*.deb
	rpmlint --strict -c contrib/package/rpmlint.toml --rpmlintrc contrib/package/rpmlintrc bin/package/*.rpm
	cd bin/package && sha256sum *.deb *.rpm >once
	$(MAKE) package
	cd bin/package && sha256sum -c once

clean: ## remove bin/ and what make docs and make words have installed
	rm -rf bin lab/out .cache

# Install what is missing, where apt-get can.
define need
	@missing=""; for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
		command -v apt-get >/dev/null || { echo "install these first:$$missing"; exit 1; }; \
		echo "installing$$missing"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
endef

deps-test:
	$(call need,$(TEST_PACKAGES) $(shell for f in $(TEST_FILES); do test -e "$${f%%:*}" || command -v "$${f%%:*}" >/dev/null || echo "$${f#*:}" | tr , ' '; done))

deps-vm:
	$(call need,$(VM_PACKAGES))

deps-package:
	$(call need,lintian rpmlint rpm)

deps-docs:
	$(call need,$(shell python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv))

deps-screenshots:
	$(call need,chromium fonts-dejavu-core)

$(DOCS)/venv/installed: docs/requirements.txt | deps-docs
	python3 -m venv --clear $(DOCS)/venv
	$(DOCS)/venv/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

deps-words: $(WORDS)/venv/installed

# Where PyPI cannot be reached, nothing is installed, and the other linters run all the same.
$(WORDS)/venv/installed: contrib/words/requirements.txt | deps-docs
	@rm -rf $(WORDS)/venv; python3 -m venv $(WORDS)/venv && \
	$(WORDS)/venv/bin/pip install --quiet --disable-pip-version-check -r $< && touch $@ || \
	echo "NOT CHECKED: the words of the documents, since codespell could not be installed"

# What pages run as they are read: the drawings, and the search where no server is. Without npm they are loaded from the network.
$(DOCS)/scripts/$(MERMAID):
	rm -rf $(@D) && mkdir -p $(@D)
	if command -v npm >/dev/null; then cd $(@D) && npm pack --silent mermaid@$(MERMAID) iframe-worker@$(WORKER) >/dev/null && \
		tar -xzOf mermaid-$(MERMAID).tgz package/dist/mermaid.min.js >mermaid.js && \
		tar -xzOf iframe-worker-$(WORKER).tgz package/shim/index.js >worker.js && rm *.tgz; fi
	touch $@

deps-lint: $(LINT) deps-generate deps-words

deps-generate:
	$(call need,$(GEN_PACKAGES))

$(LINT):
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(TOOLS)/golangci-lint $@

$(TESTSUM):
	GOBIN=$(TOOLS) $(GO) install gotest.tools/gotestsum@v1.13.0
	mv $(TOOLS)/gotestsum $@

$(NFPM):
	GOBIN=$(TOOLS) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
	mv $(TOOLS)/nfpm $@
