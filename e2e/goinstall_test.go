//go:build long

package e2e

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoInstallOfAVersion installs plx as go install
// github.com/plx-run/plx@VERSION does. It uses the files that a module proxy
// would serve: the module without its nested modules.
func TestGoInstallOfAVersion(t *testing.T) {
	t.Parallel()
	const (
		module  = "github.com/plx-run/plx"
		version = "v0.0.1-test"
	)
	proxy, cache, bin := t.TempDir(), t.TempDir(), t.TempDir()
	folder := filepath.Join(proxy, module, "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	written := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(folder, version+name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "list"), []byte(version+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	written(".mod", read(t, "../go.mod"))
	written(".info", []byte(`{"Version":"`+version+`"}`))
	packed, err := os.Create(filepath.Join(folder, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(packed)
	for name := range strings.Lines(tool(t, "git", "-C", "..", "ls-files")) {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "internal/tools/") {
			continue
		}
		if s, err := os.Lstat(filepath.Join("..", name)); err != nil || s.Mode().Type() != fs.FileMode(0) {
			continue // removed files, and files that are not regular; go leaves them out of a module, too
		}
		f, err := w.Create(module + "@" + version + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(read(t, filepath.Join("..", name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	downloads := strings.TrimSpace(tool(t, "go", "env", "GOMODCACHE")) + "/cache/download"
	install := exec.Command("go", "install", module+"@"+version)
	install.Dir = bin // in no module
	install.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -modcacherw", "GOBIN="+bin, "CGO_ENABLED=0", "GOMODCACHE="+cache,
		"GOPROXY=file://"+proxy+",file://"+downloads, "GONOSUMDB=*", "GONOSUMCHECK=1")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := tool(t, filepath.Join(bin, "plx"), "version"); !strings.HasPrefix(got, "plx "+version) {
		t.Errorf("plx version says %q", got)
	}
}
