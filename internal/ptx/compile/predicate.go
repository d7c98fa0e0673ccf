package compile

import (
	"slices"

	"github.com/plx-run/plx/internal/ptx/machine"
	"github.com/plx-run/plx/internal/ptx/scalar"
	"github.com/plx-run/plx/internal/ptx/syntax"
)

var word, _ = scalar.TypeOf("b32")

var joins = map[string]machine.Join{"and": machine.And, "or": machine.Or, "xor": machine.Xor}

// written returns a predicate that the instruction writes.
func (s site) written(o syntax.Operand) (int, error) {
	if o.Kind != syntax.Name || o.Negate {
		return 0, s.unknown()
	}
	t, err := s.predicate(o)
	return t.P, err
}

// compare builds setp.
func compare(s site) (machine.Step, error) {
	f, t, join, err := scalar.Compare(s.Opcode, s.b.settings.Scalar)
	if err != nil {
		return nil, err
	}
	c := &machine.Compare{Opposite: -1, F: f, Join: joins[join]}
	if len(s.Operands) != 3 && c.Join == machine.First || len(s.Operands) != 4 && c.Join != machine.First {
		return nil, s.unknown()
	}
	results := s.Operands[:1]
	if results[0].Kind == syntax.Pair {
		results = results[0].Parts
		if c.Opposite, err = s.written(results[1]); err != nil {
			return nil, err
		}
	}
	if c.D, err = s.written(results[0]); err != nil {
		return nil, err
	}
	if c.Join != machine.First {
		if c.Third, err = s.predicate(s.Operands[3]); err != nil {
			return nil, err
		}
	}
	if c.A, err = s.register(1, t); err != nil {
		return nil, err
	}
	c.B, err = s.register(2, t)
	return c, err
}

// selection builds selp.
func selection(s site) (machine.Step, error) {
	if len(s.Operands) != 4 || len(s.Opcode) != 2 {
		return nil, s.unknown()
	}
	t, ok := scalar.TypeOf(s.Opcode[1])
	if !ok {
		return nil, s.unknown()
	}
	d, err := s.target(s.Operands[0], t)
	if err != nil {
		return nil, err
	}
	c := &machine.Select{D: d.index}
	if c.A, err = s.register(1, t); err != nil {
		return nil, err
	}
	if c.B, err = s.register(2, t); err != nil {
		return nil, err
	}
	c.By, err = s.predicate(s.Operands[3])
	return c, err
}

// logic builds and.pred, or.pred, xor.pred and not.pred.
func logic(s site) (machine.Step, error) {
	join, two := joins[s.Opcode[0]]
	if two && len(s.Operands) != 3 || !two && len(s.Operands) != 2 {
		return nil, s.unknown()
	}
	c := &machine.Logic{Join: join}
	var err error
	if c.D, err = s.written(s.Operands[0]); err != nil {
		return nil, err
	}
	if c.A, err = s.predicate(s.Operands[1]); err != nil {
		return nil, err
	}
	c.B, err = s.predicate(s.Operands[len(s.Operands)-1])
	if !two {
		c.A.Negate = !c.A.Negate
	}
	return c, err
}

// copyPredicate builds mov.pred.
func copyPredicate(s site) (machine.Step, error) {
	d, err := s.written(s.Operands[0])
	if err != nil {
		return nil, err
	}
	a, err := s.predicate(s.Operands[1])
	return &machine.Copy{D: d, A: a}, err
}

var directions = map[string]machine.Direction{"up": machine.Up, "down": machine.Down, "bfly": machine.Butterfly, "idx": machine.Index}

// shuffle builds shfl.sync.
func shuffle(s site) (machine.Step, error) {
	if len(s.Opcode) != 4 || s.Opcode[1] != "sync" || s.Opcode[3] != "b32" || len(s.Operands) != 5 {
		return nil, s.unknown()
	}
	mode, ok := directions[s.Opcode[2]]
	if !ok {
		return nil, s.unknown()
	}
	f := &machine.Shuffle{Mode: mode, Inside: -1}
	to := s.Operands[0]
	var err error
	if to.Kind == syntax.Pair {
		if f.Inside, err = s.written(to.Parts[1]); err != nil {
			return nil, err
		}
		to = to.Parts[0]
	}
	d, err := s.target(to, word)
	if err != nil {
		return nil, err
	}
	f.D = d.index
	for i, r := range []*int{&f.A, &f.B, &f.C, &f.Mask} {
		if *r, err = s.register(i+1, word); err != nil {
			return nil, err
		}
	}
	return f, nil
}

var questions = map[string]machine.Question{"all": machine.All, "any": machine.Any, "uni": machine.Uniform, "ballot": machine.Ballot}

// vote builds vote.sync, match.any.sync and activemask.
func vote(s site) (machine.Step, error) {
	v := &machine.Vote{}
	op := s.Opcode
	shape := len(op) == 4 && len(s.Operands) == 3
	asks := ""
	switch {
	case op[0] == "activemask" && slices.Equal(op[1:], []string{"b32"}) && len(s.Operands) == 1:
		d, err := s.target(s.Operands[0], word)
		v.D = d.index
		return v, err
	case op[0] == "match" && shape && op[1] == "any" && op[2] == "sync":
		return match(s)
	case op[0] == "vote" && shape && op[1] == "sync":
		asks = op[2]
	}
	var known bool
	if v.Ask, known = questions[asks]; !known || (asks == "ballot") != (op[3] == "b32") {
		return nil, s.unknown()
	}
	var err error
	if asks == "ballot" {
		var d slot
		d, err = s.target(s.Operands[0], word)
		v.D = d.index
	} else {
		v.D, err = s.written(s.Operands[0])
	}
	if err != nil {
		return nil, err
	}
	if v.By, err = s.predicate(s.Operands[1]); err != nil {
		return nil, err
	}
	v.Mask, err = s.register(2, word)
	return v, err
}

func match(s site) (machine.Step, error) {
	t, ok := scalar.TypeOf(s.Opcode[3])
	if !ok || t.Class != 'b' || t.Bits < 32 {
		return nil, s.unknown()
	}
	v := &machine.Vote{Ask: machine.Same}
	d, err := s.target(s.Operands[0], word)
	if err != nil {
		return nil, err
	}
	v.D = d.index
	if v.A, err = s.register(1, t); err != nil {
		return nil, err
	}
	v.Mask, err = s.register(2, word)
	return v, err
}
