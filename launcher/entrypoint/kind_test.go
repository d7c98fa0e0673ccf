package entrypoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/exit"
)

func TestKindOf(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for program, want := range map[string]Kind{
		"python3":                             OnHost,
		"train-that-is-not-here":              OnHost,
		make("train", 0o755):                  Local,
		filepath.Dir(make("pkg/a.go", 0o644)): GoPackage,
	} {
		if got, err := kindOf(program); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", program, got, err, want)
		}
	}
	for program, want := range map[string]int{
		dir + "/none":       127,
		make("data", 0o644): 126,
		filepath.Dir(make("empty/README", 0o644)): 126,
		"/dev/null":                             126,
		filepath.Join(make("file", 0o755), "x"): 126,
	} {
		_, err := kindOf(program)
		if base := filepath.Base(program); base == "none" && !strings.HasSuffix(exit.Hint(err), "--path "+dir+" none") {
			t.Errorf("%s: hint %q", program, exit.Hint(err))
		}
		if exit.Code(err) != want || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: %v (%d); want code %d and its name", program, err, exit.Code(err), want)
		}
	}
}

// A Go package that imports plx's trainer can use parameter servers. A package
// that is not package main is an error before it is built.
func TestGoPackageThatImportsTrainer(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/x\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	write("package main\n\nfunc main() {}\n")
	if p, err := Resolve(t.Context(), Source{Program: dir}, nil); err != nil || p.Trainer || p.Kind != GoPackage {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := Resolve(t.Context(), Source{Program: "../../examples/mlp"}, nil); err != nil || !p.Trainer {
		t.Errorf("%+v, %v", p, err)
	}
	write("package tool\n")
	_, err := Resolve(t.Context(), Source{Program: dir}, nil)
	if exit.Code(err) != 126 || !strings.Contains(err.Error(), "it is package tool, and only package main is a program") {
		t.Errorf("%v (%d)", err, exit.Code(err))
	}
}
