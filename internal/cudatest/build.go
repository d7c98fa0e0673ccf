package cudatest

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

//go:embed library
var sources embed.FS

// Build compiles the library into a folder and returns its path. The test is
// skipped if there is no C compiler.
func Build(t testing.TB, folder string) string {
	return build(t, folder, "libcuda", "libcuda.so.1")
}

// BLAS is a stand-in for cuBLAS.
type BLAS struct {
	Major   int    // of its version; 0 means 12
	Without string // a function that it does not have
	Failing string // a function that fails with CUBLAS_STATUS_EXECUTION_FAILED
}

// Build compiles the library into a folder and returns its path.
func (b BLAS) Build(t testing.TB, folder string) string {
	var flags []string
	if b.Major > 0 {
		flags = append(flags, fmt.Sprintf("-DMAJOR=%d", b.Major))
	}
	if b.Without != "" {
		flags = append(flags, fmt.Sprintf("-D%s=absent", b.Without))
	}
	if b.Failing != "" {
		flags = append(flags, fmt.Sprintf("-DFAILING=\"%s\"", b.Failing))
	}
	return build(t, folder, "libcublas", "libcublas.so.12", append(flags, "-ldl")...)
}

// built are the libraries that this process has compiled, by flags and source: a
// compilation takes longer than most tests.
var built sync.Map

// build compiles a library into a folder. Each has a file of its own, so that each
// can be opened for itself.
func build(t testing.TB, folder, source, library string, flags ...string) string {
	t.Helper()
	to, key := filepath.Join(folder, library), fmt.Sprint(source, flags)
	if text, there := built.Load(key); there {
		if err := os.WriteFile(to, text.([]byte), 0o755); err != nil {
			t.Fatal(err)
		}
		return to
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler: ", err)
	}
	text, err := sources.ReadFile("library/" + source + ".c")
	if err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(folder, source+".c")
	if err := os.WriteFile(from, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-O2", "-shared", "-fPIC", "-o", to, from, "-lpthread"}, flags...)
	out, err := exec.Command(compiler, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("compile the stand-in: %v\n%s", err, out)
	}
	if text, err = os.ReadFile(to); err != nil {
		t.Fatal(err)
	}
	built.Store(key, text)
	return to
}
