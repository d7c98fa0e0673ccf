#!/bin/sh
# Vets and builds gpuprobe with the build tag cuda, and the second binding of NVIDIA's
# driver for training, device/cgocuda. It checks that the binaries start on a machine
# without an NVIDIA driver, and that they find the driver's functions when there is one:
# for gpuprobe a stand-in of two devices, for the binding that of internal/test/cudatest, on
# which it passes the suite of both bindings.
#
#   scripts/check-cuda.sh [OUTPUT]
#
# It needs Linux, Go and a C compiler with readelf. No GPU, no driver and no
# nvcc are needed. It takes the header cuda.h of CUDA 11 or 12 where that is
# installed, in /usr/include, /usr/local/cuda/include or the folder that
# CUDA_HOME names, and else the stand-in of gpuprobe/testdata/cuda, which serves
# for compiling only. Debian's package nvidia-cuda-dev (section non-free) has
# the header, and is 774 MB to fetch.
#
# With OUTPUT, plx is built with the tag and written there, for which NVIDIA's
# header is needed.
#
# Status 0: built and started, or, without CI=true and OUTPUT, not checked since
# a thing is missing, which it names. 1: something failed. 3: a thing is missing
# and must not be.
set -eu
cd "$(dirname "$0")/.."
output=${1:-}
standin=$PWD/gpuprobe/testdata/cuda

missing() {
	if [ "${CI:-}" = true ] || [ -n "$output" ]; then
		echo "check-cuda: not checked: $1" >&2
		exit 3
	fi
	echo "skipped: the build tag cuda: $1"
	exit 0
}

[ "$(uname)" = Linux ] || missing "it is for Linux"
command -v "${CC:-cc}" >/dev/null || missing "there is no C compiler (Debian: apt-get install gcc libc6-dev)"
command -v readelf >/dev/null || missing "there is no readelf (Debian: apt-get install binutils)"

include=$standin
for folder in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/include; do
	if [ -f "$folder/cuda.h" ]; then
		include=$folder
		break
	fi
done
if [ "$include" != "$standin" ]; then
	echo "check-cuda: $include/cuda.h, CUDA $(sed -n 's/^#define CUDA_VERSION //p' "$include/cuda.h")"
elif [ -n "$output" ]; then
	missing "NVIDIA's cuda.h was not found (Debian: nvidia-cuda-dev, section non-free; or set CUDA_HOME)"
else
	echo "check-cuda: no cuda.h of NVIDIA's here; compiled with the stand-in of gpuprobe/testdata/cuda"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# gorgonia.org/cu links with -lcuda. An empty archive satisfies it, and the
# binary does not ask for the driver's library when it starts: see
# gpuprobe/cuda.go. Go's cache does not look into headers, but at the flags.
headers=$(cat "$include/cuda.h" "$standin"/*.h | cksum | cut -d ' ' -f 1)
export CGO_ENABLED=1
export CGO_CFLAGS="-I$include -O2 -DPLX_HEADERS=$headers"
export CGO_LDFLAGS="-L$standin -Wl,-z,lazy"

go vet -tags cuda ./gpuprobe
binding=./trainer/executor/device/cgocuda
go vet -tags cuda "$binding"
go test -tags cuda -count=1 -c -o "$work/" ./gpuprobe "$binding"
for binary in gpuprobe cgocuda; do
	readelf -d "$work/$binary.test" >"$work/needs"
	if grep -q 'NEEDED.*libcuda' "$work/needs"; then
		echo "check-cuda: $binary.test needs libcuda to start" >&2
		exit 1
	fi
done
"${CC:-cc}" -shared -fPIC -o "$work/libcuda.so.1" "$standin/libcuda.c"
cd gpuprobe
"$work/gpuprobe.test" -test.v -test.run '^TestLocal$'
PLX_FAKE_CUDA=1 LD_LIBRARY_PATH="$work" "$work/gpuprobe.test" -test.v -test.run '^TestLocal$'
cd ..
(cd "$binding" && "$work/cgocuda.test" -test.v -test.run '^TestBinding$') >"$work/said" || { cat "$work/said" && exit 1; }
if ! grep -q '^--- PASS: TestBinding ' "$work/said" || grep -q -- '--- SKIP:' "$work/said"; then
	cat "$work/said"
	echo "check-cuda: the binding's suite was not run, or not all of it" >&2
	exit 1
fi
[ -z "$output" ] || go build -tags cuda -o "$output" .
echo "check-cuda: ok"
