package e2e

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// outside creates a Go module that imports plx by its import path, as users
// do, and returns its folder. A replace directive points to this source.
func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	module := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(read(t, "../go.mod")), "module example.com/outside")
	module = regexp.MustCompile(`(?s)\ntool \(.*?\n\)`).ReplaceAllString(module, "") // a user's module does not have plx's tool directives
	module += "\nrequire github.com/plx-run/plx v0.0.0\n\nreplace github.com/plx-run/plx => " + root + "\n"
	put(t, filepath.Join(dir, "go.mod"), module, 0o644)
	put(t, filepath.Join(dir, "go.sum"), string(read(t, "../go.sum")), 0o644)
	return dir
}

// goTool runs the go command in folder dir.
func goTool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// programs lists programs in testdata/programs that a user could have written.
// The chief (worker 0) prints the same text with one process and with several
// workers.
var programs = []struct {
	name  string
	flags []string
	want  string
}{
	{"linear", exact, "W [0.997] b [0.006] loss 0.0000"},
	{"cnn", exact, "learned true"},
	{"cnn", append([]string{"--nn"}, exact...), "learned true"},
	{"words", exact, "learned true"},
	{"words", append([]string{"--table"}, exact...), "learned true"},
	{"exercises", nil, "by rows true, by reduction true\nlearned true, equal parameters"},
	{"monitored", exact, "global step 40"},
}

var exact = []string{"--virtual-workers=2", "--digest"}

// buildPrograms builds programs in a new module, and returns the folder with
// the binaries.
func buildPrograms(t *testing.T, names ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds programs")
	}
	dir := outside(t)
	if err := os.CopyFS(dir, os.DirFS("testdata/programs")); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin") + string(filepath.Separator)
	args := []string{"build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", bin}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	goTool(t, dir, args...)
	return bin
}

// alone runs a program without plx launch. It returns the program's stdout and
// stderr; the trainer writes its messages to stderr.
func alone(t *testing.T, program string, flags ...string) (stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := exec.Command(program, flags...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = environ(), t.TempDir(), &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, flags, err, &log)
	}
	return out.String(), log.String()
}

// table writes a CSV file with 16 points of two classes, and returns its path.
func table(t *testing.T) string {
	t.Helper()
	text := "x,y,class\n"
	for i := range 16 {
		text += fmt.Sprintf("%.2f,%.2f,%d\n", 0.6*float64(i%2)+0.02*float64(i), 0.5*float64(i%2)+0.03*float64(i*7%16), i%2)
	}
	return put(t, filepath.Join(t.TempDir(), "points.csv"), text, 0o644)
}

// A program trains alone and on two hosts, with the same bits.
func TestProgramOfAUser(t *testing.T) {
	t.Parallel()
	bin, p := buildPrograms(t, programs[0].name), programs[0]
	out, log := alone(t, bin+p.name, p.flags...)
	if !strings.HasPrefix(out, p.want) || strings.Contains(log, "warn") {
		t.Errorf("%s prints\n%s%s\nwant %q and no warning", p.name, out, log, p.want)
	}
	if on := launched(t, bin+p.name, p.flags...); on != out {
		t.Errorf("%s on two hosts prints\n%salone\n%s", p.name, on, out)
	}
}

// launched runs a program on an embedded cluster of two hosts, and returns
// what the chief (worker 0) printed.
func launched(t *testing.T, program string, flags ...string) string {
	t.Helper()
	res := local(t).want(0, append([]string{"launch", "--local", "2x1", program}, flags...)...)
	return strings.Join(lines(res.stdout, "worker:0"), "\n") + "\n"
}

// Every testable example (function ExampleXxx) compiles outside of plx,
// together with the other declarations of its file. So it uses only exported
// identifiers of plx's packages, and nothing of other test files.
func TestExamplesCompileOutside(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles what examples import")
	}
	fset, imported := token.NewFileSet(), []string{}
	examples := map[string]*ast.File{}
	for _, file := range exampleFiles(t) {
		parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range doc.Examples(parsed) {
			if e.Play == nil {
				t.Errorf("%s: Example%s is no program of its own", file, e.Name)
				continue
			}
			var text bytes.Buffer
			if err := printer.Fprint(&text, fset, e.Play); err != nil {
				t.Fatal(err)
			}
			program, err := parser.ParseFile(fset, "example"+e.Name+".go", &text, 0)
			if err != nil {
				t.Fatal(err)
			}
			examples[file+": Example"+e.Name] = program
			for _, i := range program.Imports {
				imported = append(imported, strings.Trim(i.Path.Value, `"`))
			}
		}
	}
	if len(examples) < 30 {
		t.Errorf("%d examples were found", len(examples))
	}
	checker := types.Config{Importer: importer.ForCompiler(fset, "gc", exported(t, imported))}
	for name, program := range examples {
		if _, err := checker.Check("main", fset, []*ast.File{program}, nil); err != nil {
			t.Errorf("%s, pasted into a program: %v", name, err)
		}
	}
}

// exported compiles packages. The returned function opens the export data of
// one of these packages or of a package that they import.
func exported(t *testing.T, paths []string) func(path string) (io.ReadCloser, error) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// exampleFiles returns the test files of plx that contain testable examples.
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
