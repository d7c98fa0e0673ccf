package importtest

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// libc lists packages that link the C library, through cgo or without it.
var libc = []string{"github.com/ebitengine/purego", "gorgonia.org/", module + "/trainer/blas"}

// TestPlxDoesNotLinkLibc checks all packages that the plx binary consists of.
func TestPlxDoesNotLinkLibc(t *testing.T) {
	for _, p := range list(t, "-deps", ".") {
		for _, bad := range libc {
			if strings.HasPrefix(p.ImportPath, bad) {
				t.Errorf("plx is made of %s, which links libc", p.ImportPath)
			}
		}
		// Packages of the standard library are exempt, because each also has
		// an implementation without cgo.
		if !p.Standard && len(p.CgoFiles) > 0 {
			t.Errorf("plx is made of %s, which uses cgo", p.ImportPath)
		}
	}
}

// build builds plx without cgo, like a release.
func build(t *testing.T) (program string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds plx")
	}
	program = filepath.Join(t.TempDir(), "plx")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build plx: %v: %s", err, out)
	}
	return program
}

// Package initialization must be fast, because a launch starts plx three times
// on each host. For example, regular expressions of packages must be compiled
// on first use.
func TestPlxStartsQuickly(t *testing.T) {
	cmd := exec.Command(build(t), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, trace)
	}
	// each line looks like: init PACKAGE @0.1 ms, 0.2 ms clock, 3 bytes, 4
	// allocs
	packages, all := 0, 0
	for line := range strings.Lines(string(trace)) {
		words := strings.Fields(line)
		if len(words) != 11 || words[0] != "init" {
			continue
		}
		n, err := strconv.Atoi(words[9])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		packages, all = packages+1, all+n
		if own := strings.HasPrefix(words[1], module) || words[1] == "main"; own && n > 300 {
			t.Errorf("%s allocates %d times before main", words[1], n)
		}
	}
	if packages < 20 {
		t.Fatalf("the trace has %d packages:\n%s", packages, trace)
	}
	if all > 4000 {
		t.Errorf("the packages allocate %d times before main", all)
	}
}

// TestPlxIsStatic asks the program.
func TestPlxIsStatic(t *testing.T) {
	program := build(t)
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
