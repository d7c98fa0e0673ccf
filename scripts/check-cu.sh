#!/bin/sh
# Vets and builds the second binding of NVIDIA's driver, device/cgocuda, which has the
# build tag cuda. It checks that its test starts on a machine without the driver, and
# passes the suite of both bindings on the stand-in of internal/test/cudatest.
#
#   scripts/check-cu.sh
#
# It needs Linux, Go and a C compiler with readelf. No GPU, no driver and no
# nvcc are needed. It takes the header cuda.h of CUDA 11 or 12 where that is
# installed, in /usr/include, /usr/local/cuda/include or the folder that
# CUDA_HOME names, and else the stand-in of trainer/executor/device/cgocuda/testdata, which serves
# for compiling only. Debian's package nvidia-cuda-dev (section non-free) has
# the header, and is 774 MB to fetch.
#
# Status 0: built and started, or, without CI=true, not checked since a thing is
# missing, which it names. 1: something failed. 3: a thing is missing and must not be.
set -eu
cd "$(dirname "$0")/.."
standin=$PWD/trainer/executor/device/cgocuda/testdata

missing() {
	if [ "${CI:-}" = true ]; then
		echo "check-cu: not checked: $1" >&2
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
	echo "check-cu: $include/cuda.h, CUDA $(sed -n 's/^#define CUDA_VERSION //p' "$include/cuda.h")"
else
	echo "check-cu: no cuda.h of NVIDIA's here; compiled with the stand-in of trainer/executor/device/cgocuda/testdata"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# gorgonia.org/cu links with -lcuda. An empty archive satisfies it, and the
# binary does not ask for the driver's library when it starts: see
# device/cgocuda. Go's cache does not look into headers, but at the flags.
headers=$(cat "$include/cuda.h" "$standin"/*.h | cksum | cut -d ' ' -f 1)
export CGO_ENABLED=1
export CGO_CFLAGS="-I$include -O2 -DPLX_HEADERS=$headers"
export CGO_LDFLAGS="-L$standin/.. -Wl,-z,lazy"

binding=./trainer/executor/device/cgocuda
go vet -tags cuda "$binding"
go test -tags cuda -c -o "$work/" "$binding"
readelf -d "$work/cgocuda.test" >"$work/needs"
if grep -q 'NEEDED.*libcuda' "$work/needs"; then
	echo "check-cu: cgocuda.test needs libcuda to start" >&2
	exit 1
fi
(cd "$binding" && "$work/cgocuda.test" -test.v -test.run '^TestBinding$') >"$work/said" || { cat "$work/said" && exit 1; }
if ! grep -q '^--- PASS: TestBinding ' "$work/said" || grep -q -- '--- SKIP:' "$work/said"; then
	cat "$work/said"
	echo "check-cu: the binding's suite was not run, or not all of it" >&2
	exit 1
fi
echo "check-cu: ok"
