package cudatest

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// Options say what the driver claims.
type Options struct {
	Memory  uint64 // bytes of the GPU; 0 means 1 GiB
	Version int    // newest CUDA version that the driver knows; 0 means 12040
	Capable int    // compute capability of the GPU, 70 for 7.0; 0 means 70
	NoPTX   bool   // the driver refuses all PTX
	Seed    int    // for the order in which streams advance; 0 means 1
	Faults  bool   // the test expects faults, and asks for them
	Fault   int    // number of the launch that fails with an illegal address; 0 means none
	Stuck   int    // number of pieces of work after which the GPU stops; 0 means never
	Eager   bool   // work runs at once, so that it shows what a right order gives
	Folder  string // of libraries; empty means one that the test makes
	BLAS    *BLAS  // also a stand-in for cuBLAS; nil means none
}

// Driver is a driver of one GPU. Each process that opens it gets a GPU of its
// own, so that workers can be tested side by side.
type Driver struct {
	Library string // the library's path
	BLAS    string // PLX_CUBLAS: the path of the stand-in for cuBLAS, or off
}

// machineLibrary is the driver that this process was started with.
var machineLibrary = os.Getenv("PLX_CUDA")

// OnMachine reports whether tests use the GPU of this machine: the variable
// PLX_TEST_GPU is set.
func OnMachine() bool { return os.Getenv("PLX_TEST_GPU") != "" }

// Start starts a driver for a test, and makes it the driver of this process and
// of what this process starts. It ends with the test.
//
// With PLX_TEST_GPU the driver is that of this machine. A test that asks for
// something special is skipped then.
func Start(t testing.TB, o Options) *Driver {
	t.Helper()
	if OnMachine() {
		if o != (Options{}) {
			t.Skip("the test needs the stand-in for the driver")
		}
		t.Setenv("PLX_CUDA", machineLibrary)
		return &Driver{Library: machineLibrary, BLAS: "off"}
	}
	if runtime.GOOS != "linux" {
		t.Skip("the stand-in for the driver is for Linux")
	}
	folder, err := os.MkdirTemp(o.Folder, "gpu")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o777); err != nil { // tasks may have another user
		t.Fatal(err)
	}
	d := &Driver{Library: Build(t, folder), BLAS: "off"}
	text := fmt.Sprintln(cmp.Or(o.Memory, 1<<30), cmp.Or(o.Version, 12040), cmp.Or(o.Capable, 70), number(o.NoPTX), cmp.Or(o.Seed, 1), o.Fault, o.Stuck, number(o.Eager))
	if err := os.WriteFile(d.Library+".options", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if o.BLAS != nil {
		d.BLAS = o.BLAS.Build(t, folder)
	}
	t.Cleanup(func() {
		if faults := d.Faults(); !o.Faults && len(faults) > 0 {
			t.Errorf("the gpu failed:\n%s", strings.Join(faults, "\n"))
		}
		_ = os.RemoveAll(folder)
	})
	t.Setenv("PLX_CUDA", d.Library)
	t.Setenv("PLX_CUBLAS", d.BLAS)
	return d
}

// Environment is what a process needs to find the driver: NAME=VALUE.
func (d *Driver) Environment() []string {
	return []string{"PLX_CUDA=" + d.Library, "PLX_CUBLAS=" + d.BLAS}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Faults are what has gone wrong until now.
func (d *Driver) Faults() (lines []string) {
	for _, line := range d.log() {
		if !strings.HasPrefix(line, "product: ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Products is how often the stand-in for cuBLAS has multiplied until now.
func (d *Driver) Products() int { return len(d.log()) - len(d.Faults()) }

// log are the lines of the library's log. There is none if it has nothing to say.
func (d *Driver) log() []string {
	text, _ := os.ReadFile(d.Library + ".log")
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}
