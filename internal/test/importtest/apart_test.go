package importtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Product files must not import test support or tools, even in files with
// build tags, which go list does not see. Only files with the tag failpoint
// may import package failpoint.
func TestProductFilesDoNotImportTestSupport(t *testing.T) {
	read, tagged := 0, 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path) // path begins with root
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "internal/test" || name == "internal/tools" || entry.Name() == "testdata" || name != "." && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		read++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		forFailpoint := strings.HasPrefix(string(text), "//go:build failpoint\n")
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imported := range file.Imports {
			pkg, err := strconv.Unquote(imported.Path.Value)
			if err != nil {
				return err
			}
			switch {
			case forFailpoint && pkg == module+"/internal/test/failpoint":
				tagged++
			case matches(module+"/internal/test/...", pkg), matches(module+"/internal/tools/...", pkg), pkg == "testing":
				t.Errorf("%s is no test and imports %s", name, pkg)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 500 || tagged == 0 {
		t.Errorf("read %d files, %d of them of the tag failpoint: the walk misses some", read, tagged)
	}
}

// Plotting libraries must be dependencies of the module internal/tools only,
// so that users do not download them.
func TestModuleDoesNotDependOnPlotLibraries(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "gonum.org/v1/plot") {
		t.Error("go.mod of plx requires gonum.org/v1/plot")
	}
}
