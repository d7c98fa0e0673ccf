package trainer

import (
	"fmt"
	"runtime"

	"github.com/plx-run/plx/trainer/blas"
	"golang.org/x/sys/cpu"
)

// numerics says what decides the bits of this host's results: the library
// with the kernel it chose for the processor, the architecture that Go was
// compiled for, and whether Go's math functions fuse multiplications here.
func numerics(l blas.Library) string {
	return fmt.Sprintf("%s %s [%s], %s, fused math %t",
		l.Name, l.Version, l.Config, runtime.GOARCH, cpu.X86.HasFMA && cpu.X86.HasAVX)
}
