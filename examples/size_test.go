package examples_test

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The examples that show how short a program can be stay short. They import
// only plx's public packages and the standard library.
func TestExamplesAreShort(t *testing.T) {
	for name, most := range map[string]int{"linear": 40, "mnist": 90 + 30 /* to evaluate */, "lm": 200, "word2vec": 90} {
		paths, err := filepath.Glob(filepath.Join(name, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(text, []byte("\n"))
			file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range file.Imports {
				foreign := strings.Contains(i.Path.Value, ".") && !strings.HasPrefix(i.Path.Value, `"github.com/plx-run/plx/trainer`)
				if foreign || strings.Contains(i.Path.Value, "internal/") {
					t.Errorf("%s imports %s", path, i.Path.Value)
				}
			}
		}
		if lines == 0 || lines > most {
			t.Errorf("%s has %d lines, want at most %d", name, lines, most)
		}
	}
}
