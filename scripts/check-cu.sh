#!/bin/sh
# Vets and tests what has the build tag cu: the second binding of NVIDIA's driver,
# device/cgocuda, and the programs that open GPUs through it. On the stand-in of
# internal/test/cudatest the binding passes the suite of both bindings, and an example
# trains as without the tag. The example starts and trains without a driver too.
#
#   scripts/check-cu.sh
#
# It needs Linux, Go and a C compiler. No GPU, no driver and no nvcc are needed. It
# takes the header cuda.h of CUDA 11.4 to 12 where that is installed, in /usr/include,
# /usr/local/cuda/include or the folder that CUDA_HOME names, and else the stand-in of
# device/cgocuda/testdata. Debian's package nvidia-cuda-dev (section non-free) has the
# header, and is 774 MB to fetch.
#
# Status 0: tested, or, without CI=true, not tested since a thing is missing, which it
# names. 1: something failed. 3: a thing is missing and must not be.
set -eu
cd "$(dirname "$0")/.."
binding=./trainer/executor/device/cgocuda
standin=$PWD/$binding/testdata

missing() {
	if [ "${CI:-}" = true ]; then
		echo "check-cu: not checked: $1" >&2
		exit 3
	fi
	echo "skipped: the build tag cu: $1"
	exit 0
}

[ "$(uname)" = Linux ] || missing "it is for Linux"
command -v "${CC:-cc}" >/dev/null || missing "there is no C compiler (Debian: apt-get install gcc libc6-dev)"

include=$standin
for folder in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/include; do
	if [ -f "$folder/cuda.h" ]; then
		include=$folder
		break
	fi
done
if [ "$include" != "$standin" ]; then
	echo "check-cu: $include/cuda.h, CUDA $(sed -n 's/^#define CUDA_VERSION //p' "$include/cuda.h")"
else
	echo "check-cu: no cuda.h of NVIDIA's here; compiled with the stand-in of device/cgocuda/testdata"
fi

# Go's cache does not look into headers, but at the flags.
headers=$(cat "$include/cuda.h" "$standin"/*.h | cksum | cut -d ' ' -f 1)
export CGO_ENABLED=1
export CGO_CFLAGS="-I$include -O2 -DPLX_HEADERS=$headers"
export CGO_LDFLAGS=-Wl,-z,lazy # as docs/gpu.md says

go vet -tags cu "$binding" ./trainer/device
said=$(mktemp)
trap 'rm -f "$said"' EXIT
go test -tags cu -count=1 -v "$binding" >"$said" || { cat "$said" && exit 1; }
for test in TestBinding TestProgram; do
	if ! grep -q "^--- PASS: $test " "$said" || grep -q -- '--- SKIP:' "$said"; then
		cat "$said"
		echo "check-cu: $test was not run, or not all of it" >&2
		exit 1
	fi
done
echo "check-cu: ok"
