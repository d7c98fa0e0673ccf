package cublas

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/trainer/executor/device"
)

// files are the names that the loader is asked for, the newest version first.
var files = []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}

// Choice is what multiplies matrices on a GPU.
type Choice struct {
	*Library        // nil: plx's own kernels
	Note     string // why auto did not choose cuBLAS; empty otherwise
}

// String is what a start line shows.
func (c Choice) String() string {
	switch {
	case c.Library != nil:
		return c.Name() + " (" + filepath.Base(c.file) + ")"
	case c.Note != "":
		return c.Name() + " (" + c.Note + ")"
	}
	return c.Name()
}

// Name is what decides the bits of a product: the library with its version, or plx's
// own kernels.
func (c Choice) Name() string {
	if c.Library == nil {
		return "plx's own kernels"
	}
	return c.Library.Name()
}

// Choose finds what multiplies matrices on a GPU. The spec is
//
//   - "auto" or empty: the newest cuBLAS that works on the GPU, else plx's own kernels;
//   - "on": the newest cuBLAS that works on the GPU;
//   - a file such as libcublas.so.12, with or without its folder: this one;
//   - "off": plx's own kernels.
//
// Only auto goes on without cuBLAS: a job that must give the same numbers on all
// hosts would not, if one of them computed with something else than it was told.
func Choose(spec string, g device.GPU) (Choice, error) {
	file := strings.Contains(spec, ".so") || strings.ContainsRune(spec, filepath.Separator)
	switch {
	case spec == "off":
		return Choice{}, nil
	case file:
		l, err := first([]string{spec}, g)
		return Choice{Library: l}, err
	case spec == "on" || spec == "auto" || spec == "":
		l, err := first(files, g)
		var missing *NotFoundError
		if spec != "on" && errors.As(err, &missing) {
			return Choice{Note: missing.brief()}, nil
		}
		return Choice{Library: l}, err
	}
	return Choice{}, &SpecError{spec}
}

// first opens the first file that works on a GPU.
func first(files []string, g device.GPU) (*Library, error) {
	e := &NotFoundError{}
	for _, file := range files {
		l, err := open(file, g)
		if err == nil {
			return l, nil
		}
		e.tried = append(e.tried, err)
	}
	return nil, e
}

// NotFoundError is returned if no cuBLAS can be used.
type NotFoundError struct {
	tried []error // by file
}

func (e *NotFoundError) Error() string {
	var all []string
	for _, err := range e.tried {
		all = append(all, err.Error())
	}
	return "cuBLAS for the products on the gpu: " + strings.Join(all, "; ")
}

// Hint tells the user what to do.
func (e *NotFoundError) Hint() string {
	return "install cuBLAS on this host (it is part of NVIDIA's CUDA toolkit), name its file by PLX_CUBLAS, or set PLX_CUBLAS=off for plx's own kernels"
}

// brief is why there is no cuBLAS: what is wrong with the files that are there.
func (e *NotFoundError) brief() string {
	for _, err := range e.tried {
		if refused, there := errors.AsType[*refusedError](err); there {
			return refused.Error()
		}
	}
	return "no cuBLAS was found"
}

// refusedError says why a file that is there cannot be used.
type refusedError struct {
	file string
	err  error
}

func (e *refusedError) Error() string { return fmt.Sprintf("%s: %v", e.file, e.err) }

func (e *refusedError) Unwrap() error { return e.err }

// SpecError is returned for a spec that is not known.
type SpecError struct{ Spec string }

func (e *SpecError) Error() string { return fmt.Sprintf("PLX_CUBLAS=%s is not known", e.Spec) }

// Hint tells the user what to do.
func (e *SpecError) Hint() string {
	return "want auto, on, off or the file of a cuBLAS, such as libcublas.so.12"
}
