//go:build linux && !nodlopen && (amd64 || arm64)

package blas

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// amd is a processor whose kernels plx chooses.
var amd = processor{vendor: "AuthenticAMD", avx512: true}

// unset removes a variable until the test ends.
func unset(t *testing.T, name string) {
	t.Setenv(name, "so that the test puts back what was there")
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}

// plx chooses where OpenBLAS is known to choose badly, and only there.
func TestCore(t *testing.T) {
	unset(t, coreVariable)
	for p, want := range map[processor]string{
		amd:                      "SkylakeX",
		{vendor: "AuthenticAMD"}: "", // up to Zen 3, and where a hypervisor hides AVX-512
		{vendor: "GenuineIntel"}: "",
		{"GenuineIntel", true}:   "",
		{vendor: "HygonGenuine"}: "",
		{avx512: true}:           "", // /proc/cpuinfo cannot be read
		{}:                       "", // another architecture
	} {
		if got := core(p); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
	t.Setenv(coreVariable, "Zen")
	if got := core(amd); got != "" {
		t.Errorf("the user chose Zen, and plx %s", got)
	}
}

// The kernels that OpenBLAS takes in the end are those that it is asked for, if it has them
// and they are right at every alignment.
func TestKernelsThatAreTaken(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc, to build a library")
	}
	for _, c := range []struct{ flag, user, name, want string }{
		{"", "", "OpenBLAS", "SkylakeX"},
		{"", "Zen", "OpenBLAS", "Zen"},
		{"", "Haswell", "OpenBLAS", "Haswell"},
		{"OLD", "", "OpenBLAS", "Haswell"},
		{"WRONG", "", "OpenBLAS", "Haswell"},
		{"ROUNDS", "", "OpenBLAS", "Haswell"},
		{"ROUNDS", "SkylakeX", "OpenBLAS", "SkylakeX"}, // right, if not at every alignment alike
		{"BLIS", "", "BLIS", ""},
		{"MKL", "", "MKL", ""},
		{"WRONG", "SkylakeX", "", "computes a wrong"},
	} {
		file := filepath.Join(t.TempDir(), "lib.so")
		if out, err := exec.Command("gcc", "-O1", "-shared", "-fPIC", "-D"+cmp.Or(c.flag, "RIGHT"), "-o", file, "testdata/openblas.c").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		unset(t, coreVariable)
		if c.user != "" {
			t.Setenv(coreVariable, c.user)
		}
		_, lib, err := openFile(file, 1, amd)
		if got := lib.Kernels; err != nil {
			if c.name != "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		} else if lib.Name != c.name || got != c.want {
			t.Errorf("%+v: %s with the kernels %q", c, lib.Name, got)
		}
		if got := os.Getenv(coreVariable); got != c.user {
			t.Errorf("%+v: %s is %q after the library was loaded", c, coreVariable, got)
		}
	}
}

// The OpenBLAS of this machine takes what plx chooses for its processor, which String and
// the configuration, by which mixed hosts are refused, both say. A library that is loaded
// has chosen, so this needs a process of its own.
func TestOpenBLASTakesTheCore(t *testing.T) {
	const alone = "PLX_TEST_ALONE"
	if os.Getenv(alone) == "" {
		openBLAS(t) // or skip
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		for _, v := range append(os.Environ(), alone+"=1") {
			if !strings.HasPrefix(v, coreVariable+"=") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	_, lib, err := choose("openblas", 1)
	if err != nil {
		t.Fatal(err)
	}
	if want := core(thisProcessor()); want != "" && lib.Kernels != want {
		t.Errorf("it took %s, not %s", lib.Kernels, want)
	}
	if !strings.Contains(lib.Config, lib.Kernels) || !strings.Contains(lib.String(), ", "+lib.Kernels+" kernels") {
		t.Errorf("%+v does not say that it took %s: %s", lib, lib.Kernels, lib)
	}
}
