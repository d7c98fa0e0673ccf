package importtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// A function under inspection, to tell whose fields it may assign.
type assigner struct {
	s       source
	name    string
	self    *types.TypeName          // whose method it counts as, or nil
	made    map[*types.TypeName]bool // types that it returns, alone or many: it constructs them
	literal map[types.Object]bool    // variables that hold what a literal or new made here
}

// foreignAssignments lists assignments to a field of a type of the package
// by a function that is neither a method of the type nor constructs the value.
// A write to a map that is a field counts, a write to an array or slice does
// not, nor one to a configuration.
func (s source) foreignAssignments() []string {
	var all []string
	for _, file := range s.Syntax {
		for _, function := range functions(file) {
			if function.Body == nil {
				continue
			}
			a := s.assigner(function)
			ast.Inspect(function.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					a.define(n)
					for _, left := range n.Lhs {
						all = append(all, a.check(left)...)
					}
				case *ast.ValueSpec:
					a.declare(n)
				case *ast.IncDecStmt:
					all = append(all, a.check(n.X)...)
				}
				return true
			})
		}
	}
	return all
}

func (s source) assigner(function *ast.FuncDecl) *assigner {
	fn := s.TypesInfo.Defs[function.Name].(*types.Func)
	a := &assigner{s: s, name: fn.Name(), self: s.owner(fn), made: map[*types.TypeName]bool{}, literal: map[types.Object]bool{}}
	for r := range fn.Signature().Results().Variables() {
		if t := named(elements(r.Type())); t != nil {
			a.made[t] = true
		}
	}
	return a
}

// elements is what a slice, an array or a map holds, and t itself otherwise.
func elements(t types.Type) types.Type {
	switch u := t.Underlying().(type) {
	case *types.Slice:
		return u.Elem()
	case *types.Array:
		return u.Elem()
	case *types.Map:
		return u.Elem()
	}
	return t
}

// define notes variables that get a fresh value: a literal, its address, or new.
func (a *assigner) define(n *ast.AssignStmt) {
	if n.Tok != token.DEFINE || len(n.Lhs) != len(n.Rhs) {
		return
	}
	for i, left := range n.Lhs {
		if id, ok := left.(*ast.Ident); ok && isFresh(n.Rhs[i]) {
			a.literal[a.s.TypesInfo.Defs[id]] = true
		}
	}
}

func (a *assigner) declare(n *ast.ValueSpec) {
	for i, id := range n.Names {
		if len(n.Values) > i && isFresh(n.Values[i]) {
			a.literal[a.s.TypesInfo.Defs[id]] = true
		}
	}
}

func isFresh(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CompositeLit:
		return true
	case *ast.UnaryExpr:
		return e.Op == token.AND && isFresh(e.X)
	case *ast.CallExpr:
		id, ok := e.Fun.(*ast.Ident)
		return ok && id.Name == "new"
	}
	return false
}

// check returns a line if what is assigned is a field that another type owns.
func (a *assigner) check(left ast.Expr) []string {
	left = ast.Unparen(left)
	if index, ok := left.(*ast.IndexExpr); ok {
		if _, isMap := a.s.TypesInfo.TypeOf(index.X).Underlying().(*types.Map); !isMap {
			return nil
		}
		left = ast.Unparen(index.X)
	}
	selector, ok := left.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	selection := a.s.TypesInfo.Selections[selector]
	if selection == nil || selection.Kind() != types.FieldVal {
		return nil
	}
	holder := holds(selection)
	if holder == nil || holder.Pkg() == nil || isConfiguration(holder.Name()) || holder == a.self || a.made[holder] || a.isOwn(selector.X) {
		return nil
	}
	if _, ours := within(holder.Pkg().Path()); !ours {
		return nil
	}
	at := a.s.Fset.Position(selector.Pos())
	return []string{fmt.Sprintf("%s:%d: %s assigns %s.%s", a.s.file(selector.Pos()), at.Line, a.name, holder.Name(), selector.Sel.Name)}
}

// holds is the type that declares a selected field: the receiver's, or one
// that it embeds.
func holds(selection *types.Selection) *types.TypeName {
	t := named(selection.Recv())
	for _, i := range selection.Index()[:len(selection.Index())-1] {
		st, ok := t.Type().Underlying().(*types.Struct)
		if !ok {
			return nil
		}
		if t = named(st.Field(i).Type()); t == nil {
			return nil
		}
	}
	return t
}

// isOwn reports whether an expression is a value of the function's own: a
// local variable that is no pointer or that holds what was made here, or a
// field of such a value that is no pointer either.
func (a *assigner) isOwn(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v, ok := a.s.TypesInfo.ObjectOf(e).(*types.Var)
		if !ok || v.Parent() == a.s.Types.Scope() {
			return false
		}
		_, pointer := v.Type().Underlying().(*types.Pointer)
		return !pointer || a.literal[v]
	case *ast.SelectorExpr:
		_, pointer := a.s.TypesInfo.TypeOf(e).Underlying().(*types.Pointer)
		return !pointer && a.isOwn(e.X)
	}
	return false
}
