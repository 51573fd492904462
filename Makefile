# Sparkfleet from the command line. `make` alone says what there is.

CARGO ?= cargo
# More arguments for `make up`, `make test` and `make bench`, for example ARGS="--clusters 5".
ARGS ?=
# The minor version of the real Kubernetes that is tested with: a folder of tests/kubernetes/programs.
KUBERNETES ?= 1.36
export KUBERNETES
# How many seeds `make soak` simulates.
SEEDS ?= 10000
# How long `make fuzz` spends on each target.
SECONDS_EACH ?= 60

# What needs the C library of TPMs is tested and linted, but built only on request; the end-to-end tests build the bootstrapper with it.
TPM := bootstrapper/tpm,e2e/tpm
# So is what needs a KDC.
KERBEROS := sparkfleet/kerberos,cluster-manager/kerberos,krb-keys/kerberos,kerberos-client/kerberos,e2e/kerberos

# For `make packages ARCH=...`: Rust's name of a Debian architecture.
TRIPLE_amd64 := x86_64-unknown-linux-gnu
TRIPLE_arm64 := aarch64-unknown-linux-gnu
# What compiles and links for it, and where the TPM libraries of that architecture are.
TOOLS_arm64 := aarch64-linux-gnu-gcc libtss2:arm64
CROSS_arm64 := CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc PKG_CONFIG_SYSROOT_DIR=/ PKG_CONFIG_PATH=/usr/lib/aarch64-linux-gnu/pkgconfig

# Tools that the tests start beside cargo: the reference broker and its clients, Python and Node clients where tests use them.
PYTHON_TESTS := $(wildcard tests/*/requirements.txt tests/*/*/requirements.txt)
NODE_TESTS := $(wildcard tests/*/package.json tests/*/*/package.json)
# A software TPM with its tools, and those that read the certificates which are issued.
TPM_TOOLS := swtpm swtpm_setup tpm2_quote libtss2 openssl ssh-keygen
KERBEROS_TOOLS := krb5kdc kadmind kadmin
# What builds and starts real Kubernetes: Go, or what it is taken from where it is too old.
KUBERNETES_TOOLS := go python3 pip git ip setpriv unshare
# What makes the images of real machines, and what these machines are.
LAB_TOOLS := qemu-system-x86_64 ovmf swtpm swtpm_setup openssl mosquitto ssh ssh-keygen \
	mmdebstrap mkfs.erofs veritysetup objcopy systemd-boot-stub systemd-measure sbsign sfdisk mkfs.vfat mcopy cpio busybox
TEST_TOOLS := cargo cc git dpkg-shlibdeps systemd-analyze mosquitto mosquitto_pub cryptsetup go kubectl curl shellcheck prometheus-alertmanager $(TPM_TOOLS) $(KERBEROS_TOOLS) $(KUBERNETES_TOOLS) $(if $(PYTHON_TESTS),python3 pip) $(if $(NODE_TESTS),node npm)

.DEFAULT_GOAL := help
.PHONY: help up test brokers kubernetes cluster lab packages check fmt locks clippy tidy doc package semver msrv shellcheck deny bench soak mutants prove tck fuzz

help: ## say what each target does
	@echo "Sparkfleet: make <target>"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

up: ## build, and run a whole simulated factory on this machine (ARGS=... for `sparkfleet up`)
	@.ci/tools cargo cc
	$(CARGO) build --profile up --locked -p sparkfleet
	exec "$${CARGO_TARGET_DIR:-target}/up/sparkfleet" up $(ARGS)

test: ## every test; installs missing Debian packages; last line: N passed, N failed, N skipped
	@.ci/tools $(TEST_TOOLS)
	@.ci/tools chromium || echo "make test: there is no Chromium, so the scenarios of the console's page are skipped"
	@.ci/test --features $(TPM),$(KERBEROS) $(ARGS)

brokers: ## try MQTT servers with Sparkplug sessions and a whole factory; prints the table of the README (ARGS="mosquitto hivemq" for some)
	@.ci/tools cargo cc mosquitto rabbitmq-server java mvn node npm go
	@.ci/brokers
	$(CARGO) run --locked -p brokers -- $(ARGS)

kubernetes: ## build real Kubernetes and Flux (8 minutes, once), and test on them (KUBERNETES=1.35 for another version)
	@.ci/tools cargo cc libtss2 mosquitto $(KUBERNETES_TOOLS)
	@.ci/kubernetes $(KUBERNETES)
	@KUBERNETES_ONLY=1 .ci/test --features $(TPM),$(KERBEROS) $(ARGS)

cluster: ## a shell with kubectl on a fresh real Kubernetes whose pods are processes: try a bootstrap by hand (KUBERNETES=1.35 for another version)
	@.ci/tools cargo cc $(KUBERNETES_TOOLS)
	@.ci/kubernetes $(KUBERNETES)
	$(CARGO) build --locked -p sparkfleet -p sparkfleet-edge -p edge-agent -p kubernetes-tests --bins
	@debug="$${CARGO_TARGET_DIR:-target}/debug" && PATH="$$(cd "$$debug" && pwd):$$PATH" && \
		.ci/own-network "$$debug/with-control-plane" --pods "$$debug" "$${SHELL:-bash}"

lab: ## stories of real machines in QEMU: firmware, TPM, measured boot, encrypted disk (docs/lab.md; ARGS="power" for some)
	@.ci/tools cargo cc libtss2 $(LAB_TOOLS)
	@[ "$$(id -u)" -eq 0 ] || { echo "make lab: only root can make a host's root file system (mmdebstrap, chroot): sudo make lab"; exit 1; }
	$(CARGO) test --locked -p lab --test lab -- --ignored --nocapture --test-threads=1 $(ARGS)

packages: ## Debian package of the bootstrapper into target/packages (ARCH=arm64: for that architecture, docs/bootstrapper.md)
	@.ci/tools cargo cc dpkg-shlibdeps $(if $(TOOLS_$(ARCH)),$(TOOLS_$(ARCH)),libtss2)
	$(if $(TRIPLE_$(ARCH)),rustup target add $(TRIPLE_$(ARCH)))
	$(CROSS_$(ARCH)) $(CARGO) build --locked --profile edge -p bootstrapper --features bootstrapper/tpm $(if $(ARCH),--target $(TRIPLE_$(ARCH)))
	@.ci/packages --binary "$${CARGO_TARGET_DIR:-target}/$(if $(ARCH),$(TRIPLE_$(ARCH))/)edge/sparkfleet-bootstrapper" --architecture $(or $(ARCH),$$(dpkg --print-architecture))

check: fmt locks clippy tidy doc package semver msrv shellcheck deny ## format, lock files, lints, rules of the repository, documentation, packages, oldest Rust, scripts, dependencies

fmt: ## is everything formatted?
	$(CARGO) fmt --all -- --check

locks: ## the lock files of the workspaces beside the main one fit what they are of
	@for workspace in fuzz tests/peers; do \
		$(CARGO) metadata --locked --format-version 1 --manifest-path "$$workspace/Cargo.toml" >/dev/null || \
			{ echo "make locks: $$workspace/Cargo.lock is behind: cargo update --workspace --manifest-path $$workspace/Cargo.toml"; exit 1; }; \
	done

clippy: ## lints, warnings are errors
	@.ci/tools cargo cc libtss2
	$(CARGO) clippy --workspace --all-targets --locked --features $(TPM),$(KERBEROS) -- -D warnings

tidy: ## the rules that no compiler checks (tests/tidy)
	$(CARGO) test --locked -p tidy

doc: ## documentation builds without warnings; that of the library also as docs.rs and its smallest user build it
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	RUSTDOCFLAGS="-D warnings --cfg docsrs" $(CARGO) doc --no-deps --locked --all-features -p sparkplug -p sparkplug-mqtt
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --locked --no-default-features -p sparkplug -p sparkplug-mqtt

package: ## the Sparkplug library can be packed for crates.io
	$(CARGO) package --locked --no-verify --allow-dirty -p sparkplug -p sparkplug-mqtt

semver: ## the library's API fits the version that its last release leaves, if there is one and cargo-semver-checks is installed
	@release="$$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null)"; \
	if [ -z "$$release" ]; then echo "make semver: no release is tagged, so there is no API to compare with"; \
	elif command -v cargo-semver-checks >/dev/null; then cargo semver-checks -p sparkplug -p sparkplug-mqtt --baseline-rev "$$release"; \
	else echo "cargo-semver-checks is not installed: the library's API is not compared with $$release (cargo install cargo-semver-checks --locked)"; fi

msrv: ## the Sparkplug library builds with the oldest Rust that its packages name, if rustup has that
	@version="$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' sparkplug/core/Cargo.toml)"; \
	toolchain="$$(rustup toolchain list 2>/dev/null | sed -n "s/^\($$version\(\.[0-9]*\)\{0,1\}-[^ ]*\).*/\1/p" | head -n 1)"; \
	if [ -n "$$toolchain" ]; then rustup run "$$toolchain" cargo check --locked -p sparkplug -p sparkplug-mqtt; \
	else echo "make msrv: Rust $$version is not installed, so clippy alone holds it (rustup toolchain install $$version)"; fi

shellcheck: ## scripts have no known traps
	@.ci/tools shellcheck git
	git ls-files | while read -r file; do \
		if [ -f "$$file" ] && head -c 64 "$$file" | grep -aqE '^#!.*\b(ba|da)?sh\b'; then echo "$$file"; fi; \
	done | xargs -r shellcheck

deny: ## licences and advisories of dependencies, if cargo-deny is installed
	@if command -v cargo-deny >/dev/null; then cargo deny --workspace check; \
	else echo "cargo-deny is not installed: licences and advisories are not checked (cargo install cargo-deny)"; fi

bench: ## measurements as Markdown, docs/benchmarks.md says what they mean (ARGS="latency --clusters 100", or all)
	@.ci/tools cargo cc
	$(CARGO) run --release --locked -p bench -- $(or $(ARGS),all)
	$(CARGO) run --release --locked --manifest-path tests/peers/Cargo.toml
	$(CARGO) run --release --locked --manifest-path tests/peers/Cargo.toml -p ingest
	@if command -v node >/dev/null && command -v npm >/dev/null && [ -x "$${CHROMIUM:-/usr/bin/chromium}" ]; then \
		$(CARGO) build --release --locked -p sparkfleet && \
		program="$$(cd "$${CARGO_TARGET_DIR:-target}/release" && pwd)/sparkfleet" && cd tests/console && \
		npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && node wall.mjs && SPARKFLEET="$$program" node streams.mjs; \
	else echo "make bench: there is no node, npm or Chromium, so what the console's page costs is not measured"; fi

soak: ## simulate the whole fleet in virtual time, with faults, from SEEDS= different seeds, and say how much faster than real time; then fuzz, if cargo-fuzz is there
	SPARKFLEET_SEEDS=$(SEEDS) $(CARGO) test --release --locked -p sim -- --nocapture
	@if command -v cargo-fuzz >/dev/null; then $(MAKE) fuzz; \
	else echo "make soak: cargo-fuzz is missing, so hostile input was not tried (cargo install cargo-fuzz --locked)"; fi

# What decides over sessions: bdSeq, seq, births, deaths, rebirths.
SESSION_FILES := $(addprefix sparkplug/core/src/,session.rs seq.rs \
	edge_node/session.rs edge_node/flow.rs edge_node/primary_host.rs edge_node/rebirth.rs host/session.rs host/inbound.rs host/rebirth.rs host/resequencer.rs)

mutants: ## break the session files of the Sparkplug library in every way that cargo-mutants knows, and list what no test notices (hours; needs cargo-mutants)
	@command -v cargo-mutants >/dev/null || { echo "cargo-mutants is missing: cargo install cargo-mutants --locked"; exit 1; }
	$(CARGO) mutants --package sparkplug --jobs 1 $(addprefix --file ,$(SESSION_FILES)) $(ARGS)

prove: ## check a model of the protocol of desired states by trying everything within a budget, and prove the join protocol for any number of runs
	$(CARGO) run --locked -p model
	$(CARGO) run --locked -p prove

tck: ## the requirements of the Sparkplug specification, and how many are covered
	$(CARGO) test --locked -p tck -- --nocapture requirements

fuzz: ## feed hostile input to the decoders and machines, SECONDS_EACH= on each target (needs cargo-fuzz)
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing: cargo install cargo-fuzz --locked"; exit 1; }
	# RUSTC_BOOTSTRAP: the sanitizer flags are unstable, the compiler that has them is the stable one.
	cd fuzz && for target in $$(cargo fuzz list); do \
		mkdir -p "corpus/$$target" && \
		RUSTC_BOOTSTRAP=1 cargo fuzz run "$$target" "corpus/$$target" "seeds/$$target" -- -max_total_time=$(SECONDS_EACH) || exit 1; \
	done
