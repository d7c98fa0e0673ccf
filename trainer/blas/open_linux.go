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

// loadable reports whether this build can load a library at run time.
const loadable = true

// threadVariables bound the threads of the libraries when they start. Setting
// the number later is not enough: a library built on OpenMP keeps it per
// calling thread, and Go calls from any thread.
var threadVariables = []string{
	"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS",
	"MKL_NUM_THREADS", "BLIS_NUM_THREADS",
}

// open loads the first file of a family that exists and computes correctly. The
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

// load stays on one thread, because the loader keeps the cause of a failure per
// thread.
func load(file string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// openFile loads a library. If OpenBLAS does not know the processor and the user chose no
// kernels, the library is loaded once more with the best ones that it has for it. kernels are
// those to try, the best first.
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

// unload forgets a library, so that it chooses again when it is loaded.
func unload(handle uintptr) {
	_ = purego.Dlclose(handle) // else it stays, and is found as it is
}

// openWith loads a library, which takes the kernels of this name if it is OpenBLAS and has
// them; "" leaves the choice to it. One that is of no use is unloaded.
func openWith(file string, threads int, kernels string) (_ *cblas, _ Library, err error) {
	restore, err := setVariables(threads, kernels)
	if err != nil {
		return nil, Library{}, fmt.Errorf("load %s: %w", file, err)
	}
	defer restore()
	handle, err := load(file)
	if err != nil {
		return nil, Library{}, err // the loader's message names the file
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
	// The check runs while the thread variables are set, because some libraries
	// start their threads at the first product.
	if err := selfCheck(impl); err != nil {
		return nil, Library{}, fmt.Errorf("load %s: %w", file, err)
	}
	impl.shorten(handle)
	return impl, lib, nil
}

// setVariables sets the libraries' environment variables, for the C library and for Go.
// It returns a function that restores them.
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
			_ = f() // the variable could be set before, so it can be restored
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

// describe asks a library what it is, sets its number of threads, and returns
// what the library then reports. The library's functions show its family. Its
// file name does not: libblas.so.3 may be any of them.
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

// describeOpenBLAS reads a config such as
// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=64".
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
	// This call must come first. With it MKL needs no OpenMP library of
	// Intel's.
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

// setThreads sets a library's number of threads and returns what the library
// then reports; 0 if it does not. BLIS reports -1 if it was never set.
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

// text is what a function of the library returns; empty if it has none of this
// name.
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

// register binds a function. It reports whether the library has it.
func register(fn any, handle uintptr, symbol string) bool {
	address, err := purego.Dlsym(handle, symbol)
	if err != nil {
		return false
	}
	purego.RegisterFunc(fn, address)
	return true
}
