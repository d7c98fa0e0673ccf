package testhosts

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Environment and working directory of the process at its start. A test may
// change both later. With another HOME, the go tool would not find its caches,
// and in another directory it would not find the module.
var (
	startEnviron = os.Environ()
	startDir, _  = os.Getwd() // on an error the directory is empty, and the go tool reports an error
)

var builds sync.Map // builds maps flags and package to a func() (string, error) that builds the package once and returns the program's path

// Binary builds a Go package without cgo and returns the path of the program.
// pkg is an argument for go build in the test's directory, and flags are flags
// of go build. Each process builds a package once, and links the program only
// if no process has linked the same program before. The program is alone in
// its directory. Its path is the same inside the hosts. With -short, Binary
// skips the test.
func Binary(tb testing.TB, pkg string, flags ...string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("builds ", pkg)
	}
	once, _ := builds.LoadOrStore(strings.Join(append(flags, pkg), " "), sync.OnceValues(func() (string, error) { return build(pkg, flags...) }))
	path, err := once.(func() (string, error))()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func build(pkg string, flags ...string) (string, error) {
	root, err := binDir()
	if err != nil {
		return "", err
	}
	removeOld(root, 24*time.Hour)
	dir, err := os.MkdirTemp(root, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) // if the removal fails, removeOld removes the directory later
	name, err := goTool("list", "-find", "-f", "{{.ImportPath}}", pkg)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, path.Base(name))
	// go run, unlike go build, takes a program that was linked before from the
	// build cache. -exec=cp makes it copy the program instead of running it.
	if _, err := goTool(slices.Concat([]string{"run", "-buildvcs=false", "-exec=cp"}, flags, []string{pkg, program})...); err != nil {
		return "", err
	}
	return keep(root, program)
}

// keep moves a program to a directory named by the hash of the program's
// content. If the directory exists, keep does not change it, because a process
// may be running the program in it.
func keep(root, program string) (string, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(root, fmt.Sprintf("%x", sha256.Sum256(content))[:16])
	kept := filepath.Join(folder, filepath.Base(program))
	if _, err := os.Stat(kept); err == nil {
		now := time.Now()
		return kept, os.Chtimes(folder, now, now) // update the time, so that removeOld keeps the directory
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	return kept, os.Rename(program, kept)
}

// binDir returns the directory for built programs. The directory is visible
// inside the hosts. Without root, when no hosts can run, it is in the
// temporary directory.
func binDir() (string, error) {
	dir := filepath.Join(stateDir, "bin")
	if os.Geteuid() != 0 {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("plx-testhosts-%d", os.Geteuid()))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, nil
}

// removeOld removes programs that were not used for the duration age, which
// must be longer than any test runs.
func removeOld(root string, age time.Duration) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return // go build will fail for the same reason and report it
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > age {
			_ = os.RemoveAll(filepath.Join(root, entry.Name())) // if the removal fails, a later call tries again
		}
	}
}

func goTool(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = startDir
	cmd.Env = append(slices.Clone(startEnviron), "CGO_ENABLED=0")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %v: %w\n%s", args, err, complaint.Bytes())
	}
	return string(bytes.TrimSpace(out.Bytes())), nil
}
