package rewrite

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// makeNoOperation lists functions of Gorgonia that return vertices but add no
// operation of their own.
var makeNoOperation = strings.Fields(`ApplyOp ApplyOpWithName Backpropagate Compile CompileFunction Grad Must NewConstant
	NewMatrix NewScalar NewTensor NewUniqueNode NewVector NodeFromAny NodesFromInputs Sort UnstableSort WalkGraph
	Lift1 Lift1Axial Lift2 Lift2Broadcast`)

// docs/models.md lists each of Gorgonia's operations once: as accepted,
// replaced or refused. For each accepted operation there is a test in twins.
func TestModelsPageListsAllOperations(t *testing.T) {
	page, err := os.ReadFile("../../docs/models.md")
	must(t, err)
	_, text, _ := strings.Cut(string(page), "### Accepted")
	accepted, text, _ := strings.Cut(text, "### Mapped")
	mapped, refused, _ := strings.Cut(text, "### Refused")
	refused, _, _ = strings.Cut(refused, "### Vertices")
	named := words(accepted)
	var compared []string
	for _, w := range twins(2, 300) {
		name, _, _ := strings.Cut(w.name, ":")
		compared = append(compared, name)
	}
	for _, name := range named {
		if !slices.Contains(compared, name) {
			t.Errorf("%s is accepted, and has no twin", name)
		}
	}
	for _, row := range strings.Split(mapped+refused, "\n") {
		if cells := strings.Split(row, "|"); len(cells) > 2 {
			for _, name := range words(cells[1]) {
				if !slices.Contains(named, name) {
					named = append(named, name)
				}
			}
		}
	}
	slices.Sort(named)
	if all := operations(t); !slices.Equal(named, all) {
		t.Errorf("the page names\n%v, gorgonia has\n%v", named, all)
	}
}

// words returns the names between backquotes in a text.
func words(text string) (all []string) {
	for _, m := range regexp.MustCompile("`([A-Z][A-Za-z0-9]*)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// operations returns the names of Gorgonia's functions that add an operation
// to a graph.
func operations(t *testing.T) (all []string) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "gorgonia.org/gorgonia").Output()
	must(t, err)
	//lint:ignore SA1019 the files of one folder are enough
	packages, err := parser.ParseDir(token.NewFileSet(), strings.TrimSpace(string(dir)), func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0)
	must(t, err)
	for _, file := range packages["gorgonia"].Files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() && f.Type.Results != nil && returnsNode(f) &&
				!slices.Contains(makeNoOperation, f.Name.Name) {
				all = append(all, f.Name.Name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// returnsNode reports whether a function returns *Node or Nodes.
func returnsNode(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(f.Type.Results.List, func(r *ast.Field) bool {
		pointer, ok := r.Type.(*ast.StarExpr)
		name, plain := r.Type.(*ast.Ident)
		return ok && isNamed(pointer.X, "Node") || plain && name.Name == "Nodes"
	})
}

func isNamed(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}
