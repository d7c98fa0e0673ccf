package data

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// npyHeader is the Python dictionary that describes an array in a .npy file.
type npyHeader struct {
	descr   string
	fortran bool
	shape   []int
}

// parseNPYHeader reads a dictionary with three keys, each once and in any
// order. It accepts Python strings without escapes, True and False, and tuples
// of whole numbers, and nothing else.
func parseNPYHeader(text string) (npyHeader, error) {
	p := npyParser{rest: text}
	var h npyHeader
	seen := map[string]bool{}
	if err := p.expect("{"); err != nil {
		return h, err
	}
	for !p.accept("}") {
		key, err := p.quoted()
		if err != nil {
			return h, err
		}
		if seen[key] {
			return h, fmt.Errorf("key %q is there twice", key)
		}
		seen[key] = true
		if err := h.value(&p, key); err != nil {
			return h, err
		}
		if !p.accept(",") {
			if err := p.expect("}"); err != nil {
				return h, err
			}
			break
		}
	}
	if p.space(); p.rest != "" {
		return h, fmt.Errorf("%.20q follows the dictionary", p.rest)
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return h, fmt.Errorf("key %q is missing", key)
		}
	}
	return h, nil
}

// npyParser reads a header from the left.
type npyParser struct{ rest string }

func (p *npyParser) space() { p.rest = strings.TrimLeft(p.rest, " \t\n\r") }

func (p *npyParser) accept(token string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, token)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *npyParser) expect(token string) error {
	if !p.accept(token) {
		return fmt.Errorf("want %q, found %.20q", token, p.rest)
	}
	return nil
}

// value reads the colon and the value of a key.
func (h *npyHeader) value(p *npyParser, key string) (err error) {
	if err := p.expect(":"); err != nil {
		return err
	}
	switch key {
	case "descr":
		if p.accept("[") {
			return errors.New("records with named fields are not read: save each field as an array")
		}
		h.descr, err = p.quoted()
	case "fortran_order":
		h.fortran, err = p.truth()
	case "shape":
		h.shape, err = p.tuple()
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	return err
}

func (p *npyParser) quoted() (string, error) {
	p.space()
	if p.rest == "" || p.rest[0] != '\'' && p.rest[0] != '"' {
		return "", fmt.Errorf("want a string, found %.20q", p.rest)
	}
	text, rest, closed := strings.Cut(p.rest[1:], p.rest[:1])
	if !closed || strings.ContainsAny(text, "\\\n") {
		return "", fmt.Errorf("string without an end or with an escape: %.20q", p.rest)
	}
	p.rest = rest
	return text, nil
}

func (p *npyParser) truth() (bool, error) {
	if p.accept("True") {
		return true, nil
	}
	return false, p.expect("False")
}

// tuple reads "()", "(3,)", "(3, 4)" and "(3, 4,)". In Python, "(3)" is a
// number and not a tuple.
func (p *npyParser) tuple() ([]int, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	shape := []int{}
	for comma := false; !p.accept(")"); {
		if len(shape) > 0 && !comma || len(shape) == maxDimensions {
			return nil, fmt.Errorf("want the end of a shape of at most %d lengths, found %.20q", maxDimensions, p.rest)
		}
		n, err := p.number()
		if err != nil {
			return nil, err
		}
		shape = append(shape, n)
		if comma = p.accept(","); len(shape) == 1 && !comma {
			return nil, errors.New("the shape is no tuple: a comma is missing after its first length")
		}
	}
	return shape, nil
}

func (p *npyParser) number() (int, error) {
	p.space()
	end := 0
	for end < len(p.rest) && '0' <= p.rest[end] && p.rest[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(p.rest[:end], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("want a length, found %.20q", p.rest)
	}
	p.rest = strings.TrimPrefix(p.rest[end:], "L") // as Python 2 wrote long numbers
	return int(n), nil
}
