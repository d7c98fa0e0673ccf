#!/bin/sh
# Builds gpuprobe with the build tag cuda, and checks that the binary starts on
# a machine without an NVIDIA driver, and that it finds the driver's functions
# when there is one: a stand-in of two devices, which gpuprobe/testdata has.
#
#   scripts/check-cuda.sh [OUTPUT]
#
# It needs Go, a C compiler and the header cuda.h of CUDA 11 or 12: Debian's
# package nvidia-cuda-dev (section non-free), or NVIDIA's cuda-driver-dev. It
# looks in /usr/include, /usr/local/cuda/include and the folder that CUDA_HOME
# names. No GPU, no driver and no nvcc are needed. With OUTPUT, plx is built
# with the tag and written there.
#
# Status 0: built and started. 1: something failed. 3: a thing it needs is
# missing, which it names.
set -eu
cd "$(dirname "$0")/.."
output=${1:-}

missing() {
	echo "check-cuda: not checked: $1" >&2
	exit 3
}

command -v go >/dev/null || missing "Go is not installed"
command -v "${CC:-cc}" >/dev/null || missing "there is no C compiler (Debian: apt-get install gcc)"

include=
for folder in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/include; do
	if [ -f "$folder/cuda.h" ]; then
		include=$folder
		break
	fi
done
[ -n "$include" ] || missing "cuda.h was not found (Debian: nvidia-cuda-dev, section non-free; or set CUDA_HOME)"
echo "check-cuda: $include/cuda.h, CUDA $(sed -n 's/^#define CUDA_VERSION //p' "$include/cuda.h")"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# gorgonia.org/cu links with -lcuda. An empty archive satisfies it, and the
# binary does not ask for the driver's library when it starts: see
# gpuprobe/cuda.go.
printf '!<arch>\n' >"$work/libcuda.a"
export CGO_ENABLED=1
export CGO_CFLAGS="-I$include -O2"
export CGO_LDFLAGS="-L$work -Wl,-z,lazy"

go vet -tags cuda ./gpuprobe
go test -tags cuda -count=1 -c -o "$work/gpuprobe.test" ./gpuprobe
if readelf -d "$work/gpuprobe.test" 2>/dev/null | grep -q 'NEEDED.*libcuda'; then
	echo "check-cuda: the binary needs libcuda to start" >&2
	exit 1
fi
cd gpuprobe
"$work/gpuprobe.test" -test.v -test.run '^TestLocal$'
"${CC:-cc}" -shared -fPIC -o "$work/libcuda.so.1" testdata/libcuda.c
PLX_FAKE_CUDA=1 LD_LIBRARY_PATH="$work" "$work/gpuprobe.test" -test.v -test.run '^TestLocal$'
cd ..
[ -z "$output" ] || go build -tags cuda -o "$output" .
echo "check-cuda: ok"
