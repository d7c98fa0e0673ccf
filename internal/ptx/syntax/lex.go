package syntax

import "strings"

// A token is a word, a number, a string or one sign.
type token struct {
	text string // empty at the end of the text
	line int
}

// A lexer divides text into tokens.
type lexer struct {
	text string
	line int
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '$' || c == '%' || c == '.'
}

// next returns the next token, or one without text at the end.
func (l *lexer) next() (token, error) {
	if err := l.skip(); err != nil {
		return token{}, err
	}
	if l.text == "" {
		return token{line: l.line}, nil
	}
	n := 1
	switch {
	case isWord(l.text[0]):
		for n < len(l.text) && isWord(l.text[n]) {
			n++
		}
	case l.text[0] == '"':
		end := strings.IndexAny(l.text[1:], "\"\n")
		if end < 0 || l.text[1+end] != '"' {
			return token{}, &Error{l.line, "a string does not end"}
		}
		n = end + 2
	case strings.IndexByte("{}()[]<>,;:=+-@!|", l.text[0]) < 0:
		return token{}, &Error{l.line, "unexpected character " + quote(l.text[:1])}
	}
	t := token{l.text[:n], l.line}
	l.text = l.text[n:]
	return t, nil
}

// skip passes over blanks and comments.
func (l *lexer) skip() error {
	for l.text != "" {
		switch c := l.text[0]; {
		case c == '\n':
			l.line++
			l.text = l.text[1:]
		case c == ' ' || c == '\t' || c == '\r':
			l.text = l.text[1:]
		case strings.HasPrefix(l.text, "//"):
			l.skipLine()
		case strings.HasPrefix(l.text, "/*"):
			inside, rest, found := strings.Cut(l.text[2:], "*/")
			if !found {
				return &Error{l.line, "a comment does not end"}
			}
			l.line += strings.Count(inside, "\n")
			l.text = rest
		default:
			return nil
		}
	}
	return nil
}

// skipLine passes over the rest of the line.
func (l *lexer) skipLine() {
	if end := strings.IndexByte(l.text, '\n'); end >= 0 {
		l.text = l.text[end:]
		return
	}
	l.text = ""
}
