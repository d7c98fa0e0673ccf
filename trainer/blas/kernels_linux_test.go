//go:build linux && !nodlopen && (amd64 || arm64)

package blas

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A library keeps the kernels that it chose, or that the user chose with
// OPENBLAS_CORETYPE. Only OpenBLAS's fallback kernels for an unknown processor
// are replaced, by the best suited kernels that OpenBLAS has and that compute
// correctly. If there are none, the library is refused.
func TestOnlyFallbackKernelsAreReplaced(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc, to build a library")
	}
	both := []string{"SkylakeX", "Haswell"}
	for _, c := range []struct {
		flags, user string
		suited      []string
		name, want  string
	}{
		{"", "", both, "OpenBLAS", "SkylakeX"},
		{"", "", []string{"Haswell"}, "OpenBLAS", "Haswell"},
		{"", "", nil, "OpenBLAS", "Prescott"},
		{"", "Haswell", both, "OpenBLAS", "Haswell"},
		{"", "Prescott", both, "OpenBLAS", "Prescott"},
		{"-DKNOWS", "", both, "OpenBLAS", "Zen"},
		{"-DKNOWS", "SkylakeX", both, "OpenBLAS", "SkylakeX"},
		{"-DWRONG", "", both, "OpenBLAS", "Haswell"},
		{"-DWRONG", "", both[:1], "OpenBLAS", "Prescott"},
		{"-DWRONG", "SkylakeX", both, "", "computes a wrong"},
		{"-DOLD", "", both, "OpenBLAS", "Haswell"},
		{"-DBLIS", "", both, "BLIS", ""},
		{"-DMKL", "SkylakeX", both, "MKL", ""},
	} {
		file := filepath.Join(t.TempDir(), "lib.so")
		args := append(strings.Fields(c.flags), "-O1", "-shared", "-fPIC", "-o", file, "testdata/openblas.c")
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Setenv(kernelsVariable, c.user)
		if c.user == "" {
			if err := os.Unsetenv(kernelsVariable); err != nil {
				t.Fatal(err)
			}
		}
		_, lib, err := openFile(file, 1, c.suited)
		if err != nil {
			if c.name != "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		} else if lib.Name != c.name || lib.Kernels != c.want {
			t.Errorf("%+v: %s with the kernels %q", c, lib.Name, lib.Kernels)
		}
		if got := os.Getenv(kernelsVariable); got != c.user {
			t.Errorf("%+v: %s is %q after the library was loaded", c, kernelsVariable, got)
		}
	}
}

// The OpenBLAS of this machine uses kernels for its processor, even if the
// library does not know the processor, and reports their name. Library has the
// name and the configuration, so that a job can refuse hosts that differ in
// them. A loaded library does not choose again, so the test runs in a process
// of its own.
func TestOpenBLASUsesKernelsForThisProcessor(t *testing.T) {
	openBLAS(t) // or skip
	const alone = "PLX_TEST_ALONE"
	if os.Getenv(alone) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = []string{alone + "=1"} // and none of OpenBLAS's
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	_, lib, err := choose("openblas", 1)
	if err != nil {
		t.Fatal(err)
	}
	if lib.Kernels == "" || !strings.Contains(lib.Config, lib.Kernels) || !strings.Contains(lib.String(), ", "+lib.Kernels+" kernels") {
		t.Errorf("%+v: %s", lib, lib)
	}
	if lib.Kernels == fallback && len(suited()) > 0 {
		t.Errorf("%s took the kernels %s where %q are suited", lib, lib.Kernels, suited())
	}
}
