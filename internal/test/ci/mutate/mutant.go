package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
)

// mutant is a file of a package with one change.
type mutant struct {
	file     string
	line     int
	text     []byte // of the file, unchanged
	from, to int    // what is replaced, in bytes
	with     string
}

// apply returns the changed file.
func (m mutant) apply() []byte {
	return slices.Concat(m.text[:m.from], []byte(m.with), m.text[m.to:])
}

// String says where the change is, and what becomes of what.
func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s -> %s", m.file, m.line, short(string(m.text[m.from:m.to])), short(m.with))
}

// short is a piece of a program on one line.
func short(s string) string {
	words := strings.Join(strings.Fields(s), " ")
	if r := []rune(words); len(r) > 80 {
		words = string(r[:77]) + "..."
	}
	return "`" + words + "`"
}

// mutantsOf are all mutants of a file, in the order of the text.
func mutantsOf(path string) ([]mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{files: files, path: path, text: text}
	ast.Inspect(parsed, f.look)
	return f.found, nil
}

// finder finds the places of a file that can be changed.
type finder struct {
	files *token.FileSet
	path  string
	text  []byte
	found []mutant
}

// swaps are the operators that a mistake could put in place of another one.
var swaps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.AND: {token.OR}, token.OR: {token.AND}, token.SHL: {token.SHR}, token.SHR: {token.SHL},
	token.INC: {token.DEC}, token.DEC: {token.INC}, token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN},
	token.BREAK: {token.CONTINUE}, token.CONTINUE: {token.BREAK},
}

func (f *finder) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.Field:
		return false // imports, and types of fields and parameters
	case *ast.BinaryExpr:
		f.swap(n.OpPos, n.Op)
		if n.Op == token.LAND || n.Op == token.LOR {
			f.replace(n, f.of(n.X))
			f.replace(n, f.of(n.Y))
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.replace(n, f.of(n.X))
		}
	case *ast.IfStmt:
		f.replace(n.Cond, "!("+f.of(n.Cond)+")")
		f.replace(n.Cond, "false && ("+f.of(n.Cond)+")")
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 0, 62); n.Kind == token.INT && err == nil {
			f.replace(n, strconv.FormatInt(v+1, 10))
		}
	case *ast.IncDecStmt:
		f.swap(n.TokPos, n.Tok)
	case *ast.BranchStmt:
		f.swap(n.TokPos, n.Tok)
	case *ast.ExprStmt:
		f.drop(n)
	case *ast.DeferStmt:
		f.drop(n)
	case *ast.AssignStmt:
		f.assignment(n)
	case *ast.ReturnStmt:
		f.dropError(n)
	}
	return true
}

// assignment drops one that declares nothing. What it read is still read, so that the
// compiler finds no variable that is not used. If it assigns to blanks alone, nothing would
// change: that is dropped with what it calls.
func (f *finder) assignment(n *ast.AssignStmt) {
	f.swap(n.TokPos, n.Tok)
	if n.Tok == token.DEFINE {
		return
	}
	if !slices.ContainsFunc(n.Lhs, func(to ast.Expr) bool { return f.of(to) != "_" }) {
		f.drop(n)
		return
	}
	blanks := slices.Repeat([]string{"_"}, len(n.Lhs))
	if n.Tok != token.ASSIGN {
		blanks = blanks[:1]
	}
	values := string(f.text[f.at(n.Rhs[0].Pos()):f.at(n.End())])
	f.replace(n, strings.Join(blanks, ", ")+" = "+values)
}

// dropError drops the error that is returned.
func (f *finder) dropError(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	if name, ok := last.(*ast.Ident); ok && name.Name == "err" {
		f.replace(last, "nil")
	}
}

func (f *finder) swap(at token.Pos, op token.Token) {
	for _, other := range swaps[op] {
		from := f.at(at)
		f.add(from, from+len(op.String()), other.String())
	}
}

func (f *finder) drop(n ast.Node)                 { f.replace(n, "") }
func (f *finder) replace(n ast.Node, with string) { f.add(f.at(n.Pos()), f.at(n.End()), with) }

func (f *finder) add(from, to int, with string) {
	line := 1 + strings.Count(string(f.text[:from]), "\n")
	f.found = append(f.found, mutant{file: f.path, line: line, text: f.text, from: from, to: to, with: with})
}

// of is the text of a node.
func (f *finder) of(n ast.Node) string { return string(f.text[f.at(n.Pos()):f.at(n.End())]) }

func (f *finder) at(p token.Pos) int { return f.files.PositionFor(p, false).Offset }
