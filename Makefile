SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# What plx version prints. The folder's own repository counts, and none around it: an archive of
# the source has none.
GIT := git --git-dir=.git
VERSION ?= $(shell $(GIT) describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell $(GIT) rev-parse HEAD 2>/dev/null || echo unknown)
DATE ?= $(shell TZ=UTC $(GIT) show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ HEAD 2>/dev/null)
STAGE := scripts/stage

# Recipes that must build without cgo say so. The race detector needs cgo.
unexport CGO_ENABLED

# The checks read what the tests compile, which is with the race detector where there is a
# C compiler for it: without it they would compile all packages and tests once more.
RACE := $(shell command -v $${CC:-gcc} >/dev/null && echo -race)
CHECK = CGO_ENABLED=$(if $(RACE),1,0) GOFLAGS="$$(go env GOFLAGS) $(RACE)"
quick: RACE :=

.PHONY: build quick test test-long mutate tools check format compile vet staticcheck errors cu unit clean bench bench-check bench-sparse bench-partitions fault-grid vulnerabilities release-check picture kernels gpu-check

# The program, static, as it is released.
build:
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)" -o plx .

# What the tests need, what the code must look like, what it must do: at most 9
# minutes on two cores with warm caches, 12 with empty ones. What takes longer is test-long.
# The checks take the processor time that the tests leave idle, about a quarter. What both
# need is compiled before.
test: tools format compile vet
	@nice $(MAKE) --no-print-directory staticcheck errors cu & checks=$$!; \
	tests=0; $(MAKE) --no-print-directory unit || tests=$$?; \
	wait $$checks && exit $$tests

# The whole fault grid, fuzzing, tests with the build tag long, other systems, the kernels on
# an emulated arm64, one point of a benchmark: every night, as root. ARGS=-list names the parts, and
# make test-long ARGS="-run ^fuzz$$" runs some.
test-long:
	@$(STAGE) tools scripts/install-test-tools long
	@$(STAGE) "long tests" scripts/test-long $(ARGS)

# Known vulnerabilities in what plx calls, of Go's own library too, by the list at vuln.go.dev.
vulnerabilities:
	@$(STAGE) vulnerabilities go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

# Whether the tests of a package bite: fifty mutants of it, chosen by the commit, each
# with its tests: make mutate PKG=./hostfile ARGS="-n 20" TESTS=-short. Minutes.
mutate:
	@CGO_ENABLED=0 go run ./internal/test/ci/mutate $(ARGS) $(PKG) $(TESTS)

# The quick loop: what needs neither root nor seconds. Results of packages that have
# not changed are reused.
quick: format vet
	@CGO_ENABLED=0 $(STAGE) "tests -short" go test -short -vet=off ./...
	@CGO_ENABLED=0 $(STAGE) "tests -short, tools" go test -C internal/tools -short -vet=off ./...

tools:
	@$(STAGE) tools scripts/install-test-tools

check: format compile vet staticcheck errors cu

format:
	@$(STAGE) format scripts/check-format

# Without cgo, as plx is built for Linux. For macOS and for Linux on arm64 it is built with
# each release, of which .github/workflows/release.yml makes one for each push, and at night.
compile:
	@CGO_ENABLED=0 $(STAGE) compile go build ./...
	@CGO_ENABLED=0 $(STAGE) "compile tools" go build -C internal/tools ./...

vet:
	@$(CHECK) $(STAGE) vet go vet -tags long ./...
	@$(CHECK) $(STAGE) "vet tools" go vet -C internal/tools -tags long ./...
	@$(CHECK) $(STAGE) "tag failpoint" go vet -tags failpoint ./trainer/wire ./trainer/cluster/channel ./trainer/checkpoint

staticcheck:
	@GOGC=400 $(CHECK) $(STAGE) staticcheck go tool staticcheck -tags long ./...
	@cd internal/tools && $(CHECK) ../../$(STAGE) "staticcheck tools" $$(cd ../.. && go tool -n staticcheck) -tags long ./...

# No error is dropped without a word.
errors:
	@$(CHECK) $(STAGE) errors scripts/check-errors

# What needs cgo: programs that open GPUs through gorgonia.org/cu.
cu:
	@$(STAGE) "tag cu" scripts/check-cu.sh

# The PTX of the GPU kernels from their CUDA C, with Debian's clang-14.
kernels:
	@scripts/make-kernels $(ARGS)

# The tests, with the race detector where there is a C compiler for it. With
# CI=true a skipped test is a failed one. A test that fails is repeated once, alone.
unit:
	@go build -o build/runtests ./internal/test/ci/runtests
	@test -n "$(RACE)" || { echo "skipped: the race detector, which needs a C compiler"; test "$${CI:-}" != true; }
	@$(STAGE) tests build/runtests $(RACE) ./...
	@cd internal/tools && ../../$(STAGE) "tests of tools" ../../build/runtests $(RACE) ./...

# Half an hour on a quiet machine, as root: plx beside what one would use instead, in
# turns. A part of it: make bench BENCH=logs
bench: tools
	@scripts/install-bench-peers
	scripts/tool internal/tools/bench/suite -part "$(BENCH)" $(ARGS)

# The same with three rounds, compared with what is recorded.
bench-check: tools
	@scripts/install-bench-peers
	scripts/tool internal/tools/bench/suite -check -rounds 3 -part "$(BENCH)" $(ARGS)

# About two hours on a quiet machine, as root: what docs/benchmarks.md shows. With ARGS
# less or more of it is measured: make bench-sparse ARGS="--hosts 4 --rounds 1"
bench-sparse: tools
	scripts/tool internal/tools/bench/sparse $(ARGS)

bench-partitions: tools
	scripts/tool internal/tools/bench/sparse partitions $(ARGS)

# About an hour, as root: every fault on every victim, the table of
# docs/reliability.md. With ARGS some cells: make fault-grid ARGS="-run TestFaultGrid/ps/worker/"
fault-grid: tools
	go test -tags long -v -timeout 3h -run '^TestFaultGrid$$' ./e2e -update $(ARGS)
	go test ./internal/test/chaos -run '^TestPage$$' -update

# What a release holds, built and installed on a test host, from which it launches: minutes, as root.
release-check: tools
	go test -tags long -v -timeout 30m -run '^TestRelease$$' ./e2e

# The pictures in README.md and docs/watch.md, from new runs on two test hosts: 5 minutes, as root,
# with tmux and Chromium. With ARGS one of them: make picture ARGS=top
picture: tools
	scripts/tool internal/tools/picture $(ARGS)

# A folder that checks and measures plx on a machine with a GPU: build/gpu-check. It
# needs no GPU to be built. With ARGS another folder: make gpu-check ARGS=/tmp/gpu-check
gpu-check:
	scripts/make-gpu-check $(ARGS)

clean:
	rm -rf plx dist release build
