package metrics

import "bytes"

// maxDepth is the depth to which nested dicts are searched for metrics.
const maxDepth = 2

// record searches the Python dict or JSON object that begins at i. It adds the
// values only if the dict contains a metric, a step or an epoch of a training.
// It reports whether it did so.
func (s *scan) record(i int) bool {
	r := record{text: s.text}
	r.members(i+1, "", 1)
	if r.known {
		s.found = r.found
	}
	return r.known
}

// record parses Python dicts and JSON objects up to the first malformed byte.
type record struct {
	text  []byte
	found Sample
	known bool // true if a name of a metric, a step or an epoch was found
}

// members parses the members of an object. i is the index after the opening
// brace. It returns the end of the object, or 0 if the text is malformed or
// ends early.
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

// member parses the value at i, which belongs to the member with the given
// name. It returns the end of the value, or 0 if there is no value.
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
			end += closing + 1 // skip the arguments after the number, as in tensor(0.31, device='cuda:0')
		}
	}
	if f, ok := parse(string(text)); ok && end > i {
		r.take(name, f)
	}
	return end
}

// take adds a number as the metric with the given name. It ignores names that
// are known not to be metrics.
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

// quoted returns the text between the quotes at i, and the index after the
// closing quote. The index is 0 if the closing quote is missing. quoted does
// not decode backslash escapes, because names and numbers contain none.
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

// nested returns the end of the list, tuple or object that begins at i. It
// returns 0 if the text ends before its closing bracket.
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

// space returns the index of the first byte at or after i that is neither a
// space nor a tab. It returns 0 if i is 0, which stands for malformed text.
func (r *record) space(i int) int {
	for i > 0 && i < len(r.text) && (r.text[i] == ' ' || r.text[i] == '\t') {
		i++
	}
	return i
}
