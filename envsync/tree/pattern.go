package tree

import (
	"path"
	"strings"
)

// pattern is a pattern of a .gitignore file, without a leading "!" and a
// trailing "/". It matches exactly as git's dir.c and wildmatch.c do.
type pattern struct {
	text    string // the pattern without a leading slash
	base    string // folder of the pattern file, relative to the root of all paths; "" is the root itself
	name    bool   // the pattern contains no slash, so it matches base names in any folder
	literal int    // length of the pattern's prefix that contains no wildcard
}

func newPattern(text, base string) pattern {
	p := pattern{base: base, name: !strings.Contains(text, "/"), text: strings.TrimPrefix(text, "/")}
	if p.literal = strings.IndexAny(p.text, `*?[\`); p.literal < 0 {
		p.literal = len(p.text)
	}
	return p
}

// match reports whether the pattern matches the path file itself. It does not
// check whether the pattern matches a parent folder of file.
func (p pattern) match(file string) bool {
	if p.base != "" {
		in, below := strings.CutPrefix(file, p.base+"/")
		if !below {
			return false
		}
		file = in
	}
	if p.name {
		return matchWildcards(p.text, path.Base(file), false) == matched
	}
	rest, same := strings.CutPrefix(file, p.text[:p.literal])
	return same && matchWildcards(p.text[p.literal:], rest, true) == matched
}

// outcome is the result of the function matchWildcards. abortAll means that no
// later position in the text can match. abortToStars means that no position
// before the next slash can match. These two results stop the backtracking
// early, which would otherwise take exponential time.
type outcome int

const (
	matched outcome = iota
	differs
	abortAll
	abortToStars
)

// matchWildcards matches text against the wildcard pattern p. If paths is true,
// wildcards do not match a slash, except "**" between slashes.
func matchWildcards(p, text string, paths bool) outcome {
	t := 0
	for i := 0; i < len(p); i, t = i+1, t+1 {
		if t >= len(text) && p[i] != '*' {
			return abortAll
		}
		switch p[i] {
		case '*':
			stars := len(p[i:]) - len(strings.TrimLeft(p[i:], "*"))
			rest := p[i+stars:]
			slashes := !paths
			if paths && stars > 1 && (i == 0 || p[i-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`)) {
				if rest != "" && rest[0] == '/' && matchWildcards(rest[1:], text[t:], paths) == matched {
					return matched
				}
				slashes = true
			}
			if rest != "" && rest[0] == '/' && !slashes {
				next := strings.IndexByte(text[t:], '/')
				if next < 0 {
					return differs
				}
				i, t = i+stars, t+next // continue at the next slash, which is now both p[i] and text[t]
				continue
			}
			return afterStars(rest, text[t:], paths, slashes)
		case '?':
			if paths && text[t] == '/' {
				return differs
			}
		case '[':
			end, in := class(p[i:], text[t])
			if end < 0 {
				return abortAll
			}
			if !in || paths && text[t] == '/' {
				return differs
			}
			i += end
		case '\\':
			if i++; i == len(p) || p[i] != text[t] {
				return differs
			}
		default:
			if p[i] != text[t] {
				return differs
			}
		}
	}
	if t < len(text) {
		return differs
	}
	return matched
}

// afterStars matches text against rest, the pattern after one or more stars.
// The stars match slashes too if slashes is true.
func afterStars(rest, text string, paths, slashes bool) outcome {
	if rest == "" {
		if !slashes && strings.Contains(text, "/") {
			return abortToStars
		}
		return matched
	}
	for t := range len(text) {
		if got := matchWildcards(rest, text[t:], paths); got != differs && (!slashes || got != abortToStars) {
			return got
		}
		if !slashes && text[t] == '/' {
			return abortToStars
		}
	}
	return abortAll
}

// class matches the byte c against the set at the beginning of p, such as
// "[a-z]". The result end is the index in p of the set's closing bracket. It
// is -1 if there is no closing bracket or if the set contains an unknown class
// name such as "[:x:]".
func class(p string, c byte) (end int, in bool) {
	at := func(i int) byte {
		if i < len(p) {
			return p[i]
		}
		return 0
	}
	i := 1
	negated := at(i) == '!' || at(i) == '^'
	if negated {
		i++
	}
	var before byte // previous character of the set, which is the lower bound if a range such as a-z follows; 0 if no range can follow
	for first := true; first || at(i) != ']'; i, first = i+1, false {
		now := at(i)
		switch {
		case now == '-' && before != 0 && at(i+1) != 0 && at(i+1) != ']':
			if i++; at(i) == '\\' {
				i++
			}
			in = in || before <= c && c <= at(i)
			now = 0
		case now == '[' && at(i+1) == ':':
			name, _, closed := strings.Cut(p[i+2:], "]")
			if !closed {
				return -1, false
			}
			name, named := strings.CutSuffix(name, ":")
			if !named {
				in = in || c == '['
				break
			}
			test := classes[name]
			if test == nil {
				return -1, false
			}
			in = in || test(c)
			i += len("[:") + len(name) + len(":")
			now = 0
		default:
			if now == '\\' {
				i++
				now = at(i)
			}
			in = in || c == now
		}
		if at(i) == 0 {
			return -1, false
		}
		before = now
	}
	return i, in != negated
}

// classes maps the name of a POSIX character class, as in "[:alpha:]", to its
// test.
var classes = map[string]func(byte) bool{
	"alnum": func(c byte) bool { return isDigit(c) || isLetter(c) }, "alpha": isLetter, "digit": isDigit,
	"blank": func(c byte) bool { return c == ' ' || c == '\t' }, "space": func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' },
	"cntrl": func(c byte) bool { return c < ' ' || c == 0x7f }, "print": func(c byte) bool { return ' ' <= c && c < 0x7f },
	"graph": isGraph, "punct": func(c byte) bool { return isGraph(c) && !isDigit(c) && !isLetter(c) },
	"lower": func(c byte) bool { return 'a' <= c && c <= 'z' }, "upper": func(c byte) bool { return 'A' <= c && c <= 'Z' },
	"xdigit": func(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' },
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isGraph(c byte) bool  { return ' ' < c && c < 0x7f }
