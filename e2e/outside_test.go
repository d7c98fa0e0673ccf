package e2e

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// outside makes a module that uses plx as users do, by its import path, and returns its
// folder. A replace directive says where plx's source is.
func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	module := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(read(t, "../go.mod")), "module example.com/outside")
	module = regexp.MustCompile(`(?s)\ntool \(.*?\n\)`).ReplaceAllString(module, "") // a user has none of plx's tools
	module += "\nrequire github.com/plx-run/plx v0.0.0\n\nreplace github.com/plx-run/plx => " + root + "\n"
	put(t, filepath.Join(dir, "go.mod"), module, 0o644)
	put(t, filepath.Join(dir, "go.sum"), string(read(t, "../go.sum")), 0o644)
	return dir
}

// goTool runs the go command in a folder.
func goTool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Every example of the documentation is a program that compiles outside of plx, with what
// stands beside it in its file.
func TestExamplesCompileOutside(t *testing.T) {
	t.Parallel()
	dir, found := outside(t), 0
	for _, file := range exampleFiles(t) {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range doc.Examples(parsed) {
			if e.Play == nil {
				t.Errorf("%s: Example%s is no program of its own: it uses what another file of the test has", file, e.Name)
				continue
			}
			found++
			name := filepath.Join(filepath.Base(filepath.Dir(file)), strings.ToLower("example"+e.Name))
			put(t, filepath.Join(dir, name, "main.go"), source(t, fset, e.Play), 0o644)
		}
	}
	if found < 30 {
		t.Errorf("%d examples were found", found)
	}
	goTool(t, dir, "list", "-export", "./...")
}

// exampleFiles are the test files of plx that have examples.
func exampleFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") && bytes.Contains(read(t, path), []byte("\nfunc Example")) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func source(t *testing.T, fset *token.FileSet, file *ast.File) string {
	t.Helper()
	var text bytes.Buffer
	if err := printer.Fprint(&text, fset, file); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
