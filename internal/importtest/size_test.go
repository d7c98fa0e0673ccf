package importtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// root is the module's folder, seen from this package's.
const root = "../.."

const (
	longestFile     = 400 // lines
	longestFunction = 60
)

// excused holds files ("path") and functions ("path:Name") that may be longer,
// each with the reason.
var excused = map[string]string{}

func TestSizes(t *testing.T) {
	for _, path := range sources(t) {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(root, path), nil, parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		if ast.IsGenerated(file) {
			continue
		}
		if lines := set.Position(file.FileEnd).Line; lines > longestFile && excused[path] == "" {
			t.Errorf("%s has %d lines, more than %d", path, lines, longestFile)
		}
		for _, function := range functions(file) {
			lines := set.Position(function.End()).Line - set.Position(function.Pos()).Line + 1
			if lines > longestFunction && excused[path+":"+function.Name.Name] == "" {
				t.Errorf("%s: %s has %d lines, more than %d", path, function.Name.Name, lines, longestFunction)
			}
		}
	}
}

func functions(file *ast.File) []*ast.FuncDecl {
	var all []*ast.FuncDecl
	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok {
			all = append(all, function)
		}
	}
	return all
}

// sources are the module's Go files that are no tests.
func sources(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "dist") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			inside, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			all = append(all, inside)
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("find the module's source: %d files, %v", len(all), err)
	}
	return all
}
