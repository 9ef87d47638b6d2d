# The documented commands; `make` lists them. Each can be called again at any time, and installs what it needs and the machine lacks
# (.ci/tools, e2e/cluster/build); what it builds stays under ~/.cache/volferry.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Programs are not told of jobs that they cannot take part in, which cargo complains of.
unexport MAKEFLAGS MFLAGS

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/volferry
export CARGO_TARGET_DIR ?= $(CACHE)/target

# What `make image` builds: release, or dev.
PROFILE ?= release
IMAGE ?= volferry/volferry:$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# What `make dist` packs programs for; this machine's own architecture by default.
TARGET ?= $(shell rustc --print host-tuple 2>/dev/null)
# Further arguments of the side-by-side runs, for example `make bench-peers BENCH='--quick --rounds 3'`.
BENCH ?=

# Programs are always built from the whole workspace, so that its dependencies are built once, with the features of all its members.
# Those of the profile dev are built beside a small test, which gives dependencies the features that tests ask for: so tests and what
# they start are built once.
FOR_TESTS = --test gitignore
PROGRAMS = cargo build --profile $(PROFILE) $(if $(filter dev,$(PROFILE)),$(FOR_TESTS)) --bin volferry --bin volferry-operator
DEV_PROGRAMS = cargo build --quiet $(FOR_TESTS) --bin volferry --bin volferry-operator --bin kubectl-volferry
DEV_DIR = $(CARGO_TARGET_DIR)/$$(rustc --print host-tuple)/debug
PROFILE_DIR = $(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
PROGRAMS_DIR = $(CARGO_TARGET_DIR)/$$(rustc --print host-tuple)/$(PROFILE_DIR)

# The CRDs, and copies of them: kustomize reads no file outside of a base, and Flux no symbolic link of a chart.
CRD_FOLDERS = crds config/crd charts/volferry/files/crds

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

.PHONY: demo
demo: ## Three runs of a SyncJob on a tree that changes, with no cluster
	@.ci/tools build
	$(PROGRAMS)
	VOLFERRY_BIN_DIR="$(PROGRAMS_DIR)" e2e/demo/run

demo: PROFILE = demo

.PHONY: test
test: ## Every test: unit, integration, API server, kind
	@.ci/tools build test
	e2e/run --beside '$(MAKE) --keep-going test-local test-apiserver' --workspace --test kind

.PHONY: test-local
test-local: ## The tests that need no cluster programs
	@.ci/tools build test
	# Flags that select tests would also build test programs of targets without tests (`test = false`), and start rustdoc for each library.
	# Half of their time is waiting for processes and peers, so more run at once than there are cores.
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(nproc)))} .ci/again cargo test --no-fail-fast --workspace

.PHONY: test-apiserver
test-apiserver: ## The tests on an API server of their own, with no kubelet
	@.ci/tools build test
	e2e/cluster/build tools apiserver
	$(DEV_PROGRAMS)
	RUST_TEST_THREADS=4 .ci/again cargo test --no-fail-fast --workspace --test apiserver

# Not part of `make test`, which takes five writes of each of these tests, others each time.
.PHONY: test-every-kill
test-every-kill: ## The tests that kill an operator, at each of its writes (twenty minutes)
	@.ci/tools build
	e2e/cluster/build tools apiserver
	$(DEV_PROGRAMS)
	VOLFERRY_EVERY_CUT=1 RUST_TEST_THREADS=4 .ci/again cargo test --no-fail-fast --workspace --test apiserver -- killed

.PHONY: test-cluster
test-cluster: ## The tests on an API server and on a kind cluster
	@.ci/tools build test
	e2e/run --workspace --test apiserver --test kind

# Not part of `make test`: the controllers take many minutes to build, and test this project's page and manifests, which rarely change.
.PHONY: test-gitops
test-gitops: ## The GitOps tutorial with the controllers of Flux and Argo CD, which it builds first
	@.ci/tools build
	e2e/cluster/build tools apiserver gitops-controllers
	$(DEV_PROGRAMS)
	cargo test --workspace --test gitops

# Not part of `make test`: the provisioner and the resizer take minutes to build, and what they test rarely changes.
.PHONY: test-csi
test-csi: ## Claims that grow, clones, group snapshots, changed blocks and the populator, with a CSI driver and its real sidecars on the kind cluster; it builds them first
	@.ci/tools build
	e2e/cluster/up
	e2e/cluster/csi
	e2e/run --workspace --test csi

# Seconds for each decoder.
FUZZ ?= 10

.PHONY: fuzz
fuzz: ## Every decoder of the engine under libFuzzer, FUZZ seconds each
	@.ci/tools build fuzz
	syncer/fuzz/run $(FUZZ)

.PHONY: check
check: check-format check-prose check-clippy check-install check-doc check-generated check-tables check-deny check-scripts check-book check-manifests check-pack ## The quick part: format, lints, generated files, licences, charts

.PHONY: check-tools
check-tools:
	@.ci/tools build check

.PHONY: check-format
check-format: check-tools
	cargo fmt --all --check

.PHONY: check-clippy
check-clippy: check-tools
	cargo clippy --workspace --all-targets -- -D warnings
	# Those that run only where they are named (e2e/Cargo.toml) are no part of all targets.
	cargo clippy --workspace --test '*' -- -D warnings

# `cargo install` builds a package alone, without the features that other packages of the workspace ask of a dependency.
.PHONY: check-install
check-install: check-tools
	for package in volferry-cli volferry-operator; do cargo check --quiet --locked --package "$$package"; done

.PHONY: check-doc
check-doc: check-tools
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --quiet --workspace --no-deps --document-private-items

.PHONY: check-generated
check-generated: check-tools
	fresh=$$(mktemp -d)
	trap 'rm -rf "$$fresh"' EXIT
	$(DEV_PROGRAMS) --bin crdgen --bin docgen
	"$(DEV_DIR)/crdgen" "$$fresh"
	for copy in $(CRD_FOLDERS); do
	  [ ! -L "$$copy" ] || { echo "$$copy is a symbolic link, which Flux drops: run make crds" >&2; exit 1; }
	  diff -ru --exclude kustomization.yaml "$$copy" "$$fresh" || { echo "$$copy is not what the types say: run make crds" >&2; exit 1; }
	done
	rm "$$fresh"/*.yaml
	$(REFERENCE) "$$fresh"
	diff -ru docs/src/reference "$$fresh" || { echo "docs/src/reference is not what the programs say: run make reference" >&2; exit 1; }
	docs/recorded "$(DEV_DIR)"

# Prints the help of the programs, and the tables of the CRDs and of the chart's values, into a folder.
REFERENCE = $(DEV_PROGRAMS) --bin docgen && docs/generate "$(DEV_DIR)"

.PHONY: reference
reference: ## Write docs/src/reference from the programs, the CRDs and the chart
	@.ci/tools build
	$(REFERENCE) docs/src/reference

BOOK ?= $(CACHE)/book
# A folder for pictures of the pages, by chromium.
SHOTS ?=

.PHONY: book
book: ## The pages of docs/ for a browser, in ~/.cache/volferry/book (BOOK=FOLDER; SHOTS=FOLDER for pictures of them)
	@.ci/tools book
	$(CACHE)/tools/bin/mdbook build --dest-dir "$(abspath $(BOOK))" docs
	[ -z "$(SHOTS)" ] || .ci/pages "$(abspath $(BOOK))" "$(abspath $(SHOTS))"
	echo "$(abspath $(BOOK))/index.html"

# Links are those of all documents, to files and headings of this repository.
.PHONY: check-book
check-book: check-tools
	git ls-files -z --cached --others --exclude-standard '*.md' | LC_ALL=C xargs -0 awk -f .ci/links.awk
	pages=$$(mktemp -d)
	trap 'rm -rf "$$pages"' EXIT
	$(CACHE)/tools/bin/mdbook build --dest-dir "$$pages" docs >"$$pages.log" 2>&1 || { cat "$$pages.log" >&2; exit 1; }
	rm "$$pages.log"
	.ci/pages "$$pages" $(if $(SHOTS),"$(abspath $(SHOTS))")

# Advisories are those of a list: their database is a git repository, which a machine that reaches package registries only cannot fetch.
.PHONY: check-deny
check-deny: check-tools
	$(CACHE)/tools/bin/cargo-deny --workspace check --hide-inclusion-graph bans licenses sources
	packages=$$(awk '/^name = /{n=$$3} /^version = /{v=$$3} /^source = /{print n, v}' Cargo.lock | sha256sum | cut -c 1-64)
	grep -q "$$packages" .github/ADVISORIES.md || { echo "Cargo.lock has other packages than .github/ADVISORIES.md, which says how to look them up; their hash is $$packages" >&2; exit 1; }

.PHONY: check-scripts
check-scripts: check-tools
	git ls-files -z --cached --others --exclude-standard | { xargs -0 grep -d skip -lE '^#!.*\b(ba)?sh$$' || true; } | xargs shellcheck
	syncer/fuzz/oss-fuzz/test

.PHONY: check-prose
check-prose:
	git ls-files -z --cached --others --exclude-standard '*.md' | LC_ALL=C xargs -0 awk -f .ci/prose.awk
	git ls-files -z --cached --others --exclude-standard '*.rs' | LC_ALL=C xargs -0 awk -f .ci/comments.awk

.PHONY: check-manifests
# The built helm knows no version of Kubernetes, so it is told the oldest one.
check-manifests: check-tools
	e2e/cluster/build tools krew olm
	. e2e/cluster/lib.sh
	helm lint --strict --quiet charts/volferry
	helm template volferry charts/volferry --kube-version 1.30.0 >/dev/null
	bare=$$(mktemp -d)
	trap 'rm -rf "$$bare"' EXIT
	cp -r charts/volferry "$$bare" && rm -r "$$bare/volferry/files/crds"
	! helm template volferry "$$bare/volferry" --kube-version 1.30.0 >/dev/null 2>"$$bare/said" || { echo "the chart installs without its CRDs" >&2; exit 1; }
	grep -q 'lacks files/crds' "$$bare/said"
	for folder in config/*/kustomization.yaml; do kubectl kustomize "$$(dirname "$$folder")" >/dev/null; done
	# A component is built as a part of an overlay, here one outside of the repository.
	mkdir "$$bare/overlay"
	for component in config/components/*; do
	  top=$$(realpath --relative-to="$$bare/overlay" .)
	  printf '%s\n' 'kind: Kustomization' "resources: [$$top/config/default]" "components: [$$top/$$component]" >"$$bare/overlay/kustomization.yaml"
	  kubectl kustomize "$$bare/overlay" >"$$bare/built"
	  grep -q '^kind: Deployment' "$$bare/built" || { echo "$$component cannot be added to config/default" >&2; exit 1; }
	done
	sed -i "s|components: .*|components: [$$top/config/components/hooks, $$top/config/components/own-namespace]|" "$$bare/overlay/kustomization.yaml"
	kubectl kustomize "$$bare/overlay" >"$$bare/built"
	! grep -q '^kind: ClusterRole' "$$bare/built" || { echo "own-namespace leaves rights in the whole cluster" >&2; exit 1; }
	config/krew-test
	config/chart-test
	config/bundle "$$bare/bundle" >/dev/null
	olm "$$bare/bundle"

# Compiling twice is for `make reproducible`.
.PHONY: check-pack
check-pack: check-tools
	@.ci/tools dist
	$(DEV_PROGRAMS)
	PATH=$(CACHE)/tools/bin:$$PATH config/pack-test "$(DEV_DIR)"

# Not part of `make check`: it needs Node, and hundreds of npm packages the first time.
.PHONY: check-panel
check-panel: ## The panel for Headlamp: types, lints, tests in a DOM, and a build of it
	@.ci/tools panel
	config/headlamp/check

.PHONY: crds
crds: ## Write crds/ and its copies from the types in operator/api, and the reference
	@.ci/tools build
	$(DEV_PROGRAMS) --bin crdgen
	"$(DEV_DIR)/crdgen" $(CRD_FOLDERS)
	$(REFERENCE) docs/src/reference

MONITORING = charts/volferry/files/monitoring

# kustomize reads no file outside of a component. operator/tests/monitoring.rs holds the copies to the chart's files.
.PHONY: monitoring
monitoring: ## Write the alerts and the dashboard of config/components from those of the chart
	{ printf '%s\n' 'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' \
	    'metadata: {name: volferry-operator, namespace: volferry-system}' 'spec:'
	  sed '1d; s/^./  &/' $(MONITORING)/alerts.yaml; } >config/components/alerts/rules.yaml
	cp $(MONITORING)/dashboard.json config/components/dashboard/volferry.json

.PHONY: image
image: ## The container image, from static programs
	@.ci/tools build
	. e2e/cluster/lib.sh
	engine_up
	PROFILE=$(PROFILE) config/image/build "$(IMAGE)"

.PHONY: dist
dist: ## Static programs with manual pages, completions, units, bills of materials and checksums, a krew manifest, and the image as an OCI layout, in dist/ (TARGET=aarch64-unknown-linux-gnu)
	@.ci/tools build dist
	export PATH=$(CACHE)/tools/bin:$$PATH
	config/cross "$(TARGET)" cargo build --profile $(PROFILE) --bin volferry --bin kubectl-volferry --bin volferry-operator
	config/cross "$(TARGET)" config/dist "$(CARGO_TARGET_DIR)/$(TARGET)/$(PROFILE_DIR)" dist

# Not part of `make check`, which packs twice and compiles once.
.PHONY: reproducible
reproducible: ## Compile and pack twice, in two checkouts, and compare the files (half an hour of processor time)
	PROFILE=$(PROFILE) config/reproducible

.PHONY: cluster
cluster: ## A kind cluster of two nodes; prints the path of its kubeconfig
	@e2e/cluster/up

.PHONY: cluster-down
cluster-down: ## Delete that cluster; what was built for it stays
	@e2e/cluster/down

# The tests themselves are built as all others are; what they run is the release program.
REGRESSION = PATH=$(CACHE)/tools/bin:$$PATH VOLFERRY_RELEASE=$(CARGO_TARGET_DIR)/$$(rustc --print host-tuple)/release/volferry \
	cargo test --workspace --bench perf_regression

.PHONY: test-regression
test-regression: ## Counts of whole runs against benches/regression/figures.json (minutes)
	@.ci/tools build bench
	cargo build --release --bin volferry
	$(REGRESSION)

.PHONY: accept-figures
accept-figures: ## Accept what the regression tests count as the new figures
	@.ci/tools build bench
	cargo build --release --bin volferry
	VOLFERRY_ACCEPT_FIGURES=1 $(REGRESSION)

.PHONY: bench
bench: ## Criterion benches of runs and of the delta (BENCH='local/sync_small_files' runs those of a name)
	@.ci/tools build
	cargo build --release --bin volferry
	cargo bench --workspace --bench delta --bench sync -- $(BENCH)

# Frame pointers let perf follow calls; the flags of .cargo/config.toml have to be named again.
.PHONY: profile
profile: ## A flamegraph of a bench, for example BENCH=network/sync_small_files/1000
	@.ci/tools build profile
	RUSTFLAGS='-C target-feature=+crt-static -C force-frame-pointers=yes' CARGO_TARGET_DIR=$(CACHE)/profile/target \
		cargo build --release --bin volferry
	cargo run --release --bin profile -- --bench "$(BENCH)" --inferno $(CACHE)/tools/bin \
		--program $(CACHE)/profile/target/$$(rustc --print host-tuple)/release/volferry --out "flamegraph-$(subst /,-,$(BENCH)).svg"

.PHONY: bench-peers
bench-peers: ## Volferry beside the tools of today (BENCH='--quick'; an hour in all, on a quiet machine)
	@.ci/tools build
	cargo build --release --bin volferry --bin peers
	cargo run --release --bin peers -- --install $(BENCH)

TABLES = cargo build --quiet $(FOR_TESTS) --bin tables && "$(DEV_DIR)/tables"

.PHONY: tables
tables: ## Write the tables of figures in documents from benches/results
	@.ci/tools build
	$(TABLES)

.PHONY: check-tables
check-tables: check-tools
	$(TABLES) --check

.PHONY: bench-snapshots
bench-snapshots: ## What snapshots cost (BENCH='--quick' takes minutes; a million files and 1,000 snapshots half an hour)
	@.ci/tools build
	cargo build --release --bin volferry --bin snapshots
	cargo run --release --bin snapshots -- $(BENCH)

.PHONY: bench-history
bench-history: ## What copies, mounts and archives of a history cost, beside restic and tar (ten minutes)
	@.ci/tools build gateway
	cargo build --release --bin volferry --bin history
	cargo run --release --bin history -- --s3 "$(CACHE)/tools/bin/versitygw" $(BENCH)

.PHONY: bench-operator
bench-operator: ## What 1,000 SyncJobs cost the operator, on a real API server with simulated ends (BENCH='200 20' for fewer)
	@.ci/tools build
	e2e/cluster/build tools apiserver
	cargo build --release --bin volferry-operator
	cargo bench --package volferry-e2e --bench operator -- $(BENCH)

.PHONY: bench-timings
bench-timings: ## What measuring the phases costs a run: at most 1 % (BENCH='--quick --instructions' on a busy machine)
	@.ci/tools build bench
	cargo build --release --bin compare
	folder=$(CACHE)/timings
	for features in measured unmeasured; do
	  CARGO_TARGET_DIR=$$folder cargo build --release --package volferry-cli --bin volferry --features "$${features/#measured/}"
	  cp "$$folder/$$(rustc --print host-tuple)/release/volferry" "$$folder/$$features"
	done
	"$(CARGO_TARGET_DIR)/$$(rustc --print host-tuple)/release/compare" --before "$$folder/unmeasured" --before-name unmeasured \
	  --after "$$folder/measured" --after-name measured --threshold 1 --together $(BENCH)
