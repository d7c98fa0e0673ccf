package cublas

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/trainer/executor/device"
)

// files are the library files that Choose tries, in this order: the newest
// version first.
var files = []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}

// Choice is the library that multiplies matrices on a GPU, as Choose found it.
type Choice struct {
	*Library        // nil means that plx's own kernels multiply
	Note     string // why no usable cuBLAS was found for the spec "auto"; empty if one was found, or for another spec
}

// String returns the library and its file, or the reason why cuBLAS is not
// used, for the line that a worker prints at its start.
func (c Choice) String() string {
	switch {
	case c.Library != nil:
		return c.Name() + " (" + filepath.Base(c.file) + ")"
	case c.Note != "":
		return c.Name() + " (" + c.Note + ")"
	}
	return c.Name()
}

// Name returns the library's name and version, or "plx's own kernels". Two
// workers compute the same bits if their GPUs are of the same type and their
// choices have the same name.
func (c Choice) Name() string {
	if c.Library == nil {
		return "plx's own kernels"
	}
	return c.Library.Name()
}

// Choose chooses the library that multiplies matrices on GPU g. The spec is
// one of
//
//   - "auto" or empty: the newest cuBLAS that works on the GPU, else plx's own kernels;
//   - "on": the newest cuBLAS that works on the GPU;
//   - a file such as libcublas.so.12, with or without its folder: exactly this file;
//   - "off": plx's own kernels.
//
// Only "auto" continues without cuBLAS. For "on" and for a file, a missing
// cuBLAS is an error, because plx's own kernels compute other bits than cuBLAS
// on the other hosts of the job.
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

// first opens the files in turn and returns the first cuBLAS that works on GPU
// g.
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

// NotFoundError reports that no cuBLAS library works on the GPU. Only Choose
// returns it.
type NotFoundError struct {
	tried []error // one error for each file that was tried
}

func (e *NotFoundError) Error() string {
	var all []string
	for _, err := range e.tried {
		all = append(all, err.Error())
	}
	return "cuBLAS for the products on the gpu: " + strings.Join(all, "; ")
}

// Hint returns advice for the user.
func (e *NotFoundError) Hint() string {
	return "install cuBLAS on this host (it is part of NVIDIA's CUDA toolkit), name its file by PLX_CUBLAS, or set PLX_CUBLAS=off for plx's own kernels"
}

// brief returns a short reason: the error of the first file that exists but is
// unusable. If no file exists, the reason is that no cuBLAS was found.
func (e *NotFoundError) brief() string {
	for _, err := range e.tried {
		if refused, there := errors.AsType[*refusedError](err); there {
			return refused.Error()
		}
	}
	return "no cuBLAS was found"
}

// refusedError reports why a library file that exists cannot be used.
type refusedError struct {
	file string
	err  error
}

func (e *refusedError) Error() string { return fmt.Sprintf("%s: %v", e.file, e.err) }

func (e *refusedError) Unwrap() error { return e.err }

// SpecError reports an invalid value of PLX_CUBLAS.
type SpecError struct{ Spec string }

func (e *SpecError) Error() string { return fmt.Sprintf("PLX_CUBLAS=%s is not known", e.Spec) }

// Hint returns advice for the user.
func (e *SpecError) Hint() string {
	return "want auto, on, off or the file of a cuBLAS, such as libcublas.so.12"
}
