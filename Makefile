# fly · node · node-twice · wheel · deb · man · site · web · sbom · packages-test · test · check · counts · hops · kernel · field · golden · coverage · search · lint · audit · words · bench · peers · reproduce · docs · fuzz; each sets up what it needs.
PYTHON ?= python3
VENV := .venv
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python compiles what it imports; of what is installed that is a small part. Compiled modules are kept: tests start
# Python hundreds of times.
export PIP_COMPILE := 0
unexport PYTHONDONTWRITEBYTECODE
SCENARIO ?= scenarios/remote-piloting.toml
RUST_SOURCES := $(shell find crates -name '*.rs' -o -name '*.toml') Cargo.toml Cargo.lock

.PHONY: build dev fly node node-twice wheel deb man site web sbom packages-test portable install-node test test-build test-rust test-python check smoke kernel field golden coverage search lint audit words bench peers reproduce docs fuzz clean counts counts-update hops

build: $(VENV)/.built $(VENV)/.studies

dev: build $(VENV)/.dev

# The native module, as `make fly` and the benchmarks need it.
$(VENV)/.built: $(VENV)/.installed $(RUST_SOURCES) pyproject.toml
	PIP_QUIET=1 $(VENV)/bin/maturin develop --release --locked --extras plot,report
	rm -f $(VENV)/.built-for-tests
	touch $@

# The native module with the crates that `cargo test` has built: broken invariants panic in it. It takes the place of
# the other one until that is needed again.
$(VENV)/.built-for-tests: $(VENV)/.installed $(RUST_SOURCES) pyproject.toml
	PIP_QUIET=1 $(VENV)/bin/maturin develop --locked --extras plot,report
	rm -f $(VENV)/.built
	touch $@

# The distribution of studies/, for `skybraid reproduce`. Its files are used where they are.
$(VENV)/.studies: $(VENV)/.installed studies/pyproject.toml
	$(VENV)/bin/pip install --quiet --no-index --no-build-isolation --no-deps --editable studies
	touch $@

# What tests and checks need besides, so that a first flight does not wait for it. The packages that MAVProxy draws maps
# with have 700 MB, and no test looks at a map.
$(VENV)/.dev: $(VENV)/.installed constraints.txt pyproject.toml
	$(VENV)/bin/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*project["dependencies"], *project["optional-dependencies"]["dev"], sep="\n")' > $(VENV)/dev.txt
	$(VENV)/bin/pip install --quiet --requirement $(VENV)/dev.txt
	$(VENV)/bin/pip install --quiet --no-deps MAVProxy
	touch $@

# Debian ships neither a linker nor venv with Rust and Python; as root they are installed.
$(VENV)/.installed: constraints.txt
	@command -v cc >/dev/null || (apt-get update -q && apt-get install -y -q gcc libc6-dev)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || (apt-get update -q && apt-get install -y -q python3-venv)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet maturin flit_core
	touch $@

fly: build
	@$(VENV)/bin/skybraid run $(SCENARIO) --report || [ $$? -eq 1 ]

# Writes the checksums of all that is in dist/.
CHECKSUMS = cd dist && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS

# The daemon of an aircraft or a ground station as one static binary, target/skybraid-node. Against musl, since
# the GNU C library looks up host names with libraries that a static binary lacks.
NODE_TARGET ?= $(shell uname -m)-unknown-linux-musl
TARGETS := $(or $(CARGO_TARGET_DIR),target)
# Programs for other machines are linked by Rust's own linker; nothing else needs to be installed.
node: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER := rust-lld
node: export CARGO_TARGET_ARMV7_UNKNOWN_LINUX_MUSLEABIHF_LINKER := rust-lld
# The same bytes from every folder: paths in the program begin with /skybraid and /cargo.
CARGO_FOLDER := $(or $(CARGO_HOME),$(HOME)/.cargo)
node: export CFLAGS += -ffile-prefix-map=$(CURDIR)=/skybraid -ffile-prefix-map=$(CARGO_FOLDER)=/cargo
node:
	rustup target add $(NODE_TARGET)
	cargo build --release --locked --package skybraid-node --target $(NODE_TARGET) --config \
		'build.rustflags = ["--remap-path-prefix=$(CURDIR)=/skybraid", "--remap-path-prefix=$(CARGO_FOLDER)=/cargo"]'
	install -D $(TARGETS)/$(NODE_TARGET)/release/skybraid-node target/skybraid-node

# Builds the commit that is the last one now in two folders, each with packages and a target folder of its own, and
# compares every byte; the program is then in dist/ with the checksums of all that is there.
TWICE := target/twice
node-twice:
	rm -rf $(TWICE)
	mkdir -p $(TWICE)
	git archive --output $(TWICE)/source.tar HEAD
	for folder in one another/longer; do \
		mkdir -p $(TWICE)/$$folder/source $(TWICE)/$$folder/cargo/registry && \
		tar -x -f $(TWICE)/source.tar -C $(TWICE)/$$folder/source && \
		cp -r $(CARGO_FOLDER)/registry/index $(CARGO_FOLDER)/registry/cache $(TWICE)/$$folder/cargo/registry && \
		env -u CARGO_TARGET_DIR CARGO_HOME=$(CURDIR)/$(TWICE)/$$folder/cargo $(MAKE) -C $(TWICE)/$$folder/source node || exit 1; \
	done
	cmp $(TWICE)/one/source/target/skybraid-node $(TWICE)/another/longer/source/target/skybraid-node
	install -D $(TWICE)/one/source/target/skybraid-node dist/skybraid-node-$(NODE_TARGET)
	$(CHECKSUMS)

# Wheels that need no Rust, for these systems, in dist/. Zig brings the C libraries of all of them but Windows, which
# is linked by Debian's gcc-mingw-w64-x86-64. Those of macOS: WHEEL_TARGETS="aarch64-apple-darwin x86_64-apple-darwin".
WHEEL_TARGETS ?= x86_64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-gnu aarch64-unknown-linux-musl \
	$(if $(shell command -v x86_64-w64-mingw32-gcc),x86_64-pc-windows-gnu)
wheel: export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
wheel: $(VENV)/.zig
	rustup target add $(WHEEL_TARGETS)
	for target in $(WHEEL_TARGETS); do \
		case $$target in \
			*-linux-gnu) options="--zig --compatibility manylinux2014" ;; \
			*-linux-musl) options="--zig --compatibility musllinux_1_2" ;; \
			*-windows-gnu) options="--compatibility pypi" ;; \
			*) options="--zig --compatibility pypi" ;; \
		esac; \
		maturin build --release --locked --strip --target $$target $$options --out dist || exit 1; \
	done
	$(CHECKSUMS)

$(VENV)/.zig: $(VENV)/.installed
	$(VENV)/bin/pip install --quiet ziglang cargo-zigbuild
	touch $@

# The native module type-checks for the systems that have no emulator.
portable: export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
portable: $(VENV)/.zig
	rustup target add x86_64-pc-windows-gnu aarch64-apple-darwin x86_64-apple-darwin
	for target in x86_64-pc-windows-gnu aarch64-apple-darwin x86_64-apple-darwin; do \
		cargo-zigbuild check --locked --package skybraid-python --target $$target || exit 1; \
	done

# The Debian package of the gateway, in dist/: `make deb NODE_TARGET=aarch64-unknown-linux-musl` for another machine. Its
# manual pages come from the program's help, so that of this machine is built too.
HOST_TARGET := $(shell uname -m)-unknown-linux-musl
DEB_ARCH = $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(patsubst armv7,armhf,$(firstword $(subst -, ,$(NODE_TARGET))))))
deb: node
	[ $(NODE_TARGET) = $(HOST_TARGET) ] || $(MAKE) node NODE_TARGET=$(HOST_TARGET)
	$(PYTHON) packaging/build_deb.py $(TARGETS)/$(NODE_TARGET)/release/skybraid-node --arch $(DEB_ARCH) \
		--describe $(TARGETS)/$(HOST_TARGET)/release/skybraid-node --out dist
	$(CHECKSUMS)

# Manual pages and completions of `skybraid`, in dist/.
man: build
	$(VENV)/bin/python packaging/build_manual.py dist

# What the wheel and the gateway consist of, as CycloneDX, in dist/.
sbom:
	$(PYTHON) packaging/build_sbom.py dist

# The simulator for a web page, target/wasm32-unknown-unknown/web/skybraid_web.wasm.
web:
	rustup target add wasm32-unknown-unknown
	cargo build --profile web --locked --package skybraid-web --target wasm32-unknown-unknown

# The documentation as pages in target/site, for any web server (`python3 -m http.server --directory target/site`); its
# search needs no other one.
site: build web docs $(VENV)/.site
	$(VENV)/bin/python packaging/build_site.py target/site-source
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet --config-file target/site-source/mkdocs.yml --site-dir ../site

$(VENV)/.site: $(VENV)/.installed pyproject.toml
	$(VENV)/bin/pip install --quiet mkdocs-material "mkdocstrings[python]" nbclient ipykernel
	touch $@

# What is in dist/, as someone meets it who has no Rust: the wheel in a fresh environment, the package in a chroot.
packages-test: $(VENV)/.dev
	$(VENV)/bin/pytest tests/packaging

# What `make node` has built, its user, its unit and its examples; nothing in /etc/skybraid is written over.
install-node:
	install -D target/skybraid-node $(DESTDIR)/usr/local/bin/skybraid-node
	install -D -m 644 packaging/skybraid.sysusers $(DESTDIR)/usr/lib/sysusers.d/skybraid.conf
	install -D -m 644 packaging/skybraid-gateway@.service $(DESTDIR)/etc/systemd/system/skybraid-gateway@.service
	install -d $(DESTDIR)/etc/skybraid
	cp --no-clobber packaging/aircraft.toml packaging/ground.toml $(DESTDIR)/etc/skybraid/
	@[ -n "$(DESTDIR)" ] || (systemd-sysusers && chown -R skybraid: /etc/skybraid && systemctl daemon-reload)

# The tests in Rust, some of which wait for the clock, run beside those in Python.
test:
	$(MAKE) --jobs 2 test-python test-rust

# With the programs that tests in Python run. The examples are modules of tests, which `cargo test` would compile once
# more without `--tests`.
test-build:
	cargo test --workspace --locked --tests --no-run

# Always the same random cases: a test that fails must fail again. `make fuzz` and `make search` look for new ones.
test-rust: export PROPTEST_RNG_SEED := 1
test-rust: test-build
	cargo test --workspace --locked --tests
	env -u MAKEFLAGS -u MFLAGS cargo test --workspace --locked --doc

# Some tests wait for the clock, so that one more runs than there are cores. The first call compiles all modules once,
# which each worker would do for itself.
test-python: export OMP_NUM_THREADS := 1
test-python: WORKERS := $(shell expr $$(nproc) + 1)
test-python: test-build $(VENV)/.dev $(VENV)/.built-for-tests $(VENV)/.studies
	-$(VENV)/bin/pytest --collect-only --quiet >/dev/null
	env -u MAKEFLAGS -u MFLAGS $(VENV)/bin/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 20

# Instructions and allocations of fixed cases against benches/tests/counts/baseline.txt; part of `make test-rust`, with
# the same build. `make counts-update REASON="why"` rewrites the lines that changed.
counts:
	cargo test --workspace --locked --test counts

counts-update:
	SKYBRAID_COUNTS_UPDATE="$(REASON)" cargo test --workspace --locked --test counts

# Instructions per packet-hop of the released code, next to a bare loop; `make hops VARIANT=TCP` counts one variant.
hops:
	cargo run --release --locked --package skybraid-bench --example hops -- $(VARIANT)

# What a developer runs after each change.
check: $(VENV)/.dev
	cargo fmt --all --check
	cargo clippy --workspace --locked -- -D warnings
	$(VENV)/bin/ruff check python studies tests traces benches packaging
	$(VENV)/bin/mypy

# A few seconds of the simulator against the kernel.
smoke: $(VENV)/.dev $(VENV)/.built-for-tests
	$(VENV)/bin/pytest -q tests/kernel/test_kernel.py -k reno

# The simulator against the kernel, the replays and the limits of the emulator: an hour in real time.
kernel field: export PYTHONPATH := tests/kernel:tests/gateway
kernel: dev
	cargo test --locked -p skybraid-emulator --test it forward -- --ignored
	$(VENV)/bin/pytest tests/kernel
	$(VENV)/bin/python tests/kernel/limits.py
	$(VENV)/bin/python tests/kernel/replay.py
	$(VENV)/bin/python tests/kernel/agreement.py

# The gateway in the emulator: a thousand cuts of its paths, its delays beside the simulator's, enemies, and an hour of
# soak; two hours in real time.
field: dev node
	cargo test --locked -p skybraid-gateway --test it storm -- --ignored
	$(VENV)/bin/pytest tests/gateway
	$(VENV)/bin/python tests/gateway/faults.py --seed 1
	$(VENV)/bin/python tests/gateway/predicted.py
	$(VENV)/bin/python tests/gateway/copies.py
	$(VENV)/bin/python tests/gateway/stale.py stop
	$(VENV)/bin/python tests/gateway/stale.py flood
	$(VENV)/bin/python tests/gateway/enemies.py attack
	$(VENV)/bin/python tests/gateway/enemies.py flood
	$(VENV)/bin/python tests/gateway/enemies.py soak
	cargo test --locked -p skybraid-gateway --test it session::search -- --ignored

# The tables of tests/golden, after a change that is meant.
golden: dev
	SKYBRAID_UPDATE_GOLDEN=1 $(VENV)/bin/pytest tests/python/test_golden.py

# How often the printed intervals contain the truth, 1,000 times for each of 30 links; into docs/statistics.md.
coverage: build
	$(VENV)/bin/python benches/coverage.py --write

search: build
	$(VENV)/bin/python benches/search.py

# Words of tests/words.txt, which readers of this field stumble over: at most one in 10,000.
words: $(VENV)/.dev
	$(VENV)/bin/python tests/words.py

# Licences, origins and known vulnerabilities of what is linked and installed. The advisories are fetched, which lint
# does not do; licences and origins are in `make test` too.
audit: $(VENV)/.installed
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny check
	$(VENV)/bin/pip install --quiet pip-audit
	$(VENV)/bin/pip-audit --no-deps --disable-pip --requirement constraints.txt

lint: $(VENV)/.dev docs words
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(VENV)/bin/ruff check python studies tests traces benches packaging
	$(VENV)/bin/ruff format --check python studies tests traces benches packaging
	$(VENV)/bin/mypy

bench: build node
	cargo run --release --locked --package skybraid-bench --example speed
	cargo run --release --locked --package skybraid-bench --example emulated
	$(VENV)/bin/python benches/beginning.py
	$(VENV)/bin/python benches/flight.py
	$(VENV)/bin/python benches/fleet.py
	$(VENV)/bin/python benches/campaign.py
	$(VENV)/bin/python benches/ns3/compare.py speed
	$(VENV)/bin/python benches/gateway.py

# Beside ns-3, where it is installed: goodput over 20 seeds takes it half an hour and more.
peers: build
	$(VENV)/bin/python benches/ns3/compare.py

# The experiments of all papers, a quick look at each; FULL=1 as thoroughly as the papers. Interrupted, it goes on.
reproduce: build
	@$(VENV)/bin/skybraid reproduce $(if $(FULL),--full,--quick) || [ $$? -eq 1 ]

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

fuzz:
	@rustup toolchain list | grep -q nightly || rustup toolchain install nightly --profile minimal
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	mkdir -p fuzz/corpus/scenario fuzz/corpus/traces fuzz/corpus/tracks fuzz/corpus/elements fuzz/corpus/mutran fuzz/corpus/datagram fuzz/corpus/coding fuzz/corpus/session fuzz/corpus/gateway fuzz/corpus/parsers
	cargo +nightly fuzz run scenario -- -max_total_time=600
	cargo +nightly fuzz run traces -- -max_total_time=600
	cargo +nightly fuzz run tracks -- -max_total_time=600
	cargo +nightly fuzz run elements -- -max_total_time=600
	cargo +nightly fuzz run mutran -- -max_total_time=600
	cargo +nightly fuzz run datagram -- -max_total_time=600
	cargo +nightly fuzz run coding -- -max_total_time=600
	cargo +nightly fuzz run session -- -max_total_time=600 -max_len=600 -len_control=0
	cargo +nightly fuzz run gateway -- -max_total_time=600 -max_len=4000 -len_control=0
	cargo +nightly fuzz run parsers -- -max_total_time=600

clean:
	rm -rf target $(VENV)
