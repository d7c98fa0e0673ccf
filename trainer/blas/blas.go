// Package blas chooses the linear algebra library that Gorgonia computes with.
//
// Most of a training step is matrix products. Gorgonia uses gonum, which is
// written in Go. An installed OpenBLAS is several times faster. This package
// looks for one at run time, without cgo, and installs it:
//
//	lib, err := blas.Use(os.Getenv("PLX_BLAS"), 1)
//	if err != nil {
//		return err
//	}
//	logger.Info("blas", "library", lib.String()) // OpenBLAS 0.3.21 (libopenblas.so.0, 1 thread)
//
// If a named library cannot be loaded, Use returns an error. It never changes
// to another library silently: two libraries round differently, and a job that
// must give the same numbers on every host would not. Only "auto" may fall back
// to gonum; the Library's Note then says why.
//
// # Threads
//
// A loaded library runs each call on the calling thread unless Use is told
// otherwise. OpenBLAS gives other bits with two threads than with one. A
// program that computes several replicas side by side uses its cores already.
//
// # Linking
//
// On Linux (amd64, arm64) a program that imports this package is dynamically
// linked against glibc, even with CGO_ENABLED=0. It does not start on a host
// that only has musl. Built with -tags nodlopen it is static, runs everywhere,
// and has gonum only. On other platforms there is gonum only.
//
// The package computes nothing itself and keeps no pointer to a caller's memory
// after a call. Complex products stay with gonum.
package blas

import (
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"gonum.org/v1/gonum/blas/gonum"
	"gorgonia.org/gorgonia"
)

// Library describes the installed library. Two hosts with the same Name,
// Version and Config compute the same bits for the same calls.
type Library struct {
	Name    string // "OpenBLAS", "MKL", "BLIS", "CBLAS" (another one) or "gonum"
	Path    string // the file as it was opened; empty for gonum
	Version string // from the library; empty if it reports none
	Kernels string // what OpenBLAS calls those that it took for this processor; else empty
	Config  string // build options and the kernel chosen for this CPU; may be empty
	Threads int    // threads that one call may use; 0 if the library does not report them
	Note    string // why auto chose gonum; empty otherwise
}

// String is one line for the start of a log.
func (l Library) String() string {
	name := strings.TrimSpace(l.Name + " " + l.Version)
	var in []string
	if l.Path != "" {
		in = append(in, filepath.Base(l.Path))
	}
	if l.Kernels != "" {
		in = append(in, l.Kernels+" kernels")
	}
	switch {
	case l.Threads == 1:
		in = append(in, "1 thread")
	case l.Threads > 1:
		in = append(in, fmt.Sprintf("%d threads", l.Threads))
	}
	if l.Note != "" {
		in = append(in, l.Note)
	}
	if len(in) == 0 {
		return name
	}
	return name + " (" + strings.Join(in, ", ") + ")"
}

// NotFoundError is returned if a library that was named by name or path cannot
// be used.
type NotFoundError struct {
	Spec string // the spec given to Use
	Err  error  // the loader's error for each file that was tried
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("blas %s: %v", e.Spec, e.Err)
}

func (e *NotFoundError) Unwrap() error { return e.Err }

// Hint tells the user what to do.
func (e *NotFoundError) Hint() string {
	return "install it on this host (Debian: libopenblas0, Fedora: openblas), or set PLX_BLAS to auto or gonum"
}

var installing sync.Mutex

// Use finds the library that spec names and installs it for Gorgonia and its
// tensors, in the whole process. Call it before the first graph runs, and never
// while a graph runs. A second call replaces the choice of the first; a loaded
// library stays in memory.
//
// The spec is "auto" or empty (the first of OpenBLAS, MKL and BLIS that is
// found, else gonum), "openblas", "mkl", "blis", the path of a shared library
// with the CBLAS functions, or "gonum" or "off" for gonum. Threads is the
// number of threads that one call may use, at least 1; gonum ignores it.
//
// Use also returns an error for an unknown spec. After an error nothing is
// installed.
func Use(spec string, threads int) (Library, error) {
	installing.Lock()
	defer installing.Unlock()
	impl, lib, err := choose(spec, max(threads, 1))
	if err != nil {
		return Library{}, err
	}
	gorgonia.Use(impl) // installs into gorgonia.org/tensor as well
	return lib, nil
}

// choose resolves a spec without installing a library.
func choose(spec string, threads int) (gorgonia.BLAS, Library, error) {
	switch {
	case spec == "gonum" || spec == "off":
		return gonum.Implementation{}, gonumLibrary(""), nil
	case spec == "auto" || spec == "":
		return chooseAuto(threads)
	case strings.ContainsRune(spec, filepath.Separator):
		return named(spec, family{files: []string{spec}}, threads)
	}
	for _, f := range families {
		if f.spec == spec {
			return named(spec, f, threads)
		}
	}
	return nil, Library{}, fmt.Errorf("blas %q is not known: want auto, openblas, mkl, blis, gonum or the path of a shared library", spec)
}

func named(spec string, f family, threads int) (gorgonia.BLAS, Library, error) {
	impl, lib, err := open(f, threads)
	if err != nil {
		return nil, Library{}, &NotFoundError{Spec: spec, Err: err}
	}
	return impl, lib, nil
}

// chooseAuto never fails. The Note names the libraries that it could not use.
func chooseAuto(threads int) (gorgonia.BLAS, Library, error) {
	var tried []string
	for _, f := range families {
		impl, lib, err := open(f, threads)
		if err == nil {
			return impl, lib, nil
		}
		tried = append(tried, f.name)
	}
	note := "no " + strings.Join(tried, ", no ") + " found"
	if !loadable {
		note = "this build loads no other library"
	}
	return gonum.Implementation{}, gonumLibrary(note), nil
}

// gonumLibrary describes gonum. Its result does not depend on how many
// goroutines it uses, so Threads is only informative.
func gonumLibrary(note string) Library {
	return Library{Name: "gonum", Version: gonumVersion(), Threads: runtime.GOMAXPROCS(0), Note: note}
}

// gonumVersion is the version of the linked module. It is empty in a binary
// without build information, such as a test.
func gonumVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "gonum.org/v1/gonum" {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return ""
}

// family is a kind of CBLAS library: its files, and how to talk to it beyond
// the CBLAS functions that all have in common.
type family struct {
	spec  string   // its name in PLX_BLAS
	name  string   // its name in messages
	files []string // tried in this order; the system's loader finds names without a folder
}

// families are the libraries known by name, in the order that auto tries them.
// Files with 64-bit integers or suffixed symbols are left out: their names do
// not show whether the functions are called cblas_sgemm.
var families = []family{
	{spec: "openblas", name: "OpenBLAS", files: []string{
		"libopenblas.so.0", "libopenblas.so", "libopenblasp.so.0", "libopenblaso.so.0",
	}},
	{spec: "mkl", name: "MKL", files: []string{
		"libmkl_rt.so.2", "libmkl_rt.so.1", "libmkl_rt.so",
	}},
	{spec: "blis", name: "BLIS", files: []string{
		"libblis.so.4", "libblis.so.3", "libblis.so", "libblis-mt.so",
	}},
}
