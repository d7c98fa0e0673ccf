package syntax

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds on what a function may hold.
const (
	mostStatements = 1 << 20
	mostVariables  = 1 << 14
	deepestScope   = 64
)

// scopes resolves names that are declared inside braces.
type scopes struct {
	stack []map[string]string // innermost last: name to unique name
	count int                 // names that were made unique
}

func (s *scopes) open()  { s.stack = append(s.stack, map[string]string{}) }
func (s *scopes) close() { s.stack = s.stack[:len(s.stack)-1] }

func (s *scopes) declare(name string) string {
	unique := name
	if len(s.stack) > 1 {
		s.count++
		unique = fmt.Sprintf("%s@%d", name, s.count)
	}
	s.stack[len(s.stack)-1][name] = unique
	return unique
}

func (s *scopes) resolve(name string) string {
	for _, names := range slices.Backward(s.stack) {
		if unique, ok := names[name]; ok {
			return unique
		}
	}
	return name
}

// function reads a kernel or a device function.
func (p *parser) function() (*Function, error) {
	f := &Function{Entry: p.tok.text == ".entry", Line: p.tok.line}
	if err := p.advance(); err != nil {
		return nil, err
	}
	var err error
	if p.tok.text == "(" {
		if f.Returns, err = p.params(); err != nil {
			return nil, err
		}
	}
	if f.Name, err = p.word(); err != nil {
		return nil, err
	}
	if p.tok.text == "(" {
		if f.Params, err = p.params(); err != nil {
			return nil, err
		}
	}
	for strings.HasPrefix(p.tok.text, ".") {
		if err := f.bound(p); err != nil {
			return nil, err
		}
	}
	if prototype, err := p.accept(";"); err != nil || prototype {
		return f, err
	}
	f.Defined = true
	return f, f.body(p)
}

// bound reads a directive between a function's parameters and its body.
func (f *Function) bound(p *parser) error {
	name := p.tok.text
	if name == ".noreturn" {
		return p.advance()
	}
	if !slices.Contains([]string{".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg"}, name) {
		return p.wrong("unknown directive " + quote(name))
	}
	n := [3]uint32{1, 1, 1}
	for i := range n {
		v, err := p.afterNumber()
		if err != nil {
			return err
		}
		n[i] = uint32(v)
		if p.tok.text != "," {
			break
		}
	}
	if name == ".maxntid" || name == ".reqntid" {
		f.MaxThreads = n
	}
	return nil
}

// params reads parameters in parentheses.
func (p *parser) params() ([]Variable, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	var all []Variable
	for p.tok.text != ")" {
		if p.tok.text != ".param" {
			return nil, p.wrong("expected .param, found " + quote(p.tok.text))
		}
		v, err := p.variable()
		if err != nil {
			return nil, err
		}
		all = append(all, v)
		if len(all) > mostVariables {
			return nil, p.wrong("too many parameters")
		}
		if p.tok.text != ")" {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
	}
	return all, p.advance()
}

// body reads what stands in braces after a function's head.
func (f *Function) body(p *parser) error {
	if err := p.expect("{"); err != nil {
		return err
	}
	s := &scopes{stack: []map[string]string{{}}}
	for len(s.stack) > 0 {
		if err := f.statement(p, s); err != nil {
			return err
		}
		if len(f.Body) > mostStatements || len(f.Variables) > mostVariables {
			return p.wrong("the function is too long")
		}
	}
	return nil
}

// statement reads one statement, declaration or brace of a body.
func (f *Function) statement(p *parser, s *scopes) error {
	switch p.tok.text {
	case "{":
		if len(s.stack) == deepestScope {
			return p.wrong("braces are nested too deeply")
		}
		s.open()
		return p.advance()
	case "}":
		s.close()
		return p.advance()
	case ".reg":
		if err := f.registers(p, s); err != nil {
			return err
		}
		return p.expect(";")
	case ".local", ".shared", ".param":
		v, err := p.variable()
		if err != nil {
			return err
		}
		v.Name = s.declare(v.Name)
		f.Variables = append(f.Variables, v)
		return p.expect(";")
	case ".loc":
		p.lexer.skipLine()
		return p.advance()
	case ".pragma":
		if err := p.advance(); err != nil { // the string is next
			return err
		}
		if err := p.advance(); err != nil {
			return err
		}
		return p.expect(";")
	}
	return f.instruction(p, s)
}
