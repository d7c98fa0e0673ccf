package cudatest

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// Options configures the stand-in for the driver.
type Options struct {
	Memory  uint64 // memory of the GPU in bytes; 0 means 1 GiB
	Version int    // newest CUDA version that the driver supports, such as 12040 for 12.4; 0 means 12040
	Capable int    // compute capability of the GPU, such as 70 for 7.0; 0 means 70
	NoPTX   bool   // if true, the driver rejects all PTX code
	Seed    int    // seed of the order in which streams advance; 0 means 1
	Faults  bool   // if true, the test expects faults and calls Driver.Faults; if false, a fault fails the test
	Fault   int    // number of the kernel launch that fails with an illegal address, from 1; 0 means that none fails
	Stuck   int    // number of operations after which the GPU hangs; 0 means never
	Eager   bool   // if true, work runs immediately, in the order of the calls; tests compare other orders with the results
	Folder  string // parent folder of the folder with the libraries; "" means the system's temporary folder
	BLAS    *BLAS  // options of a stand-in for cuBLAS; nil means that there is no cuBLAS
}

// Driver is a stand-in for a driver with one GPU. Each process that loads it
// gets a separate GPU, so that several workers can be tested on one machine.
type Driver struct {
	Library string // path of the driver library
	BLAS    string // value of PLX_CUBLAS: the path of the stand-in for cuBLAS, or "off"
}

// machineLibrary is the value that PLX_CUDA had when this process started.
var machineLibrary = os.Getenv("PLX_CUDA")

// OnMachine reports whether tests use the GPU and driver of the machine on
// which they run, because PLX_TEST_GPU is set.
//
// TODO: run the tests with PLX_TEST_GPU on a real GPU; this was never done.
func OnMachine() bool { return os.Getenv("PLX_TEST_GPU") != "" }

// Start sets up the stand-in for the driver until the end of the test, for
// this process and its child processes.
//
// With PLX_TEST_GPU set, it uses the machine's driver instead, and skips tests
// that need options of the stand-in.
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
	if err := os.Chmod(folder, 0o777); err != nil { // tasks may run as another user and must be able to write the log
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

// Environment returns the variables, as NAME=VALUE, with which a process finds
// the driver.
func (d *Driver) Environment() []string {
	return []string{"PLX_CUDA=" + d.Library, "PLX_CUBLAS=" + d.BLAS}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Faults returns the faults that the driver has logged so far.
func (d *Driver) Faults() (lines []string) {
	for _, line := range d.log() {
		if !strings.HasPrefix(line, "product: ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Products returns how many matrix products the stand-in for cuBLAS has
// computed so far.
func (d *Driver) Products() int { return len(d.log()) - len(d.Faults()) }

// log returns the lines of the library's log file. The file does not exist if
// nothing was logged.
func (d *Driver) log() []string {
	text, _ := os.ReadFile(d.Library + ".log")
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}
