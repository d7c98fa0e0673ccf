package metrics

import "bytes"

// maxDepth bounds how deep records lie in each other.
const maxDepth = 2

// record looks for values in the dict of Python or the object of JSON at i. It reports
// whether the line is one with values of a training.
func (s *scan) record(i int) bool {
	r := record{text: s.text}
	r.members(i+1, "", 1)
	if r.known {
		s.found = r.found
	}
	return r.known
}

// record reads dicts of Python and objects of JSON, as far as they are well-formed.
type record struct {
	text  []byte
	found Sample
	known bool // it has the name of a value, of a step or of an epoch
}

// members reads the members of an object behind its brace. It returns the end of the
// object, 0 if the text is malformed or ends.
func (r *record) members(i int, prefix string, depth int) int {
	for {
		i = r.space(i)
		if i < len(r.text) && r.text[i] == '}' {
			return i + 1
		}
		name, end := r.quoted(i)
		if end = r.space(end); end == 0 || end >= len(r.text) || r.text[end] != ':' {
			return 0
		}
		if i = r.space(r.member(r.space(end+1), prefix+string(name), depth)); i == 0 || i >= len(r.text) {
			return 0
		}
		if r.text[i] == ',' {
			i++
		} else if r.text[i] != '}' {
			return 0
		}
	}
}

// member reads the value of a member. It returns its end, 0 if there is none.
func (r *record) member(i int, name string, depth int) int {
	if i == 0 || i >= len(r.text) {
		return 0
	}
	switch b := r.text[i]; {
	case b == '{' && depth < maxDepth:
		return r.members(i+1, name+"/", depth+1)
	case b == '{' || b == '[' || b == '(':
		return r.nested(i)
	case b == '"' || b == '\'':
		text, end := r.quoted(i)
		if f, ok := parse(string(text)); ok {
			r.take(name, f)
		}
		return end
	}
	end := i
	for end < len(r.text) && bytes.IndexByte([]byte(",}] "), r.text[end]) < 0 {
		end++
	}
	text := r.text[i:end]
	if open := bytes.IndexByte(text, '('); open >= 0 && hasTensor(text[:open+1]) {
		text = bytes.TrimRight(text[open+1:], ")")
		if closing := bytes.IndexByte(r.text[end:], ')'); end < len(r.text) && r.text[end-1] != ')' && closing >= 0 {
			end += closing + 1 // tensor(0.31, device='cuda:0')
		}
	}
	if f, ok := parse(string(text)); ok && end > i {
		r.take(name, f)
	}
	return end
}

// take takes a number that a record has.
func (r *record) take(name string, f float64) {
	name = string(lower([]byte(name)))
	last := name[bytes.LastIndexByte([]byte(name), '/')+1:]
	if !validName(name) && name != "_step" || unfit(name) || unfit(last) {
		return
	}
	switch kindOf([]byte(name)) {
	case position:
		name = Step
	case total:
		r.found.set(Steps, f)
		return
	case epochs:
		r.found.set(Epochs, f)
		return
	case other, weak:
		r.found.set(name, f)
		return
	}
	if r.known = true; name == Step && (f < 0 || f > maxCount || f != float64(int64(f))) {
		return
	}
	r.found.set(name, f)
}

// quoted returns the text between the quotes at i, and the end behind them; 0: there is
// none. Texts with escapes stay as they are: they are neither names nor numbers.
func (r *record) quoted(i int) (text []byte, end int) {
	if i >= len(r.text) || r.text[i] != '"' && r.text[i] != '\'' {
		return nil, 0
	}
	for j := i + 1; j < len(r.text); j++ {
		switch r.text[j] {
		case '\\':
			j++
		case r.text[i]:
			return r.text[i+1 : j], j + 1
		}
	}
	return nil, 0
}

// nested returns the end of the list, tuple or object at i, 0 if the text ends before.
func (r *record) nested(i int) int {
	for depth := 0; i < len(r.text); i++ {
		switch r.text[i] {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"', '\'':
			_, end := r.quoted(i)
			if end == 0 {
				return 0
			}
			i = end - 1
		}
	}
	return 0
}

// space skips spaces from i; 0 stays 0.
func (r *record) space(i int) int {
	for i > 0 && i < len(r.text) && (r.text[i] == ' ' || r.text[i] == '\t') {
		i++
	}
	return i
}
