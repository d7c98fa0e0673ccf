package importtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// A source is one package of the module without its tests, with types.
type source struct {
	*packages.Package
	path string // within the module, "main" for the root
}

// load returns the module's packages, type-checked for this platform without
// cgo. Test files and files for other platforms are left out.
func load(t *testing.T, patterns ...string) []source {
	t.Helper()
	found, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedSyntax |
			packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
		Dir: root,
		Env: append(os.Environ(), "CGO_ENABLED=0"),
	}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	var all []source
	for _, p := range found {
		for _, e := range p.Errors {
			t.Fatal(e)
		}
		path, ours := within(p.PkgPath)
		if ours && len(p.GoFiles) > 0 {
			all = append(all, source{p, path})
		}
	}
	return all
}

// file is the base name of the file that holds pos.
func (s source) file(pos token.Pos) string { return filepath.Base(s.Fset.Position(pos).Filename) }

// codeLines counts the lines of a file that hold more than blanks and comments.
func codeLines(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	set := token.NewFileSet()
	file := set.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines), nil
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		first := file.Line(pos)
		for line := first; line <= first+strings.Count(literal, "\n"); line++ {
			lines[line] = true
		}
	}
}

// code returns the number of files of the package that are not tests, those
// for other platforms included, and their code lines.
func (s source) code() (files, lines int, err error) {
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(s.GoFiles[0]), "*.go"))
	if err != nil {
		return 0, 0, err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		n, err := codeLines(path)
		if err != nil {
			return 0, 0, err
		}
		files, lines = files+1, lines+n
	}
	return files, lines, nil
}

// named is the defined type behind t or behind a pointer to it, or nil.
func named(t types.Type) *types.TypeName {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	if n, ok := t.(*types.Named); ok {
		return n.Origin().Obj()
	}
	return nil
}

// owner is the type whose method fn counts as: its receiver's, or that of its
// first parameter if this is a pointer to a type of the package.
func (s source) owner(fn *types.Func) *types.TypeName {
	signature := fn.Signature()
	if r := signature.Recv(); r != nil {
		return named(r.Type())
	}
	if signature.Params().Len() == 0 {
		return nil
	}
	first := signature.Params().At(0).Type()
	if _, pointer := types.Unalias(first).(*types.Pointer); !pointer {
		return nil
	}
	if t := named(first); t != nil && t.Pkg() == s.Types {
		return t
	}
	return nil
}

// methods lists, by type, the methods, the functions that count as such and
// the methods of the module's types that it promotes by embedding: name to file.
func (s source) methods() map[*types.TypeName]map[string]string {
	all := map[*types.TypeName]map[string]string{}
	add := func(t *types.TypeName, name, file string) {
		if all[t] == nil {
			all[t] = map[string]string{}
		}
		all[t][name] = file
	}
	for _, file := range s.Syntax {
		for _, function := range functions(file) {
			fn := s.TypesInfo.Defs[function.Name].(*types.Func)
			if t := s.owner(fn); t != nil {
				add(t, fn.Name(), s.file(fn.Pos()))
			}
		}
	}
	for _, name := range s.Types.Scope().Names() {
		t, ok := s.Types.Scope().Lookup(name).(*types.TypeName)
		if !ok || types.IsInterface(t.Type()) || t.IsAlias() {
			continue
		}
		set := types.NewMethodSet(types.NewPointer(t.Type()))
		for i := range set.Len() {
			m := set.At(i)
			if m.Obj().Pkg() == nil || len(m.Index()) == 1 {
				continue
			}
			if _, ours := within(m.Obj().Pkg().Path()); ours {
				add(t, m.Obj().Name(), s.file(m.Obj().Pos()))
			}
		}
	}
	return all
}

// circles returns the groups of files that refer to each other in circles:
// the strongly connected parts, of more than one file, of the graph with an
// arrow from a file to each file that declares a name it uses, and from the
// file of a type to each file that holds methods of it.
func (s source) circles() [][]string {
	graph := map[string]map[string]bool{}
	for _, file := range s.Syntax {
		graph[s.file(file.Pos())] = map[string]bool{}
	}
	for _, file := range s.Syntax {
		from := s.file(file.Pos())
		for _, function := range functions(file) {
			fn := s.TypesInfo.Defs[function.Name].(*types.Func)
			if r := fn.Signature().Recv(); r != nil {
				if home := s.file(named(r.Type()).Pos()); home != from {
					graph[home][from] = true
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			used := s.TypesInfo.Uses[id]
			if used == nil || used.Pkg() != s.Types || !used.Pos().IsValid() || !lasting(used) {
				return true
			}
			if to := s.file(used.Pos()); to != from {
				graph[from][to] = true
			}
			return true
		})
	}
	return connected(graph)
}

// lasting reports whether an object is declared at package level, or is a
// field or method.
func lasting(o types.Object) bool {
	if o.Parent() == o.Pkg().Scope() {
		return true
	}
	switch o := o.(type) {
	case *types.Var:
		return o.IsField()
	case *types.Func:
		return o.Signature().Recv() != nil
	}
	return false
}

// connected returns the strongly connected parts of more than one node, the
// largest first, by Tarjan's algorithm (SIAM J. Comput. 1, 1972).
func connected(graph map[string]map[string]bool) [][]string {
	var parts [][]string
	index, low, on := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	var visit func(v string)
	visit = func(v string) {
		index[v], low[v], on[v] = len(index)+1, len(index)+1, true
		stack = append(stack, v)
		for _, w := range slices.Sorted(maps.Keys(graph[v])) {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if on[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		at := slices.Index(stack, v)
		part := slices.Clone(stack[at:])
		stack = stack[:at]
		for _, w := range part {
			on[w] = false
		}
		if len(part) > 1 {
			slices.Sort(part)
			parts = append(parts, part)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(graph)) {
		if index[v] == 0 {
			visit(v)
		}
	}
	slices.SortStableFunc(parts, func(a, b []string) int { return cmp.Compare(len(b), len(a)) })
	return parts
}

// callbacks lists what a package asks its users to hand it as functions:
// exported parameters and fields of a function type. Iterators are no callbacks.
func (s source) callbacks() []string {
	var all []string
	handed := func(where string, v *types.Var) {
		if isCallback(v.Type()) {
			all = append(all, where)
		}
	}
	signature := func(where string, fn *types.Func) {
		for p := range fn.Signature().Params().Variables() {
			handed(where+"("+p.Name()+")", p)
		}
	}
	for _, name := range s.Types.Scope().Names() {
		if !ast.IsExported(name) {
			continue
		}
		switch o := s.Types.Scope().Lookup(name).(type) {
		case *types.Func:
			signature(name, o)
		case *types.TypeName:
			n, ok := o.Type().(*types.Named)
			if !ok {
				continue
			}
			for m := range n.Methods() {
				if m.Exported() {
					signature(name+"."+m.Name(), m)
				}
			}
			if st, ok := n.Underlying().(*types.Struct); ok {
				for f := range st.Fields() {
					if f.Exported() {
						handed(name+"."+f.Name(), f)
					}
				}
			}
		}
	}
	return all
}

func isCallback(t types.Type) bool {
	if n := named(t); n != nil && n.Pkg() != nil && n.Pkg().Path() == "iter" {
		return false
	}
	_, is := t.Underlying().(*types.Signature)
	return is
}

// wideInterfaces lists interfaces of more methods than most.
func (s source) wideInterfaces(most int) []string {
	var all []string
	for _, name := range s.Types.Scope().Names() {
		o, ok := s.Types.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		if i, ok := o.Type().Underlying().(*types.Interface); ok && i.NumMethods() > most {
			all = append(all, fmt.Sprintf("interface %s has %d methods", name, i.NumMethods()))
		}
	}
	return all
}
