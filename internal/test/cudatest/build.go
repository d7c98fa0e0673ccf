package cudatest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// source folders, relative to the module's root
const (
	library = "internal/test/cudatest/library"
	kernels = "trainer/executor/gpu/kernels"
)

// warnings are compiler flags for all compilations.
var warnings = []string{"-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fPIC"}

// cxx are the g++ flags for the kernels. -march=native is faster and does not
// change results; AVX-512 is excluded because valgrind does not support all of
// it.
var cxx = slices.Concat(warnings, machine(), []string{"-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-U_FORTIFY_SOURCE",
	"-Wno-unknown-pragmas", "-Wno-psabi"})

func machine() []string {
	if runtime.GOARCH == "amd64" {
		return []string{"-march=native", "-mno-avx512f"}
	}
	return []string{"-march=native"}
}

// root returns the root folder of plx's module. The working directory of every
// test is below this folder, even in the nested module internal/tools.
func root(t testing.TB) string {
	t.Helper()
	at, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(at, library)); missing == nil {
			return at
		}
		if at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	t.Fatalf("there is no %s above this test: %v", library, err)
	return ""
}

// builder compiles into a cache folder, which later tests and other packages
// reuse.
type builder struct {
	testing.TB
	root, folder string
}

var (
	building sync.Mutex
	built    string // folder with the compiled libraries; "" before this process has built or found it
)

// build compiles everything and returns the folder with the result. It skips
// the test if there is no C++ compiler.
func build(t testing.TB) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if built != "" {
		return built
	}
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("there is no C++ compiler: ", err)
	}
	b := builder{t, root(t), ""}
	compiled := b.cached(builder.objects, "", library+"/host.cuh", library+"/faults.cu", kernels+"/*.cu*", kernels+"/*.ptx")
	built = compiled.cached(func(linked builder) { linked.libraries(compiled.folder) }, compiled.folder, library+"/*").folder
	return built
}

// cached returns a builder whose cache folder is named by a hash of the files
// that patterns match and of more. If the folder is new, cached calls work to
// fill it.
func (b builder) cached(work func(builder), more string, patterns ...string) builder {
	b.Helper()
	hash := sha256.New()
	fmt.Fprint(hash, cxx, more) // writing to a hash returns no error
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(b.root, pattern))
		b.must(err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			b.must(err)
			fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(name), len(text), text)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	b.folder = filepath.Join(cache, "plx-cudatest", fmt.Sprintf("%x", hash.Sum(nil)[:8]))
	b.must(os.MkdirAll(b.folder, 0o755))
	lock, err := os.Create(filepath.Join(b.folder, "lock"))
	b.must(err)
	defer func() { _ = lock.Close() }() // nothing was written to the lock file, so an error of Close does not matter
	b.must(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	if _, err := os.Stat(filepath.Join(b.folder, "done")); err != nil {
		work(b)
		b.must(os.WriteFile(filepath.Join(b.folder, "done"), nil, 0o600))
	}
	return b
}

func (b builder) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// objects compiles the kernels to object files.
func (b builder) objects() {
	b.Helper()
	var work []func() error
	for _, names := range b.sources() {
		work = append(work, func() error { return b.kernels(names, moduleOf(names)) })
	}
	b.together(work...)
}

// sources returns the paths of the files that contain the kernels' names.
func (b builder) sources() []string {
	b.Helper()
	all, err := filepath.Glob(filepath.Join(b.root, kernels, "*.ptx"))
	b.must(err)
	return append(all, filepath.Join(b.root, library, "faults.cu"))
}

func moduleOf(file string) string {
	return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".ptx"), ".cu")
}

// libraries compiles all other sources and links them with the kernels.
func (b builder) libraries(objects string) {
	b.Helper()
	source := func(name string) string { return filepath.Join(b.root, library, name) }
	compile := func(from, to string, more ...string) func() error {
		return func() error {
			return b.compile(slices.Concat([]string{"g++"}, cxx, more, []string{"-c", source(from), "-o", to})...)
		}
	}
	b.together(compile("runtime.cpp", "fibers.o"), compile("runtime.cpp", "threads.o", "-DCUDA_THREADS"), compile("replay.cpp", "replay.o"), func() error {
		return b.compile(slices.Concat([]string{"gcc", "-O2", "-c", source("libcuda.c"), "-o", "libcuda.o"}, warnings)...)
	}, func() error {
		return b.compile(slices.Concat([]string{"gcc", "-O2", "-shared", "-ffp-contract=off", source("libcublas.c"), "-o", "libcublas.so.12", "-ldl"}, warnings)...)
	})
	all := []string{"-ldl", "-lpthread"}
	for _, names := range b.sources() {
		all = append(all, filepath.Join(objects, moduleOf(names)+".o"))
	}
	b.must(b.compile(append([]string{"g++", "-shared", "-o", "libcuda.so.1", "libcuda.o", "fibers.o"}, all...)...))
	b.must(b.compile(append([]string{"g++", "-rdynamic", "-o", "replay", "replay.o", "threads.o"}, all...)...))
}

func (b builder) together(work ...func() error) {
	b.Helper()
	errs, running := make([]error, len(work)), sync.WaitGroup{}
	for i, do := range work {
		running.Go(func() { errs[i] = do() })
	}
	running.Wait()
	b.must(errors.Join(errs...))
}

// entry matches the names of kernels in PTX and in CUDA C.
var entry = regexp.MustCompile(`(?:\.entry |KERNEL\(\d+\) |BLOCK_SUMS\()(\w+)[(,]`)

// kernels compiles the kernels of a module. It also generates and compiles a
// launcher function for each kernel that the file names mentions.
func (b builder) kernels(names, name string) error {
	text, err := os.ReadFile(names)
	if err != nil {
		return err
	}
	source := fmt.Sprintf("#include %q\n", name+".cu")
	for _, found := range entry.FindAllStringSubmatch(string(text), -1) {
		if found[1] != "NAME" { // NAME is the parameter of a macro, not a kernel
			source += fmt.Sprintf("LAUNCHER(%s)\n", found[1])
		}
	}
	if err := os.WriteFile(filepath.Join(b.folder, name+".cpp"), []byte(source), 0o600); err != nil {
		return err
	}
	return b.compile(slices.Concat([]string{"g++"}, cxx, []string{"-I" + filepath.Join(b.root, kernels), "-I" + filepath.Join(b.root, library), "-c", name + ".cpp", "-o", name + ".o"})...)
}

// compile runs a compiler in the builder's folder.
func (b builder) compile(args ...string) error {
	c := exec.Command(args[0], args[1:]...)
	c.Dir = b.folder
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the stand-in: %v: %w\n%s", args, err, out)
	}
	return nil
}

// Build copies the stand-in for libcuda.so.1 to a folder and returns its path.
// Each test needs its own copy, because the dynamic linker loads the same file
// only once.
func Build(t testing.TB, folder string) string { return copied(t, "libcuda.so.1", folder) }

func copied(t testing.TB, name, folder string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(build(t), name))
	to := filepath.Join(folder, name)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// BLAS describes a stand-in for cuBLAS.
type BLAS struct {
	Major   int    // major version of cuBLAS; 0 means 12
	Without string // name of a function that the library lacks; "" means that it lacks none
	Failing string // name of a function that fails with CUBLAS_STATUS_EXECUTION_FAILED; "" means none
}

// Build writes the stand-in for cuBLAS to a folder and returns its path.
func (o BLAS) Build(t testing.TB, folder string) string {
	t.Helper()
	path := copied(t, "libcublas.so.12", folder)
	text, err := os.ReadFile(path)
	if err == nil && o.Without != "" { // rename the function in the symbol table, so that the dynamic linker does not find it
		text = bytes.ReplaceAll(text, []byte(o.Without+"\x00"), []byte("?"+o.Without[1:]+"\x00"))
		err = os.WriteFile(path, text, 0o755)
	}
	if err == nil {
		err = os.WriteFile(path+".options", fmt.Appendln(nil, cmp.Or(o.Major, 12), cmp.Or(o.Failing, "none")), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
