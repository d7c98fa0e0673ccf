package syntax

import (
	"strconv"
	"strings"
)

// Width is the size of a type in bytes, or zero for what is no type.
func Width(name string) int {
	switch name {
	case "b8", "u8", "s8":
		return 1
	case "b16", "u16", "s16", "f16":
		return 2
	case "b32", "u32", "s32", "f32":
		return 4
	case "b64", "u64", "s64", "f64":
		return 8
	}
	return 0
}

// variable reads a variable from its state space on, without what ends it.
func (p *parser) variable() (Variable, error) {
	v := Variable{Line: p.tok.line, Space: p.tok.text[1:]}
	if err := p.advance(); err != nil {
		return v, err
	}
	if p.tok.text == ".align" {
		var err error
		if v.Align, err = p.afterNumber(); err != nil {
			return v, err
		}
		if v.Align == 0 || v.Align&(v.Align-1) != 0 || v.Align > 128 {
			return v, p.wrong("an alignment must be a power of two, at most 128")
		}
	}
	v.Type = strings.TrimPrefix(p.tok.text, ".")
	width := Width(v.Type)
	if width == 0 {
		return v, p.wrong("unknown type " + quote(p.tok.text))
	}
	if v.Align == 0 {
		v.Align = width
	}
	var err error
	if v.Name, err = p.after(); err != nil {
		return v, err
	}
	if v.Size, err = p.extent(width); err != nil {
		return v, err
	}
	if p.tok.text == "=" {
		if err := p.advance(); err != nil {
			return v, err
		}
		err = v.initialiser(p)
	}
	return v, err
}

// extent reads the dimensions of an array and returns its bytes.
func (p *parser) extent(width int) (int, error) {
	size := width
	for p.tok.text == "[" {
		if err := p.advance(); err != nil {
			return 0, err
		}
		n := 0
		if p.tok.text != "]" {
			var err error
			if n, err = p.number(); err != nil {
				return 0, err
			}
		}
		if n > mostBytes/max(size, 1) {
			return 0, p.wrong("an array is larger than 256 MiB")
		}
		size *= n
		if err := p.expect("]"); err != nil {
			return 0, err
		}
	}
	return size, nil
}

// initialiser reads one value, or values in braces of any depth.
func (v *Variable) initialiser(p *parser) error {
	for depth := 0; ; {
		switch p.tok.text {
		case "{":
			depth++
		case "}":
			depth--
		case ",":
		default:
			value, err := p.value(v.Type)
			if err != nil {
				return err
			}
			if v.Init = append(v.Init, value); len(v.Init)*Width(v.Type) > v.Size {
				return p.wrong("more values than " + quote(v.Name) + " has elements")
			}
			if depth == 0 {
				return nil
			}
			continue
		}
		if depth < 0 || p.tok.text == "," && depth == 0 {
			return p.wrong("unexpected " + quote(p.tok.text))
		}
		if err := p.advance(); err != nil || depth == 0 {
			return err
		}
	}
}

// value reads one element: a number, a variable, or generic(variable), with an offset.
func (p *parser) value(typ string) (Value, error) {
	if p.tok.text != "-" && (p.tok.text == "" || !isWord(p.tok.text[0])) {
		return Value{}, p.wrong("expected a value, found " + quote(p.tok.text))
	}
	if p.tok.text == "-" || isDigit(p.tok.text[0]) {
		o, err := p.immediate()
		if err != nil {
			return Value{}, err
		}
		return Value{Bits: o.As(typ)}, nil
	}
	name, err := p.word()
	if err != nil {
		return Value{}, err
	}
	if name == "generic" && p.tok.text == "(" {
		if name, err = p.after(); err != nil {
			return Value{}, err
		}
		if err := p.expect(")"); err != nil {
			return Value{}, err
		}
	}
	offset, err := p.offset()
	return Value{Symbol: name, Bits: uint64(offset)}, err
}

// registers reads what follows .reg.
func (f *Function) registers(p *parser, s *scopes) error {
	typ, err := p.after()
	if err != nil {
		return err
	}
	typ = strings.TrimPrefix(typ, ".")
	if typ != "pred" && Width(typ) == 0 {
		return p.wrong("unknown type of a register " + quote(typ))
	}
	for {
		name, err := p.word()
		if err != nil {
			return err
		}
		names := []string{name}
		if p.tok.text == "<" {
			if names, err = p.numbered(name); err != nil {
				return err
			}
		}
		for _, name := range names {
			f.Registers = append(f.Registers, Register{s.declare(name), typ})
		}
		if len(f.Registers) > mostRegisters {
			return p.wrong("more than 65536 registers")
		}
		if more, err := p.accept(","); err != nil || !more {
			return err
		}
	}
}

// numbered reads <n> after a name: registers name0 to name(n-1).
func (p *parser) numbered(name string) ([]string, error) {
	n, err := p.afterNumber()
	if err != nil {
		return nil, err
	}
	if n > mostRegisters {
		return nil, p.wrong("more than 65536 registers")
	}
	var all []string
	for i := range n {
		all = append(all, name+strconv.Itoa(i))
	}
	return all, p.expect(">")
}
