package cudatest

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
	Folder  string // of libraries and socket; empty means one that the test makes
	BLAS    *BLAS  // also a stand-in for cuBLAS; nil means none
}

// Driver is a driver of one GPU. Each process that opens it gets a GPU of its
// own, so that workers can be tested side by side.
type Driver struct {
	Library string // the library's path
	Socket  string // where it connects
	BLAS    string // PLX_CUBLAS: the path of the stand-in for cuBLAS, or off

	options  Options
	mu       sync.Mutex
	faults   []error
	products int
	open     map[net.Conn]bool
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
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	if o.Version == 0 {
		o.Version = 12040
	}
	if o.Capable == 0 {
		o.Capable = 70
	}
	folder, err := os.MkdirTemp(o.Folder, "gpu") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil { // tasks may have another user
		t.Fatal(err)
	}
	d := &Driver{Library: Build(t, folder), Socket: filepath.Join(folder, "s"), BLAS: "off", options: o, open: map[net.Conn]bool{}}
	if o.BLAS != nil {
		d.BLAS = o.BLAS.Build(t, folder)
	}
	listener, err := net.Listen("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { d.accept(listener, &serving) })
	t.Cleanup(func() {
		_ = listener.Close() // accept ends with it
		d.hangUp()
		serving.Wait()
		_ = os.RemoveAll(folder)
		for _, err := range d.Faults() {
			if !o.Faults {
				t.Errorf("the gpu failed: %v", err)
			}
		}
	})
	for _, v := range d.Environment() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return d
}

// Environment is what a process needs to find the driver: NAME=VALUE.
func (d *Driver) Environment() []string {
	return []string{"PLX_CUDA=" + d.Library, "PLX_CUBLAS=" + d.BLAS, "CUDATEST_SOCKET=" + d.Socket, "CUDATEST_SEED=" + strconv.Itoa(d.options.Seed), "CUDATEST_STUCK=" + strconv.Itoa(d.options.Stuck)}
}

// Faults are what the interpreter has found until now, each a *ptx.Fault.
func (d *Driver) Faults() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]error(nil), d.faults...)
}

// Products is how often the stand-in for cuBLAS has multiplied until now.
func (d *Driver) Products() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.products
}

func (d *Driver) multiplied() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.products++
}

func (d *Driver) fault(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, err)
}

func (d *Driver) accept(l net.Listener, serving *sync.WaitGroup) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		d.mu.Lock()
		d.open[c] = true
		d.mu.Unlock()
		serving.Go(func() {
			newMachine(d).serve(c)
			_ = c.Close()
		})
	}
}

// hangUp ends all connections, also those of processes that are still there.
func (d *Driver) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		_ = c.Close()
	}
}
