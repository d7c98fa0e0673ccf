SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STAGE := scripts/stage

.PHONY: build test tools check format vet staticcheck cross cuda unit clean bench-sparse bench-partitions bench-restart fault-grid

# The program, static, as it is released.
build:
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o plx .

# Everything: what the tests need, what the code must look like, what it must do.
test: tools check unit

tools:
	@$(STAGE) tools scripts/install-test-tools

check: format vet staticcheck cross cuda

format:
	@$(STAGE) format scripts/check-format

# Without cgo, as plx is built: what is compiled for one stage serves the others.
vet:
	@CGO_ENABLED=0 $(STAGE) vet go vet ./...

staticcheck:
	@CGO_ENABLED=0 $(STAGE) staticcheck go tool staticcheck ./...

# plx is built without cgo, and the other platforms' releases build too.
cross:
	@$(STAGE) "build linux/amd64" scripts/build-for linux amd64
	@$(STAGE) "build linux/arm64" scripts/build-for linux arm64
	@$(STAGE) "build darwin/arm64" scripts/build-for darwin arm64

# What needs cgo: the devices of this machine as the CUDA driver tells them.
cuda:
	@$(STAGE) "tag cuda" scripts/check-cuda.sh

# The tests, with the race detector where there is a C compiler for it. With
# CI=true a skipped test is a failed one.
unit:
	@$(STAGE) tests go run ./internal/ci/runtests

# About two hours on a quiet machine, as root: what docs/benchmarks.md shows. With ARGS
# less or more of it is measured: make bench-sparse ARGS="--hosts 4 --rounds 1"
bench-sparse: tools
	go run ./internal/bench/sparse $(ARGS)

bench-partitions: tools
	go run ./internal/bench/sparse partitions $(ARGS)

# Some minutes, as root: the table of docs/restarts.md.
bench-restart: tools
	go run ./internal/bench/restart $(ARGS)

# About an hour, as root: every fault on every victim, what docs/reliability.md
# shows. With ARGS a part of it: make fault-grid ARGS="--run ps/worker/ --more"
fault-grid: tools
	go run ./internal/faultgrid $(ARGS)

clean:
	rm -rf plx dist
