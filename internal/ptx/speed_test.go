package ptx_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/ptx"
)

// BenchmarkMatmul reports instructions of threads by second of processor time.
func BenchmarkMatmul(b *testing.B) {
	text, err := os.ReadFile("testdata/block.ptx")
	if err != nil {
		b.Fatal(err)
	}
	for name, options := range map[string]ptx.Options{"races": {Races: true}, "noraces": {}} {
		b.Run(name, func(b *testing.B) {
			module, err := options.Parse(string(text))
			if err != nil {
				b.Fatal(err)
			}
			measure(b, module, "matmul")
		})
	}
}

// processor returns the seconds of processor time that this process has used:
// other processes do not slow them.
func processor(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func measure(b *testing.B, module *ptx.Module, name string) {
	const n = 128
	s := &bench{b, ptx.NewMemory(1 << 30), module}
	x, y, z := s.put(floats(n*n, 1)), s.put(floats(n*n, 2)), s.room(4*n*n)
	k, err := module.Kernel(name)
	if err != nil {
		b.Fatal(err)
	}
	p := params(z, x, y, int32(n))
	var threads uint64
	before := processor(b)
	for b.Loop() {
		count, err := k.Measure(s.memory, [3]uint32{n / 16, n / 16, 1}, [3]uint32{16, 16, 1}, 0, p)
		if err != nil {
			b.Fatal(err)
		}
		threads += count.Threads
	}
	b.ReportMetric(float64(threads)/(processor(b)-before)/1e6, "Minstr/cpu-s")
}

// BenchmarkLaunch reports what a launch of one small block costs.
func BenchmarkLaunch(b *testing.B) {
	s := newBench(b, "vector.ptx")
	const n = 256
	k, err := s.module.Kernel("add")
	if err != nil {
		b.Fatal(err)
	}
	p := params(s.room(4*n), s.put(floats(n, 1)), s.put(floats(n, 2)), n)
	before := processor(b)
	for b.Loop() {
		if err := k.Launch(s.memory, [3]uint32{1, 1, 1}, [3]uint32{n, 1, 1}, 0, p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processor(b)-before)*1e6/float64(b.N), "cpu-us/launch")
}
