//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package blas

import "golang.org/x/sys/cpu"

// kernelsVariable names the kernels that OpenBLAS takes when it is loaded. Other libraries do
// not read it.
const kernelsVariable = "OPENBLAS_CORETYPE"

// fallback is OpenBLAS's name of its kernels for SSE3. It takes them for a processor of
// Intel's that is younger than the library: 0.3.21, which is Debian's, for Emerald Rapids.
const fallback = "Prescott"

// suited are OpenBLAS's names of the kernels for what this processor and the system have,
// the best first. None are better than the fallback on other architectures.
func suited() (kernels []string) {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA || !x.HasBMI1 || !x.HasBMI2 {
		return nil
	}
	if x.HasAVX512F && x.HasAVX512CD && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		kernels = append(kernels, "SkylakeX")
	}
	return append(kernels, "Haswell")
}
