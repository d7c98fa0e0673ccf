package importtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// raw lists the files that may write to the user's terminal without package
// console, and what they write. All other output of plx must pass through the
// console, which removes control sequences.
var raw = map[string]string{
	"launcher/exec/print.go":   "outputs of programs, which logs.Safe makes harmless on a terminal",
	"launcher/jobs/resolve.go": "a table on stderr, by the console",
	"launcher/jobs/top.go":     "the full-screen view, which makes all texts harmless",
	"main.go":                  "words that a shell completes, each through logs.Escape; the help",
	"command.go":               "what the terminal is",
	"cmd_completion.go":        "scripts of plx itself",
	"cmd_help.go":              "the help",
	"cmd_version.go":           "the version",
	"cmd_config.go":            "a terminal without a width",
}

// Only package console may write to the outputs of plx, so that text from
// other hosts cannot reach the terminal unfiltered.
func TestOnlyTheConsoleWritesToTheTerminal(t *testing.T) {
	unused := map[string]bool{}
	for name := range raw {
		unused[name] = true
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path) // path begins with root
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "launcher/console" || name == "launcher/agent" || name != "." && !strings.HasPrefix(name, "launcher")):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, is := n.(*ast.SelectorExpr)
			if is && output(file, s) {
				delete(unused, name)
				if raw[name] == "" {
					t.Errorf("%s: %s.%s passes the console by: let console.Printer or console.Terminal print", files.Position(s.Pos()), text[s.X.Pos()-file.FileStart:s.X.End()-file.FileStart], s.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range unused {
		t.Errorf("%s writes nothing by itself: its row is not needed", name)
	}
}

// sequences is the only file that may contain escape sequences as literals.
// Other code uses package ansi and the styles of logs/style.
const sequences = "logs/escape.go"

// Literals with escape sequences must be in one file.
func TestEscapeSequencesAreInOneFile(t *testing.T) {
	found := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path) // path begins with root
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "internal" || strings.HasPrefix(name, ".") && name != "."):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, is := n.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING && literal.Kind != token.CHAR {
				return true
			}
			for _, esc := range []string{`\x1b`, `\x1B`, `\033`, `\u001b`, "\x1b"} {
				switch {
				case !strings.Contains(literal.Value, esc):
				case name == sequences:
					found++
				default:
					t.Errorf("%s: %s belongs into %s", files.Position(literal.Pos()), literal.Value, sequences)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d in %s, %v", found, sequences, err)
	}
}

// output reports whether an expression is an output stream of plx: one of the
// process, or a field of a console.Terminal, of package main's command or of
// the library's App.
func output(file *ast.File, s *ast.SelectorExpr) bool {
	of := ""
	switch x := s.X.(type) {
	case *ast.Ident:
		of = x.Name
	case *ast.SelectorExpr:
		of = x.Sel.Name
	}
	switch s.Sel.Name {
	case "Stdout", "Stderr":
		return of == "os" || of == "Terminal" || of == "t" || of == "to" || of == "terminal"
	case "stdout", "stderr":
		return file.Name.Name == "main" && of == "c"
	case "Writer", "ErrWriter":
		return of == "App"
	}
	return false
}
