#!/bin/sh
# Vets and builds gpuprobe with the build tag cuda, and the driver's second binding
# for training, device/cgocuda, with the build tag cgocuda. It checks that the
# binaries start on a machine without an NVIDIA driver, and that they find the
# driver's functions when there is one: a stand-in. For gpuprobe that has two
# devices. The binding passes the suite of internal/devicetest, trains a model, and
# lets cuBLAS multiply matrices: the driver is then the stand-in of internal/cudatest,
# with its interpreter of kernels. A test that is skipped or not there is a failure.
#
#   scripts/check-cuda.sh [OUTPUT]
#
# It needs Linux, Go and a C compiler with readelf. No GPU, no driver and no
# nvcc are needed. It takes the header cuda.h of CUDA 11 or 12 where that is
# installed, in /usr/include, /usr/local/cuda/include or the folder that
# CUDA_HOME names, and else the stand-in of gpuprobe/testdata/cuda, which serves
# for these checks only. Debian's package nvidia-cuda-dev (section non-free) has
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
command -v cc >/dev/null || missing "there is no cc, which compiles the stand-in for the driver"
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

binding=trainer/executor/device
go vet -tags cuda ./gpuprobe
go vet -tags cgocuda ./$binding/... ./trainer/executor
go test -tags cuda -count=1 -c -o "$work/gpuprobe.test" ./gpuprobe
go test -tags cgocuda -count=1 -c -o "$work/" ./$binding/cgocuda ./$binding/driver ./$binding/cublas ./trainer/executor
for binary in gpuprobe cgocuda driver cublas executor; do
	readelf -d "$work/$binary.test" >"$work/needs"
	if grep -q 'NEEDED.*libcuda' "$work/needs"; then
		echo "check-cuda: $binary.test needs libcuda to start" >&2
		exit 1
	fi
done
"${CC:-cc}" -shared -fPIC -o "$work/libcuda.so.1" "$standin/libcuda.c"

# passes BINARY TEST: the test is there, and passes without a skipped part.
passes() {
	if ! "$work/$1.test" -test.v -test.run "^$2\$" >"$work/said" 2>&1; then
		cat "$work/said"
		echo "check-cuda: $1: $2 fails" >&2
		return 1
	fi
	cat "$work/said"
	if ! grep -q "^--- PASS: $2 " "$work/said" || grep -q -- '--- SKIP:' "$work/said"; then
		echo "check-cuda: $1: $2 was not run, or not all of it" >&2
		return 1
	fi
}
if passes driver TestThatIsNotThere >"$work/out" 2>&1; then
	echo "check-cuda: a test that is not there passes" >&2
	exit 1
fi
cd gpuprobe
passes gpuprobe TestLocal
(export PLX_FAKE_CUDA=1 LD_LIBRARY_PATH="$work" && passes gpuprobe TestLocal)
cd ..
passes cgocuda TestBinding
passes driver TestOpen
passes cublas TestProducts
passes executor TestGPUModel
[ -z "$output" ] || go build -tags cuda -o "$output" .
echo "check-cuda: ok"
