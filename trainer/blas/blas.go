// Package blas chooses the linear algebra library (BLAS) that Gorgonia
// computes with.
//
// Most of a training step is matrix products. Gorgonia uses gonum, which is
// written in Go. An installed OpenBLAS is several times faster. This package
// loads such a library at run time, without cgo, and installs it:
//
//	lib, err := blas.Use(os.Getenv("PLX_BLAS"), 1)
//	if err != nil {
//		return err
//	}
//	logger.Info("blas", "library", lib.String()) // OpenBLAS 0.3.21 (libopenblas.so.0, 1 thread)
//
// If the user names a library and it cannot be loaded, Use returns an error.
// Use never silently takes another library: two libraries round differently,
// so hosts of one job could compute different numbers. Only "auto" may fall
// back to gonum; Library.Note then gives the reason.
//
// # Threads
//
// By default a loaded library runs each call on the calling thread. OpenBLAS
// computes other bits with two threads than with one. A program that computes
// several replicas of a model concurrently already uses its cores.
//
// # Linking
//
// On Linux (amd64, arm64) a program that imports this package is dynamically
// linked against glibc, even with CGO_ENABLED=0. It does not start on a host
// that only has musl. With -tags nodlopen the program is static and runs
// everywhere, but can only use gonum. On other platforms there is only gonum.
//
// The package computes nothing itself and keeps no pointer to a caller's
// memory after a call. Complex products are always computed by gonum.
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

// Library describes the installed library. Two hosts with equal Name, Version
// and Config compute the same bits for the same calls.
type Library struct {
	Name    string // "OpenBLAS", "MKL", "BLIS", "gonum", or "CBLAS" for any other library
	Path    string // file name or path with which the library was loaded; empty for gonum
	Version string // version as the library reports it; empty if it reports none
	Kernels string // OpenBLAS's name for its code for this processor, such as "Haswell"; empty for other libraries
	Config  string // build options and the code for this processor, as the library reports them; may be empty
	Threads int    // number of threads that one call may use; 0 if the library does not report it
	Note    string // why "auto" chose gonum; empty otherwise
}

// String returns the library's name, version, file, kernels and threads in one
// line, for the start of a log.
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

// NotFoundError reports that a library that the user named cannot be used.
type NotFoundError struct {
	Spec string // what the caller passed to Use, such as "openblas" or a path
	Err  error  // the loader's errors, one for each file that was tried
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("blas %s: %v", e.Spec, e.Err)
}

func (e *NotFoundError) Unwrap() error { return e.Err }

// Hint returns advice for the user.
func (e *NotFoundError) Hint() string {
	return "install it on this host (Debian: libopenblas0, Fedora: openblas), or set PLX_BLAS to auto or gonum"
}

var installing sync.Mutex

// Use loads the library that spec names and installs it for Gorgonia and its
// tensors, in the whole process. Call Use before the first graph runs, and
// never while a graph runs. A second call replaces the choice of the first,
// whose library stays in memory.
//
// The spec is "auto" or empty (the first of OpenBLAS, MKL and BLIS that can be
// loaded, else gonum), "openblas", "mkl", "blis", the path of a shared library
// with the CBLAS functions, or "gonum" or "off" for gonum. Threads is the
// number of threads that one call may use, at least 1; gonum ignores it.
//
// An unknown spec is an error. After an error, Use has installed nothing.
func Use(spec string, threads int) (Library, error) {
	installing.Lock()
	defer installing.Unlock()
	impl, lib, err := choose(spec, max(threads, 1))
	if err != nil {
		return Library{}, err
	}
	gorgonia.Use(impl) // also installs impl for package gorgonia.org/tensor
	return lib, nil
}

// choose loads the library that spec names, without installing it for
// Gorgonia. Use describes the values of spec.
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

// chooseAuto returns the first library that can be loaded, or gonum if none
// can. It never fails. If it returns gonum, Library.Note names the libraries
// that could not be used.
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

// gonumLibrary describes gonum. Gonum's results do not depend on its number of
// goroutines, so Threads is only informative.
func gonumLibrary(note string) Library {
	return Library{Name: "gonum", Version: gonumVersion(), Threads: runtime.GOMAXPROCS(0), Note: note}
}

// gonumVersion returns the version of the gonum module that is linked into the
// program. It is empty in a program without build information, such as a test.
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

// family is a kind of CBLAS library and the file names under which it is
// installed.
type family struct {
	spec  string   // the library's name in PLX_BLAS
	name  string   // the library's name in messages
	files []string // file names in the order in which open tries them; the system's loader searches for them
}

// families are the libraries that PLX_BLAS can name, in the order in which
// "auto" tries them. Builds with 64-bit integers or suffixed symbols are left
// out, because their file names do not show whether their functions have the
// standard names such as cblas_sgemm.
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
