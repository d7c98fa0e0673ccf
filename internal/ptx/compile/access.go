package compile

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/internal/ptx/machine"
	"github.com/plx-run/plx/internal/ptx/scalar"
	"github.com/plx-run/plx/internal/ptx/syntax"
)

var spaces = map[string]machine.Space{"global": machine.Global, "const": machine.Global, "shared": machine.Shared,
	"local": machine.Local, "param": machine.Param}

// hints are parts of ld, st, atom and red that change nothing here; strong ones
// keep accesses from racing with each other.
var (
	hints  = []string{"nc", "weak", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "cta", "gpu", "sys"}
	strong = []string{"volatile", "relaxed", "acquire", "release", "acq_rel"}
)

// memory builds what ld, st, atom and red share. It returns the parts of the
// opcode that it does not know.
func memory(s site, at int) (a machine.Access, rest []string, err error) {
	a.ID = s.b.access()
	for _, part := range s.Opcode[1:] {
		if in, ok := spaces[part]; ok {
			a.Space = in
		} else if slices.Contains(strong, part) {
			a.Strong = true
		} else if !slices.Contains(hints, part) {
			rest = append(rest, part)
		}
	}
	if at >= len(s.Operands) || s.Operands[at].Kind != syntax.Address {
		return a, nil, fmt.Errorf("%s has no address", s.Opcode[0])
	}
	o := s.Operands[at]
	a.Offset = uint64(o.Offset)
	_, own := s.body.local[o.Name]
	if a.Space == machine.Param && (own || !s.body.entry) {
		a.Space = machine.Local
	}
	if o.Name == "" {
		a.Base = s.b.constant(0)
		return a, rest, nil
	}
	if r, ok := s.body.slots[o.Name]; ok && !r.pred && r.bits >= 32 {
		a.Base = r.index
		return a, rest, nil
	}
	r, ok := s.symbol(o.Name)
	if !ok {
		return a, nil, fmt.Errorf("%q is not declared", o.Name)
	}
	a.Base = r
	return a, rest, nil
}

// elements reads .v2 or .v4 and the type of ld and st. It returns the operands
// of the elements.
func elements(s site, a machine.Access, rest []string, operand int) (machine.Access, []syntax.Operand, scalar.Type, error) {
	n := 1
	if len(rest) == 2 && (rest[0] == "v2" || rest[0] == "v4") {
		n = int(rest[0][1] - '0')
		rest = rest[1:]
	}
	if len(rest) != 1 || len(s.Operands) != 2 {
		return a, nil, scalar.Type{}, s.unknown()
	}
	t, ok := scalar.TypeOf(rest[0])
	if !ok {
		return a, nil, t, s.unknown()
	}
	a.Width = uint64(t.Bits / 8)
	a.Size = uint64(n) * a.Width
	parts := []syntax.Operand{s.Operands[operand]}
	if n > 1 {
		if parts[0].Kind != syntax.Vector || len(parts[0].Parts) != n || a.Size > 16 {
			return a, nil, t, fmt.Errorf("%s takes a vector of %d elements of at most 16 bytes", s.Opcode[0], n)
		}
		parts = parts[0].Parts
	}
	return a, parts, t, nil
}

func load(s site) (machine.Step, error) {
	a, rest, err := memory(s, 1)
	if err != nil {
		return nil, err
	}
	a, parts, t, err := elements(s, a, rest, 0)
	if err != nil {
		return nil, err
	}
	for _, o := range parts {
		d, err := s.target(o, t)
		if err != nil {
			return nil, err
		}
		a.Parts = append(a.Parts, d.index)
		if t.Class == 's' && d.bits > t.Bits {
			a.Extend = [2]int{t.Bits, d.bits}
		}
	}
	return &machine.Load{Access: a}, nil
}

func store(s site) (machine.Step, error) {
	a, rest, err := memory(s, 0)
	if err != nil {
		return nil, err
	}
	a, parts, t, err := elements(s, a, rest, 1)
	if err != nil {
		return nil, err
	}
	if a.Space == machine.Param {
		return nil, fmt.Errorf("st.param writes a parameter of the kernel")
	}
	for _, o := range parts {
		r, err := s.value(o, t)
		if err != nil {
			return nil, err
		}
		a.Parts = append(a.Parts, r)
	}
	return machine.NewStore(a), nil
}

// update builds atom and red.
func update(s site) (machine.Step, error) {
	first := 1 // operand with the address
	if s.Opcode[0] == "red" {
		first = 0
	}
	a, rest, err := memory(s, first)
	if err != nil {
		return nil, err
	}
	if len(rest) != 2 {
		return nil, s.unknown()
	}
	t, ok := scalar.TypeOf(rest[1])
	f := combine(rest[0], t, s.b.settings.Scalar)
	want := first + 2
	if rest[0] == "cas" {
		want++
	}
	if !ok || t.Bits < 32 || f == nil || len(s.Operands) != want || a.Space > machine.Shared {
		return nil, s.unknown()
	}
	a.Width, a.Size = uint64(t.Bits/8), uint64(t.Bits/8)
	d := slot{index: -1}
	if first == 1 {
		if d, err = s.target(s.Operands[0], t); err != nil {
			return nil, err
		}
	}
	b, err := s.register(first+1, t)
	if err != nil {
		return nil, err
	}
	c := b
	if rest[0] == "cas" {
		c, err = s.register(first+2, t)
	}
	return machine.NewUpdate(a, d.index, b, c, f), err
}

// combine returns what an atomic operation writes, or nil.
func combine(name string, t scalar.Type, settings scalar.Settings) scalar.Function {
	switch name {
	case "exch":
		return func(_, b, _, _ uint64) uint64 { return b }
	case "cas":
		return func(old, b, c, _ uint64) uint64 {
			if old == b {
				return c
			}
			return old
		}
	case "inc":
		return func(old, b, _, _ uint64) uint64 {
			if old >= b {
				return 0
			}
			return old + 1
		}
	case "dec":
		return func(old, b, _, _ uint64) uint64 {
			if old == 0 || old > b {
				return b
			}
			return old - 1
		}
	case "add", "min", "max", "and", "or", "xor":
		if op, err := scalar.Find([]string{name, t.Name}, settings); err == nil && t.Name != "" {
			return op.F
		}
	}
	return nil
}
