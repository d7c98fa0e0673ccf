//go:build linux && !nodlopen && (amd64 || arm64)

package blas

import (
	"cmp"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The kernels that a library took are those that it chose, or that the user chose by
// OpenBLAS's own variable. If they are wrong at one alignment the library is refused.
func TestKernels(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc, to build a library")
	}
	for _, c := range []struct{ flag, user, name, want string }{
		{"", "", "OpenBLAS", "Haswell"},
		{"", "SkylakeX", "OpenBLAS", "SkylakeX"},
		{"", "unknown", "OpenBLAS", "Haswell"},
		{"BLIS", "SkylakeX", "BLIS", ""},
		{"MKL", "SkylakeX", "MKL", ""},
		{"WRONG", "", "OpenBLAS", "Haswell"},
		{"WRONG", "SkylakeX", "", "computes a wrong"},
	} {
		file := filepath.Join(t.TempDir(), "lib.so")
		if out, err := exec.Command("gcc", "-O1", "-shared", "-fPIC", "-D"+cmp.Or(c.flag, "RIGHT"), "-o", file, "testdata/openblas.c").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Setenv("OPENBLAS_CORETYPE", c.user)
		_, lib, err := openFile(file, 1)
		if err != nil {
			if c.name != "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		} else if lib.Name != c.name || lib.Kernels != c.want {
			t.Errorf("%+v: %s with the kernels %q", c, lib.Name, lib.Kernels)
		}
	}
}

// The OpenBLAS of this machine says which kernels it took. String has them, and the
// configuration, by which mixed hosts are refused.
func TestKernelsOfOpenBLAS(t *testing.T) {
	openBLAS(t) // or skip
	_, lib, err := choose("openblas", 1)
	if err != nil {
		t.Fatal(err)
	}
	if lib.Kernels == "" || !strings.Contains(lib.Config, lib.Kernels) || !strings.Contains(lib.String(), ", "+lib.Kernels+" kernels") {
		t.Errorf("%+v: %s", lib, lib)
	}
}
