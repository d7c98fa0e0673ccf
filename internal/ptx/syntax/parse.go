package syntax

import (
	"slices"
	"strconv"
	"strings"
)

// Bounds on what a text may ask for.
const (
	mostRegisters = 1 << 16 // of a function
	mostBytes     = 1 << 28 // of a variable
)

// Parse reads a module.
func Parse(text string) (*Module, error) {
	p := &parser{lexer: lexer{text: text, line: 1}}
	if err := p.advance(); err != nil {
		return nil, err
	}
	m := &Module{}
	for p.tok.text != "" {
		if err := m.directive(p); err != nil {
			return nil, err
		}
	}
	if m.Version == "" || m.Target == "" {
		return nil, &Error{1, "no .version or no .target"}
	}
	return m, nil
}

// directive reads one directive of the module.
func (m *Module) directive(p *parser) (err error) {
	switch p.tok.text {
	case ".version":
		m.Version, err = p.after()
	case ".target":
		m.Target, err = p.after()
		for err == nil && p.tok.text == "," {
			_, err = p.after()
		}
	case ".address_size":
		m.AddressSize, err = p.afterNumber()
		if err == nil && m.AddressSize != 64 {
			err = p.wrong("addresses have 64 bits here")
		}
	case ".file":
		p.lexer.skipLine()
		err = p.advance()
	default:
		err = m.declaration(p)
	}
	return err
}

// declaration reads a variable or a function, with what stands before it.
func (m *Module) declaration(p *parser) error {
	extern := false
	for slices.Contains([]string{".visible", ".extern", ".weak", ".common"}, p.tok.text) {
		extern = extern || p.tok.text == ".extern"
		if err := p.advance(); err != nil {
			return err
		}
	}
	switch p.tok.text {
	case ".entry", ".func":
		f, err := p.function()
		if err == nil {
			m.Functions = append(m.Functions, f)
		}
		return err
	case ".global", ".const", ".shared":
		v, err := p.variable()
		if err != nil {
			return err
		}
		v.Extern = extern
		m.Variables = append(m.Variables, v)
		return p.expect(";")
	}
	return p.wrong("unknown directive " + quote(p.tok.text))
}

// A parser holds the text and the token that is next.
type parser struct {
	lexer lexer
	tok   token
}

func (p *parser) advance() (err error) {
	p.tok, err = p.lexer.next()
	return err
}

func (p *parser) wrong(what string) error { return &Error{p.tok.line, what} }

// expect passes over one token.
func (p *parser) expect(text string) error {
	if p.tok.text != text {
		return p.wrong("expected " + quote(text) + ", found " + quote(p.tok.text))
	}
	return p.advance()
}

// accept passes over a token if it is next.
func (p *parser) accept(text string) (bool, error) {
	if p.tok.text != text {
		return false, nil
	}
	return true, p.advance()
}

// after passes over the current token and returns the word after it.
func (p *parser) after() (string, error) {
	if err := p.advance(); err != nil {
		return "", err
	}
	return p.word()
}

func (p *parser) afterNumber() (int, error) {
	if err := p.advance(); err != nil {
		return 0, err
	}
	return p.number()
}

// word returns the current token, which must be a word.
func (p *parser) word() (string, error) {
	text := p.tok.text
	if text == "" || !isWord(text[0]) {
		return "", p.wrong("expected a name, found " + quote(text))
	}
	return text, p.advance()
}

// number returns the current token, which must be a small number.
func (p *parser) number() (int, error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(p.tok.text, "U"), 0, 31)
	if err != nil {
		return 0, p.wrong("expected a number, found " + quote(p.tok.text))
	}
	return int(n), p.advance()
}

func quote(text string) string {
	if text == "" {
		return "the end of the text"
	}
	return strconv.Quote(text[:min(len(text), 80)])
}
