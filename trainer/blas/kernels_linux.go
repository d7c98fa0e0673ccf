//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package blas

import "golang.org/x/sys/cpu"

// kernelsVariable is the environment variable that selects OpenBLAS's kernels
// (its code for a type of processor) when the library is loaded. Other
// libraries do not read it.
const kernelsVariable = "OPENBLAS_CORETYPE"

// fallback is OpenBLAS's name for its old SSE3 kernels. OpenBLAS uses them on
// an Intel processor that is newer than the library. Debian's version 0.3.21,
// for example, uses them on Emerald Rapids.
const fallback = "Prescott"

// suited returns OpenBLAS's names for kernels that suit this processor, the
// best first. It returns nil if no kernels are better than the fallback, and
// on other architectures than amd64.
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
