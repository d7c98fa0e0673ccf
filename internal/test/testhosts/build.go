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

// The environment and the folder before a test could change them: with another
// HOME the go tool would lose its caches, elsewhere it would find no module.
var (
	startEnviron = os.Environ()
	startDir, _  = os.Getwd() // without one the go tool complains
)

var builds sync.Map // flags and package to func() (string, error)

// Binary builds a Go package, named as for go build in the test's own folder,
// without cgo, and returns the program's path. It builds once per process, and links
// only what no process has linked; the path is one that hosts see too, and holds nothing
// but this very build. With -short it skips the test. Flags are those of go build.
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
	defer os.RemoveAll(dir) // removeOld tries again
	name, err := goTool("list", "-find", "-f", "{{.ImportPath}}", pkg)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, path.Base(name))
	// go build would link each time; go run takes what it has linked before from the build cache.
	if _, err := goTool(slices.Concat([]string{"run", "-buildvcs=false", "-exec=cp"}, flags, []string{pkg, program})...); err != nil {
		return "", err
	}
	return keep(root, program)
}

// keep moves a program into a folder named by its content. A folder that is
// there already stays, because somebody may run what is in it.
func keep(root, program string) (string, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(root, fmt.Sprintf("%x", sha256.Sum256(content))[:16])
	kept := filepath.Join(folder, filepath.Base(program))
	if _, err := os.Stat(kept); err == nil {
		now := time.Now()
		return kept, os.Chtimes(folder, now, now) // young again, see removeOld
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	return kept, os.Rename(program, kept)
}

// binDir is a folder that hosts see, or any for those who cannot have hosts.
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

// removeOld keeps the folder small. Nobody runs a test for longer than a day.
func removeOld(root string, age time.Duration) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return // the build will say so
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > age {
			_ = os.RemoveAll(filepath.Join(root, entry.Name())) // the next one tries again
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
