//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package blas

import (
	"bufio"
	"os"
	"strings"

	"golang.org/x/sys/cpu"
)

// coreVariable names the kernels that OpenBLAS takes when it is loaded. Other libraries do
// not read it.
const coreVariable = "OPENBLAS_CORETYPE"

// avx512 is OpenBLAS's name of its kernels for AVX-512.
const avx512 = "SkylakeX"

// core is the set of kernels to ask OpenBLAS for; "" leaves the choice to the library.
//
// OpenBLAS 0.3.21, which is Debian's, chooses by the processor's model. It knows Intel's with
// AVX-512, and takes its AVX2 kernels for AMD's, which are younger than it.
//
// TODO: a later OpenBLAS may have faster kernels for these processors than those for
// AVX-512 in general, and would not take them. None of the versions up to 0.3.30 has.
func core(p processor) string {
	if _, chosen := os.LookupEnv(coreVariable); chosen || p.vendor != "AuthenticAMD" || !p.avx512 {
		return ""
	}
	return avx512
}

// processor is what the choice of kernels depends on.
type processor struct {
	vendor string // as the processor spells it, or ""
	avx512 bool   // it and the system have all that OpenBLAS compiles the kernels for
}

// thisProcessor is the one that this process runs on.
func thisProcessor() processor {
	x := &cpu.X86
	p := processor{avx512: x.HasAVX512F && x.HasAVX512CD && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL &&
		x.HasAVX2 && x.HasFMA && x.HasBMI1 && x.HasBMI2 && x.HasADX}
	if !p.avx512 {
		return p
	}
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return p
	}
	defer file.Close() // it was only read
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "vendor_id" {
			p.vendor = strings.TrimSpace(value)
			break
		}
	}
	return p
}
