package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/ptx/device"
	"github.com/plx-run/plx/internal/ptx/machine"
	"github.com/plx-run/plx/internal/ptx/scalar"
	"github.com/plx-run/plx/internal/ptx/syntax"
)

// choose returns the step of an instruction.
func choose(s site) (machine.Step, error) {
	switch s.Opcode[0] {
	case "mov":
		return move(s)
	case "ld", "ldu":
		return load(s)
	case "st":
		return store(s)
	case "atom", "red":
		return update(s)
	case "setp":
		return compare(s)
	case "selp":
		return selection(s)
	case "cvta":
		return window(s)
	case "bra":
		return branch(s)
	case "ret":
		return leave(s)
	case "exit":
		return machine.Leave{}, nil
	case "trap":
		return machine.Trap{}, nil
	case "bar", "barrier":
		return barrier(s)
	case "membar", "fence":
		return machine.Fence{}, nil
	case "shfl":
		return shuffle(s)
	case "vote", "activemask", "match":
		return vote(s)
	}
	if len(s.Opcode) == 2 && s.Opcode[1] == "pred" && slices.Contains([]string{"and", "or", "xor", "not"}, s.Opcode[0]) {
		return logic(s)
	}
	return arithmetic(s)
}

// unknown is the error of an instruction, or of a form of one, that nobody knows.
func (s site) unknown() error {
	return fmt.Errorf("unknown instruction %s with %d operands", strings.Join(s.Opcode, "."), len(s.Operands))
}

// arithmetic builds a step of an operation of package scalar.
func arithmetic(s site) (machine.Step, error) {
	op, err := scalar.Find(s.Opcode, s.b.settings.Scalar)
	if err != nil {
		return nil, err
	}
	if len(s.Operands) != 1+len(op.Args) {
		return nil, s.unknown()
	}
	d, err := s.target(s.Operands[0], op.Result)
	if err != nil {
		return nil, err
	}
	var args []int
	for i, t := range op.Args {
		r, err := s.register(i+1, t)
		if err != nil {
			return nil, err
		}
		args = append(args, r)
	}
	if f := op.F; op.Result.Class == 's' && op.Result.Bits < d.bits {
		op.F = func(a, b, c, e uint64) uint64 { return machine.SignExtend(f(a, b, c, e), op.Result.Bits, d.bits) }
	}
	return machine.NewApply(d.index, args, op), nil
}

// move builds mov: of a register, predicate, number, address or vector.
func move(s site) (machine.Step, error) {
	if len(s.Operands) != 2 || len(s.Opcode) != 2 {
		return nil, s.unknown()
	}
	if s.Opcode[1] == "pred" {
		return copyPredicate(s)
	}
	t, ok := scalar.TypeOf(s.Opcode[1])
	if !ok || t.Bits == 8 {
		return nil, s.unknown()
	}
	to, from := s.Operands[0], s.Operands[1]
	if to.Kind == syntax.Vector || from.Kind == syntax.Vector {
		return pack(s, t)
	}
	d, err := s.target(to, t)
	if err != nil {
		return nil, err
	}
	a, err := s.value(from, t)
	return &machine.Move{D: d.index, A: a}, err
}

// pack builds mov between a register and a vector of two or four.
func pack(s site, t scalar.Type) (machine.Step, error) {
	p := &machine.Pack{Split: s.Operands[0].Kind == syntax.Vector}
	vector, other := s.Operands[1], s.Operands[0]
	if p.Split {
		vector, other = other, vector
	}
	n := len(vector.Parts)
	if n != 2 && n != 4 || t.Bits/n < 16 {
		return nil, s.unknown()
	}
	p.Bits = t.Bits / n
	part, _ := scalar.TypeOf(fmt.Sprintf("b%d", p.Bits))
	read := func(o syntax.Operand, t scalar.Type) (int, error) { return s.value(o, t) }
	write := func(o syntax.Operand, t scalar.Type) (int, error) {
		d, err := s.target(o, t)
		return d.index, err
	}
	ofWhole, ofPart := write, read
	if p.Split {
		ofWhole, ofPart = read, write
	}
	var err error
	if p.Whole, err = ofWhole(other, t); err != nil {
		return nil, err
	}
	for _, o := range vector.Parts {
		r, err := ofPart(o, part)
		if err != nil {
			return nil, err
		}
		p.Parts = append(p.Parts, r)
	}
	return p, nil
}

// window builds cvta: between an address of a state space and a generic one.
func window(s site) (machine.Step, error) {
	parts := s.Opcode[1:]
	to := len(parts) > 0 && parts[0] == "to"
	if to {
		parts = parts[1:]
	}
	if len(parts) != 2 || len(s.Operands) != 2 || parts[1] != "u64" {
		return nil, s.unknown()
	}
	base, known := map[string]uint64{"global": 0, "const": 0, "shared": device.SharedWindow, "local": device.LocalWindow}[parts[0]]
	if !known {
		return nil, s.unknown()
	}
	if to {
		base = -base
	}
	t, _ := scalar.TypeOf("u64")
	d, err := s.target(s.Operands[0], t)
	if err != nil {
		return nil, err
	}
	a, err := s.register(1, t)
	return machine.NewApply(d.index, []int{a}, scalar.Operation{F: func(a, _, _, _ uint64) uint64 { return a + base }}), err
}

func branch(s site) (machine.Step, error) {
	if len(s.Operands) != 1 || s.Operands[0].Kind != syntax.Name {
		return nil, s.unknown()
	}
	return s.body.jump(s.Operands[0].Name, s.Line), nil
}

// leave builds ret: it ends a kernel's thread, or jumps behind the function.
func leave(s site) (machine.Step, error) {
	if s.body.entry {
		return machine.Leave{}, nil
	}
	return s.body.leave(), nil
}

// barrier builds a barrier of the whole block, or of lanes of a warp.
func barrier(s site) (machine.Step, error) {
	name := strings.Join(s.Opcode, ".")
	if name == "bar.warp.sync" && len(s.Operands) == 1 {
		mask, err := s.register(0, word)
		return &machine.Meeting{Members: machine.Members{Mask: mask}}, err
	}
	if !slices.Contains([]string{"bar.sync", "barrier.sync", "barrier.sync.aligned"}, name) {
		return nil, s.unknown()
	}
	if len(s.Operands) != 1 {
		return nil, fmt.Errorf("%s of a part of a block is refused", name)
	}
	return machine.Barrier{}, nil
}
