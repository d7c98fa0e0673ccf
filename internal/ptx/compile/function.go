package compile

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/internal/ptx/machine"
	"github.com/plx-run/plx/internal/ptx/syntax"
)

// A slot is a declared register's place.
type slot struct {
	index int
	pred  bool
	bits  int // of a register that is no predicate
}

// A body is one copy of a function in a program.
type body struct {
	function *syntax.Function
	entry    bool
	slots    map[string]slot
	labels   map[string]int
	local    map[string]int // variable in local memory: its offset
	sizes    map[string]int // of variables in local memory
	jumps    []fixup
	returns  []*machine.Jump // to the end of the copy
}

// A fixup is a jump whose label is not known yet.
type fixup struct {
	jump  *machine.Jump
	label string
	line  int
}

// copy appends a function's steps. bound has the places of its parameters if
// it is not the kernel.
func (b *builder) copy(f *syntax.Function, bound map[string]int) error {
	if slices.Contains(b.calls, f) {
		return &syntax.Error{Line: f.Line, What: "function " + f.Name + " calls itself"}
	}
	b.calls = append(b.calls, f)
	body := &body{function: f, entry: bound == nil, slots: map[string]slot{}, labels: map[string]int{}, local: map[string]int{}, sizes: map[string]int{}}
	if err := body.declare(b, bound); err != nil {
		return err
	}
	for _, st := range f.Body {
		if st.Label != "" {
			body.label(st.Label, len(b.code))
			continue
		}
		if err := b.statement(body, st); err != nil {
			return err
		}
	}
	b.calls = b.calls[:len(b.calls)-1]
	return body.link(len(b.code))
}

// statement appends one instruction.
func (b *builder) statement(body *body, st syntax.Statement) error {
	s := site{b, body, st}
	fail := func(err error) error { return &syntax.Error{Line: st.Line, What: err.Error()} }
	if len(b.code) >= mostLines {
		return fail(fmt.Errorf("the kernel has more than %d instructions", mostLines))
	}
	if b.registers > mostRegisters || b.predicates > mostRegisters {
		return fail(fmt.Errorf("the kernel has more than %d registers", mostRegisters))
	}
	guard := int32(-1)
	if st.Guard != "" {
		p, ok := body.slots[st.Guard]
		if !ok || !p.pred {
			return fail(fmt.Errorf("guard %q is no predicate", st.Guard))
		}
		guard = int32(p.index)
	}
	if st.Opcode[0] == "call" {
		return b.call(s, guard)
	}
	done, err := choose(s)
	if err != nil {
		return fail(err)
	}
	b.code = append(b.code, machine.Line{Step: done, Guard: guard, Negate: st.Negate, Source: int32(st.Line)})
	return nil
}

// declare gives registers and variables their places.
func (body *body) declare(b *builder, bound map[string]int) error {
	for _, r := range body.function.Registers {
		s := slot{pred: r.Type == "pred"}
		if s.pred {
			s.index = b.predicate()
		} else {
			s.index, s.bits = b.register(), 8*syntax.Width(r.Type)
		}
		body.slots[r.Name] = s
	}
	for _, v := range body.function.Variables {
		if v.Space == "shared" {
			continue
		}
		at, err := b.reserve(v)
		if err != nil {
			return err
		}
		body.local[v.Name], body.sizes[v.Name] = at, v.Size
	}
	for name, at := range bound {
		body.local[name] = at
	}
	return nil
}

func (body *body) label(name string, at int) { body.labels[name] = at }

// link gives the jumps their targets.
func (body *body) link(end int) error {
	for _, f := range body.jumps {
		at, ok := body.labels[f.label]
		if !ok {
			return &syntax.Error{Line: f.line, What: "no label " + f.label}
		}
		f.jump.To(at)
	}
	for _, j := range body.returns {
		j.To(end)
	}
	return nil
}

// call copies a device function: its parameters lie where the caller put them.
func (b *builder) call(s site, guard int32) error {
	fail := func(format string, args ...any) error {
		return &syntax.Error{Line: s.Line, What: fmt.Sprintf(format, args...)}
	}
	var lists [2][]syntax.Operand // results, arguments
	name := ""
	for _, o := range s.Operands {
		switch {
		case o.Kind == syntax.Name && name == "":
			name = o.Name
		case o.Kind == syntax.List && name == "":
			lists[0] = o.Parts
		case o.Kind == syntax.List:
			lists[1] = o.Parts
		default:
			return fail("calls through a register are refused")
		}
	}
	i := slices.IndexFunc(b.module.Functions, func(f *syntax.Function) bool { return f.Name == name && f.Defined && !f.Entry })
	if i < 0 {
		return fail("function %q is not defined here", name)
	}
	f := b.module.Functions[i]
	if len(f.Returns) != len(lists[0]) || len(f.Params) != len(lists[1]) {
		return fail("function %s has %d parameters and %d results", name, len(f.Params), len(f.Returns))
	}
	bound := map[string]int{}
	for n, formals := range [][]syntax.Variable{f.Returns, f.Params} {
		for j, v := range formals {
			at, ok := s.body.local[lists[n][j].Name]
			if !ok || s.body.sizes[lists[n][j].Name] < v.Size {
				return fail("argument %q of %s is no variable of %d bytes", lists[n][j].Name, name, v.Size)
			}
			bound[v.Name] = at
		}
	}
	if guard < 0 {
		return b.copy(f, bound)
	}
	over := &machine.Jump{}
	b.code = append(b.code, machine.Line{Step: over, Guard: guard, Negate: !s.Negate, Source: int32(s.Line)})
	if err := b.copy(f, bound); err != nil {
		return err
	}
	over.To(len(b.code))
	return nil
}

// jump returns a jump to a label.
func (body *body) jump(label string, line int) *machine.Jump {
	j := &machine.Jump{}
	body.jumps = append(body.jumps, fixup{j, label, line})
	return j
}

// leave returns a jump behind the copy.
func (body *body) leave() *machine.Jump {
	j := &machine.Jump{}
	body.returns = append(body.returns, j)
	return j
}
