package blas

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas/gonum"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestLibraryString(t *testing.T) {
	for _, c := range []struct {
		lib  Library
		want string
	}{
		{Library{Name: "OpenBLAS", Version: "0.3.21", Path: "libopenblas.so.0", Threads: 1}, "OpenBLAS 0.3.21 (libopenblas.so.0, 1 thread)"},
		{Library{Name: "CBLAS", Path: "/opt/x/libcblas.so.3"}, "CBLAS (libcblas.so.3)"},
		{Library{Name: "gonum", Version: "0.11.0", Threads: 8, Note: "no OpenBLAS found"}, "gonum 0.11.0 (8 threads, no OpenBLAS found)"},
		{Library{Name: "gonum"}, "gonum"},
	} {
		if got := c.lib.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestUseGonum(t *testing.T) {
	for _, spec := range []string{"gonum", "off"} {
		lib, err := Use(spec, 1)
		if err != nil {
			t.Fatal(err)
		}
		if lib.Name != "gonum" || lib.Note != "" {
			t.Errorf("%s: got %+v", spec, lib)
		}
		if gorgonia.WhichBLAS() != gorgonia.BLAS(gonum.Implementation{}) {
			t.Errorf("%s: gorgonia computes with %T", spec, gorgonia.WhichBLAS())
		}
	}
}

// The library that Use("auto") chooses is installed in package gorgonia and in
// package tensor, and is the one that Use returns.
func TestUseAutoInstallsInGorgoniaAndTensor(t *testing.T) {
	defer restoreGonum(t)
	lib, err := Use("", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(lib)
	if gorgonia.WhichBLAS() != gorgonia.BLAS(tensor.WhichBLAS()) {
		t.Errorf("gorgonia computes with %T, tensor with %T", gorgonia.WhichBLAS(), tensor.WhichBLAS())
	}
	_, isGonum := gorgonia.WhichBLAS().(gonum.Implementation)
	if isGonum != (lib.Name == "gonum") {
		t.Errorf("report %q, but installed is %T", lib, gorgonia.WhichBLAS())
	}
	if isGonum && lib.Note == "" {
		t.Errorf("auto fell back to gonum and does not say why: %q", lib)
	}
}

func restoreGonum(t *testing.T) {
	if _, err := Use("gonum", 1); err != nil {
		t.Error(err)
	}
}

// If the named library is missing, the error names the library, and the
// library that was installed before stays in use.
func TestUseReportsMissingLibrary(t *testing.T) {
	defer restoreGonum(t)
	restoreGonum(t)
	folder := t.TempDir()
	text := filepath.Join(folder, "libtext.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []string{filepath.Join(folder, "libnothing.so.9"), text} {
		_, err := Use(spec, 1)
		var missing *NotFoundError
		if !errors.As(err, &missing) {
			t.Fatalf("%s: got %v", spec, err)
		}
		if missing.Spec != spec || !strings.Contains(err.Error(), spec) || missing.Hint() == "" {
			t.Errorf("%s: error does not name it: %v", spec, err)
		}
		if _, ok := gorgonia.WhichBLAS().(gonum.Implementation); !ok {
			t.Errorf("%s: something was installed: %T", spec, gorgonia.WhichBLAS())
		}
	}
}

func TestUseRefusesUnknownSpec(t *testing.T) {
	for _, spec := range []string{"cublas", "OpenBLAS", "libopenblas.so.0"} {
		_, err := Use(spec, 1)
		var missing *NotFoundError
		if err == nil || errors.As(err, &missing) || !strings.Contains(err.Error(), spec) {
			t.Errorf("%s: got %v", spec, err)
		}
	}
}

// If no library can be loaded, Use("auto") chooses gonum and lists the missing
// libraries.
func TestAutoFallsBackToGonum(t *testing.T) {
	defer func(old []family) { families = old }(families)
	families = []family{
		{spec: "one", name: "One", files: []string{"libplx-no-such-one.so"}},
		{spec: "two", name: "Two", files: []string{"libplx-no-such-two.so"}},
	}
	_, lib, err := choose("auto", 1)
	if err != nil {
		t.Fatal(err)
	}
	if lib.Name != "gonum" || lib.Note == "" {
		t.Errorf("got %+v", lib)
	}
	if loadable && lib.Note != "no One, no Two found" {
		t.Errorf("note is %q", lib.Note)
	}
	if _, _, err := choose("two", 1); err == nil {
		t.Error("a named library that is missing fell back to gonum")
	}
}
