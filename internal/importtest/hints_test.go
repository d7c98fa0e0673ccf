package importtest

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"testing"
)

// exitPackage is the package that chooses exit statuses.
const exitPackage = module + "/launcher/exit"

// TestStructure looks at every package. This test sees that it finds what is wrong.
func TestFindsMistakesWithoutHints(t *testing.T) {
	for _, s := range load(t, "./internal/importtest/testdata/hints") {
		var lines []string
		for _, line := range s.mistakesWithoutHints() {
			at, _, _ := strings.Cut(line, ": ")
			lines = append(lines, at)
		}
		if got := strings.Join(lines, " "); got != "hints.go:18 hints.go:19 hints.go:20 hints.go:21 hints.go:22" {
			t.Errorf("the wrong lines are %s, want 18 to 22", got)
		}
	}
}

// verb matches a verb of a format.
var verb = regexp.MustCompile(`%(\[\d+\])?[a-z%]`)

// mistakesWithoutHints lists calls of exit.Mistake whose hint may be empty, and calls of
// exit.WithCode with the status of wrong use.
func (s source) mistakesWithoutHints() (lines []string) {
	if s.PkgPath == exitPackage {
		return nil
	}
	report := func(at token.Pos, what string) {
		lines = append(lines, fmt.Sprintf("%s:%d: %s", s.file(at), s.Fset.Position(at).Line, what))
	}
	for _, file := range s.Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			value := s.TypesInfo.Types[call.Args[1]].Value
			switch s.called(call) {
			case "Mistake":
				if value == nil || strings.TrimSpace(verb.ReplaceAllString(constant.StringVal(value), "")) == "" {
					report(call.Pos(), "the hint of exit.Mistake is not a constant with words")
				}
			case "WithCode":
				if value != nil && value.String() == "2" {
					report(call.Pos(), "exit.WithCode makes a mistake without a hint: use exit.Mistake")
				}
			}
			return true
		})
	}
	return lines
}

// called is the name of the function of package exit that is called, or "".
func (s source) called(call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	f, ok := s.TypesInfo.Uses[selector.Sel].(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != exitPackage {
		return ""
	}
	return f.Name()
}
