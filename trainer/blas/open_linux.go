//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package blas

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/ebitengine/purego"
	"gorgonia.org/gorgonia"
)

// loadable is true if this build can load a library at run time.
const loadable = true

// threadVariables are the environment variables from which the libraries read
// their number of threads when they start. To set the number after loading is
// not enough: a library that uses OpenMP keeps the number per calling thread,
// and Go calls from any thread.
var threadVariables = []string{
	"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS",
	"MKL_NUM_THREADS", "BLIS_NUM_THREADS",
}

// open loads the first file of family f that exists and passes selfCheck. The
// error names each file that was tried.
func open(f family, threads int) (gorgonia.BLAS, Library, error) {
	var tried []string
	for _, file := range f.files {
		impl, lib, err := openFile(file, threads, suited())
		if err == nil {
			return impl, lib, nil
		}
		tried = append(tried, err.Error())
	}
	return nil, Library{}, errors.New(strings.Join(tried, "; "))
}

// load loads a library file. It stays on one thread, because dlerror returns
// the error of the calling thread.
func load(file string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// openFile loads a library. If OpenBLAS does not know the processor, it uses
// slow fallback kernels (its code for an old processor). If the user chose no
// kernels, openFile then loads OpenBLAS again with the first of kernels that
// the library accepts.
func openFile(file string, threads int, kernels []string) (*cblas, Library, error) {
	impl, lib, err := openWith(file, threads, "")
	if _, chosen := os.LookupEnv(kernelsVariable); chosen || err != nil || lib.Kernels != fallback || len(kernels) == 0 {
		return impl, lib, err
	}
	unload(impl.handle)
	for _, name := range kernels {
		impl, lib, err := openWith(file, threads, name)
		if err == nil && lib.Kernels == name {
			return impl, lib, nil
		}
		if err == nil {
			unload(impl.handle)
		}
	}
	return openWith(file, threads, "")
}

// unload unloads a library, so that it chooses its kernels again when it is
// loaded the next time.
func unload(handle uintptr) {
	_ = purego.Dlclose(handle) // if Dlclose fails, the library stays loaded and uses the same kernels
}

// openWith loads a library. kernels is the name of the kernels that OpenBLAS
// uses if it has them; with "" OpenBLAS chooses its kernels. openWith unloads
// the library again if the library cannot be used.
func openWith(file string, threads int, kernels string) (_ *cblas, _ Library, err error) {
	restore, err := setVariables(threads, kernels)
	if err != nil {
		return nil, Library{}, fmt.Errorf("load %s: %w", file, err)
	}
	defer restore()
	handle, err := load(file)
	if err != nil {
		return nil, Library{}, err // the message of dlopen names the file
	}
	defer func() {
		if err != nil {
			unload(handle)
		}
	}()
	impl, err := bind(handle)
	if err != nil {
		return nil, Library{}, fmt.Errorf("load %s: %w", file, err)
	}
	lib := describe(handle, threads)
	lib.Path = file
	// The check must run while the environment variables are set, because some
	// libraries start their threads at the first product.
	if err := selfCheck(impl); err != nil {
		return nil, Library{}, fmt.Errorf("load %s: %w", file, err)
	}
	impl.shorten(handle)
	return impl, lib, nil
}

// setVariables sets the environment variables that the libraries read, for Go
// and for the C library. It returns a function that restores the old values.
func setVariables(threads int, kernels string) (restore func(), err error) {
	values := map[string]string{}
	for _, name := range threadVariables {
		values[name] = strconv.Itoa(threads)
	}
	if kernels != "" {
		values[kernelsVariable] = kernels
	}
	var undo []func() error
	restore = func() {
		for _, f := range undo {
			_ = f() // cannot fail, because the same variable was set above
		}
	}
	for name, value := range values {
		if old, was := os.LookupEnv(name); was {
			undo = append(undo, func() error { return os.Setenv(name, old) })
		} else {
			undo = append(undo, func() error { return os.Unsetenv(name) })
		}
		if err := os.Setenv(name, value); err != nil {
			restore()
			return nil, err
		}
	}
	return restore, nil
}

// describe finds out which library was loaded, sets its number of threads, and
// returns what the library then reports. It identifies the library by its
// functions and not by its file name, because libblas.so.3 may be any library.
func describe(handle uintptr, threads int) Library {
	switch {
	case has(handle, "openblas_get_config"):
		return describeOpenBLAS(handle, threads)
	case has(handle, "MKL_Set_Num_Threads"):
		return describeMKL(handle, threads)
	case has(handle, "bli_info_get_version_str"):
		return describeBLIS(handle, threads)
	}
	return Library{Name: "CBLAS"}
}

// describeOpenBLAS describes a loaded OpenBLAS. The library returns its
// version and options in a text such as "OpenBLAS 0.3.21 NO_LAPACKE
// DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=64".
func describeOpenBLAS(handle uintptr, threads int) Library {
	lib := Library{Name: "OpenBLAS", Config: text(handle, "openblas_get_config")}
	if words := strings.Fields(lib.Config); len(words) > 1 && words[0] == "OpenBLAS" {
		lib.Version = words[1]
	}
	lib.Kernels = text(handle, "openblas_get_corename")
	if !strings.Contains(lib.Config, lib.Kernels) {
		lib.Config += " " + lib.Kernels
	}
	lib.Threads = setThreads[int32](handle, "openblas_set_num_threads", "openblas_get_num_threads", threads)
	return lib
}

func describeMKL(handle uintptr, threads int) Library {
	lib := Library{Name: "MKL"}
	const sequential = 1
	var layer func(int32) int32
	// This call must come before all others. It makes MKL run without Intel's
	// OpenMP library.
	if threads == 1 && register(&layer, handle, "MKL_Set_Threading_Layer") {
		layer(sequential)
	}
	lib.Threads = setThreads[int32](handle, "MKL_Set_Num_Threads", "MKL_Get_Max_Threads", threads)
	var version func(*byte, int32)
	if register(&version, handle, "MKL_Get_Version_String") {
		text := make([]byte, 256)
		version(&text[0], int32(len(text)-1))
		lib.Config, _, _ = strings.Cut(string(text), "\x00")
		lib.Config = strings.TrimSpace(lib.Config)
	}
	return lib
}

func describeBLIS(handle uintptr, threads int) Library {
	return Library{Name: "BLIS", Version: text(handle, "bli_info_get_version_str"),
		Threads: setThreads[int64](handle, "bli_thread_set_num_threads", "bli_thread_get_num_threads", threads)}
}

// setThreads sets a library's number of threads with function set, and returns
// the number that function get then returns. It returns 0 if the library has
// no such function. BLIS returns -1 for a number that was never set, which
// counts as 1.
func setThreads[N int32 | int64](handle uintptr, set, get string, threads int) int {
	var to func(N)
	if register(&to, handle, set) {
		to(N(threads))
	}
	var from func() N
	if !register(&from, handle, get) {
		return 0
	}
	return int(max(from(), 1))
}

// text calls a function of the library that returns a string. It returns "" if
// the library has no function of that name.
func text(handle uintptr, symbol string) string {
	var f func() string
	if !register(&f, handle, symbol) {
		return ""
	}
	return strings.TrimSpace(f())
}

func has(handle uintptr, symbol string) bool {
	_, err := purego.Dlsym(handle, symbol)
	return err == nil
}

// register makes fn call the library's function of that name. It returns false
// if the library has no such function.
func register(fn any, handle uintptr, symbol string) bool {
	address, err := purego.Dlsym(handle, symbol)
	if err != nil {
		return false
	}
	purego.RegisterFunc(fn, address)
	return true
}
