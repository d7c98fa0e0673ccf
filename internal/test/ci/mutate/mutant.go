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

// mutant is a source file with one change.
type mutant struct {
	file     string
	text     string // content of the unchanged file
	from, to int    // offsets in text of the first byte that is replaced and of the byte after the last
	with     string
}

// apply returns the content of the changed file.
func (m mutant) apply() string { return m.text[:m.from] + m.with + m.text[m.to:] }

// String returns the change as file:line, old text and new text.
func (m mutant) String() string {
	short := func(s string) string { return fmt.Sprintf("%.80s", strings.Join(strings.Fields(s), " ")) }
	return fmt.Sprintf("%s:%d: `%s` -> `%s`", m.file, 1+strings.Count(m.text[:m.from], "\n"), short(m.text[m.from:m.to]), short(m.with))
}

// mutantsOf returns all mutants of a file, in the order of their position.
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
	f := &finder{files: files, path: path, text: string(text)}
	ast.Inspect(parsed, f.look)
	return f.found, nil
}

// finder collects the mutants of a file.
type finder struct {
	files *token.FileSet
	path  string
	text  string
	found []mutant
}

// swaps maps each operator to the operators that a programmer could write
// instead by mistake.
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
		return false // no mutants in imports and in types of fields and parameters
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
	case *ast.ExprStmt, *ast.DeferStmt:
		f.replace(n, "")
	case *ast.AssignStmt:
		f.swap(n.TokPos, n.Tok)
		f.dropAssignment(n)
	case *ast.ReturnStmt:
		if len(n.Results) > 0 && f.of(n.Results[len(n.Results)-1]) == "err" {
			f.replace(n.Results[len(n.Results)-1], "nil")
		}
	}
	return true
}

// dropAssignment adds a mutant in which the assignment n is missing, unless n
// declares variables. The mutant still evaluates the right side, so that the
// compiler does not complain about unused variables. If all targets are blank,
// the mutant drops the right side too, because nothing else would change.
func (f *finder) dropAssignment(n *ast.AssignStmt) {
	blanks := "_"
	if n.Tok == token.ASSIGN {
		blanks += strings.Repeat(", _", len(n.Lhs)-1)
	}
	switch {
	case n.Tok == token.DEFINE:
	case !slices.ContainsFunc(n.Lhs, func(to ast.Expr) bool { return f.of(to) != "_" }):
		f.replace(n, "")
	default:
		f.replace(n, blanks+" = "+f.text[f.at(n.Rhs[0].Pos()):f.at(n.End())])
	}
}

func (f *finder) swap(at token.Pos, op token.Token) {
	for _, other := range swaps[op] {
		f.found = append(f.found, mutant{f.path, f.text, f.at(at), f.at(at) + len(op.String()), other.String()})
	}
}

func (f *finder) replace(n ast.Node, with string) {
	f.found = append(f.found, mutant{f.path, f.text, f.at(n.Pos()), f.at(n.End()), with})
}

// of returns the source text of a node.
func (f *finder) of(n ast.Node) string { return f.text[f.at(n.Pos()):f.at(n.End())] }

func (f *finder) at(p token.Pos) int { return f.files.PositionFor(p, false).Offset }
