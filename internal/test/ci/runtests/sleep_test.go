package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// deliberate lists test functions that may sleep, because time is their
// subject.
var deliberate = map[string]string{
	"TestBigFilesAreCopiedOverSlowDisks": "a disk that is slower than the longest silence",
	"Write":                              "a reader that is slow",
}

// Tests must not sleep; they must wait for a condition, in a loop with a
// timeout. Files that use testing/synctest are exempt, because their clock is
// simulated.
func TestNoTestSleeps(t *testing.T) {
	used := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, pos := range sleeps(file) {
			place := enclosing(file, pos)
			if deliberate[place] == "" {
				t.Errorf("%s: it waits for a time: wait for a condition, with a bound", files.Position(pos))
			}
			used[place] = true
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for place := range deliberate {
		if !used[place] {
			t.Errorf("%s does not wait for a time any more", place)
		}
	}
}

// sleeps returns the places where a file only waits for time: time.Sleep
// outside of a loop, and a receive from time.After outside of a select.
func sleeps(file *ast.File) (found []token.Pos) {
	for _, s := range file.Imports {
		if s.Path.Value == `"testing/synctest"` {
			return nil
		}
	}
	var walk func(n ast.Node, loop bool)
	walk = func(n ast.Node, loop bool) {
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			loop = true
		case *ast.FuncLit:
			loop = false
		}
		ast.Inspect(n, func(m ast.Node) bool {
			switch m := m.(type) {
			case *ast.ForStmt, *ast.RangeStmt, *ast.FuncLit:
				if m != n {
					walk(m, loop)
					return false
				}
			case *ast.CallExpr:
				if calls(m, "Sleep") && !loop {
					found = append(found, m.Pos())
				}
			case *ast.ExprStmt:
				if receive, ok := m.X.(*ast.UnaryExpr); ok && receive.Op == token.ARROW {
					if call, ok := receive.X.(*ast.CallExpr); ok && calls(call, "After") {
						found = append(found, m.Pos())
					}
				}
			case *ast.CommClause: // the receive of a select case
				for _, s := range m.Body {
					walk(s, loop)
				}
				return false
			}
			return true
		})
	}
	walk(file, false)
	return found
}

// calls reports whether a call is to the function name of package time.
func calls(call *ast.CallExpr, name string) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != name {
		return false
	}
	pkg, ok := f.X.(*ast.Ident)
	return ok && pkg.Name == "time"
}

// enclosing returns the name of the function that contains a position.
func enclosing(file *ast.File, pos token.Pos) string {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Pos() <= pos && pos < f.End() {
			return f.Name.Name
		}
	}
	return ""
}

func TestSleepsAreFound(t *testing.T) {
	const source = `package p
func a() { time.Sleep(1) }
func b() { for !ok() { time.Sleep(1) } }
func c() { for ; ; time.Sleep(1) { } }
func d() { <-time.After(1) }
func e() { select { case <-time.After(1): case <-x: } }
func f() { for range 3 { g(func() { time.Sleep(1) }) } }
`
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p_test.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, pos := range sleeps(file) {
		got = append(got, enclosing(file, pos))
	}
	if strings.Join(got, " ") != "a d f" {
		t.Errorf("found in %v", got)
	}
}
