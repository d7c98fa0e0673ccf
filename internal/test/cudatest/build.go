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

// folders of sources, within the module.
const (
	library = "internal/test/cudatest/library"
	kernels = "trainer/executor/gpu/kernels"
)

// warnings are those of all compilations.
var warnings = []string{"-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fPIC"}

// cxx compiles kernels. The machine's own instructions are faster and change no bits;
// valgrind does not know all of them.
var cxx = slices.Concat(warnings, machine(), []string{"-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-U_FORTIFY_SOURCE",
	"-Wno-unknown-pragmas", "-Wno-psabi"})

func machine() []string {
	if runtime.GOARCH == "amd64" {
		return []string{"-march=native", "-mno-avx512f"}
	}
	return []string{"-march=native"}
}

// root is the folder of plx's module: tests run below it, also those of the tools' module.
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

// builder compiles into a folder that later tests, also of other packages, find again.
type builder struct {
	testing.TB
	root, folder string
}

var (
	building sync.Mutex
	built    string // the folder that this process has built
)

// build returns the folder with everything compiled. The test is skipped if there is no
// compiler.
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

// cached returns a builder with a folder in which work was called once for what it
// depends on: files, and more.
func (b builder) cached(work func(builder), more string, patterns ...string) builder {
	b.Helper()
	hash := sha256.New()
	fmt.Fprint(hash, cxx, more) // a hash takes everything
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
	defer func() { _ = lock.Close() }() // it was not written
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

// objects compiles the kernels.
func (b builder) objects() {
	b.Helper()
	var work []func() error
	for _, names := range b.sources() {
		work = append(work, func() error { return b.kernels(names, moduleOf(names)) })
	}
	b.together(work...)
}

// sources are the files that name kernels.
func (b builder) sources() []string {
	b.Helper()
	all, err := filepath.Glob(filepath.Join(b.root, kernels, "*.ptx"))
	b.must(err)
	return append(all, filepath.Join(b.root, library, "faults.cu"))
}

func moduleOf(file string) string {
	return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".ptx"), ".cu")
}

// libraries compiles the rest, and links it with the kernels.
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

// entry is a kernel's name in PTX and in CUDA C.
var entry = regexp.MustCompile(`(?:\.entry |KERNEL\(\d+\) |BLOCK_SUMS\()(\w+)[(,]`)

// kernels compiles a module's kernels, and makes those callable that a file names.
func (b builder) kernels(names, name string) error {
	text, err := os.ReadFile(names)
	if err != nil {
		return err
	}
	source := fmt.Sprintf("#include %q\n", name+".cu")
	for _, found := range entry.FindAllStringSubmatch(string(text), -1) {
		if found[1] != "NAME" { // of a macro
			source += fmt.Sprintf("LAUNCHER(%s)\n", found[1])
		}
	}
	if err := os.WriteFile(filepath.Join(b.folder, name+".cpp"), []byte(source), 0o600); err != nil {
		return err
	}
	return b.compile(slices.Concat([]string{"g++"}, cxx, []string{"-I" + filepath.Join(b.root, kernels), "-I" + filepath.Join(b.root, library), "-c", name + ".cpp", "-o", name + ".o"})...)
}

// compile runs a compiler in the folder.
func (b builder) compile(args ...string) error {
	c := exec.Command(args[0], args[1:]...)
	c.Dir = b.folder
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the stand-in: %v: %w\n%s", args, err, out)
	}
	return nil
}

// Build makes a stand-in for the driver in a folder and returns its path. Each has a
// file of its own, so that each can be opened for itself.
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

// BLAS is a stand-in for cuBLAS.
type BLAS struct {
	Major   int    // of its version; 0 means 12
	Without string // a function that it does not have
	Failing string // a function that fails with CUBLAS_STATUS_EXECUTION_FAILED
}

// Build makes the library in a folder and returns its path.
func (o BLAS) Build(t testing.TB, folder string) string {
	t.Helper()
	path := copied(t, "libcublas.so.12", folder)
	text, err := os.ReadFile(path)
	if err == nil && o.Without != "" { // the loader finds no symbol of that name
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
