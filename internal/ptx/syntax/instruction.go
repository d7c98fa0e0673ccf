package syntax

import (
	"math"
	"strconv"
	"strings"
)

const mostOperands = 64 // of an instruction or of a list

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// instruction reads a label, or an instruction with its guard.
func (f *Function) instruction(p *parser, s *scopes) error {
	st := Statement{Line: p.tok.line}
	if p.tok.text == "@" {
		if err := st.guard(p, s); err != nil {
			return err
		}
	}
	name, err := p.word()
	if err != nil {
		return err
	}
	if p.tok.text == ":" && st.Guard == "" {
		f.Body = append(f.Body, Statement{Label: name, Line: st.Line})
		return p.advance()
	}
	if isDigit(name[0]) || name[0] == '.' || name[0] == '%' {
		return &Error{st.Line, "unknown instruction " + quote(name)}
	}
	st.Opcode = strings.Split(name, ".")
	if p.tok.text != ";" {
		if st.Operands, err = p.operands(s, ";", 0); err != nil {
			return err
		}
	}
	f.Body = append(f.Body, st)
	return p.expect(";")
}

// guard reads @%p or @!%p.
func (st *Statement) guard(p *parser, s *scopes) error {
	if err := p.advance(); err != nil {
		return err
	}
	var err error
	if st.Negate, err = p.accept("!"); err != nil {
		return err
	}
	name, err := p.word()
	st.Guard = s.resolve(name)
	return err
}

// operands reads operands up to an end, which it leaves.
func (p *parser) operands(s *scopes, end string, depth int) ([]Operand, error) {
	var all []Operand
	for {
		if len(all) > 0 {
			if p.tok.text == end {
				return all, nil
			}
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		if len(all) == 0 && p.tok.text == end && end == ")" {
			return nil, nil
		}
		o, err := p.operand(s, depth)
		if err != nil {
			return nil, err
		}
		if all = append(all, o); len(all) > mostOperands {
			return nil, p.wrong("too many operands")
		}
	}
}

// operand reads one operand. Braces and parentheses do not nest.
func (p *parser) operand(s *scopes, depth int) (Operand, error) {
	text := p.tok.text
	switch {
	case text == "[":
		return p.address(s)
	case (text == "{" || text == "(") && depth == 0:
		o := Operand{Kind: Vector}
		end := "}"
		if text == "(" {
			o.Kind, end = List, ")"
		}
		if err := p.advance(); err != nil {
			return o, err
		}
		var err error
		if o.Parts, err = p.operands(s, end, depth+1); err != nil {
			return o, err
		}
		return o, p.expect(end)
	case text == "-" || text != "" && isDigit(text[0]):
		return p.immediate()
	}
	return p.name(s)
}

// name reads a name, !name or name|name.
func (p *parser) name(s *scopes) (Operand, error) {
	negate, err := p.accept("!")
	if err != nil {
		return Operand{}, err
	}
	name, err := p.word()
	if err != nil {
		return Operand{}, err
	}
	o := Operand{Kind: Name, Name: s.resolve(name), Negate: negate}
	if p.tok.text != "|" {
		return o, nil
	}
	second, err := p.after()
	if err != nil {
		return o, err
	}
	return Operand{Kind: Pair, Parts: []Operand{o, {Kind: Name, Name: s.resolve(second)}}}, nil
}

// address reads [name], [name+offset] or [offset].
func (p *parser) address(s *scopes) (Operand, error) {
	o := Operand{Kind: Address}
	if err := p.advance(); err != nil {
		return o, err
	}
	if p.tok.text != "" && isWord(p.tok.text[0]) && !isDigit(p.tok.text[0]) {
		name, err := p.word()
		if err != nil {
			return o, err
		}
		o.Name = s.resolve(name)
		if o.Offset, err = p.offset(); err != nil {
			return o, err
		}
		return o, p.expect("]")
	}
	n, err := p.immediate()
	if err != nil {
		return o, err
	}
	if n.Kind != Integer {
		return o, p.wrong("an address is an integer")
	}
	o.Offset = int64(n.Bits)
	return o, p.expect("]")
}

// offset reads +n, -n or +-n if one is next.
func (p *parser) offset() (int64, error) {
	if p.tok.text != "+" && p.tok.text != "-" {
		return 0, nil
	}
	if p.tok.text == "+" {
		if err := p.advance(); err != nil {
			return 0, err
		}
	}
	n, err := p.immediate()
	if err != nil {
		return 0, err
	}
	if n.Kind != Integer {
		return 0, p.wrong("an offset is an integer")
	}
	return int64(n.Bits), nil
}

// immediate reads a number.
func (p *parser) immediate() (Operand, error) {
	minus, err := p.accept("-")
	if err != nil {
		return Operand{}, err
	}
	o, ok := literal(p.tok.text)
	if !ok {
		return o, p.wrong("expected a number, found " + quote(p.tok.text))
	}
	if minus {
		o = o.minus()
	}
	return o, p.advance()
}

func (o Operand) minus() Operand {
	switch o.Kind {
	case Float32:
		o.Bits ^= 1 << 31
	case Float64:
		o.Bits ^= 1 << 63
	default:
		o.Bits = -o.Bits
	}
	return o
}

// literal is a number as it is written.
func literal(text string) (Operand, bool) {
	if len(text) == 10 && (text[:2] == "0f" || text[:2] == "0F") {
		bits, err := strconv.ParseUint(text[2:], 16, 32)
		return Operand{Kind: Float32, Bits: bits}, err == nil
	}
	if len(text) == 18 && (text[:2] == "0d" || text[:2] == "0D") {
		bits, err := strconv.ParseUint(text[2:], 16, 64)
		return Operand{Kind: Float64, Bits: bits}, err == nil
	}
	if text == "" || !isDigit(text[0]) {
		return Operand{}, false
	}
	if bits, err := strconv.ParseUint(strings.TrimSuffix(text, "U"), 0, 64); err == nil {
		return Operand{Kind: Integer, Bits: bits}, true
	}
	v, err := strconv.ParseFloat(text, 64)
	return Operand{Kind: Float64, Bits: math.Float64bits(v)}, err == nil && strings.Contains(text, ".")
}

// As returns the bits of a number as a value of a type, such as f32 or s16.
func (o Operand) As(typ string) uint64 {
	switch {
	case typ == "f32" && o.Kind == Float64:
		return uint64(math.Float32bits(float32(math.Float64frombits(o.Bits))))
	case typ == "f64" && o.Kind == Float32:
		return math.Float64bits(float64(math.Float32frombits(uint32(o.Bits))))
	}
	if w := Width(typ); w > 0 && w < 8 {
		return o.Bits & (1<<(8*w) - 1)
	}
	return o.Bits
}
