package importtest

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// libc lists what links the C library, with cgo or past it.
var libc = []string{"github.com/ebitengine/purego", "gorgonia.org/", module + "/trainer/blas"}

// TestPlxKnowsNoLibc looks at all that the program is made of.
func TestPlxKnowsNoLibc(t *testing.T) {
	for _, p := range list(t, "-deps", ".") {
		for _, bad := range libc {
			if strings.HasPrefix(p.ImportPath, bad) {
				t.Errorf("plx is made of %s, which links libc", p.ImportPath)
			}
		}
		// The standard library has pure parts in their place.
		if !p.Standard && len(p.CgoFiles) > 0 {
			t.Errorf("plx is made of %s, which uses cgo", p.ImportPath)
		}
	}
}

// TestPlxIsStatic builds it without cgo, as it is released, and asks the result.
func TestPlxIsStatic(t *testing.T) {
	if testing.Short() {
		t.Skip("builds plx")
	}
	program := filepath.Join(t.TempDir(), "plx")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build plx: %v: %s", err, out)
	}
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("plx needs a dynamic linker")
		}
	}
	if libraries, err := file.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("plx needs %v", libraries)
	}
}
