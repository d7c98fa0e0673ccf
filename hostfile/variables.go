package hostfile

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Patterns for the beginning of a variable, NAME=. Names must be capitals, so
// that a misspelt option (all options are lower-case) is not taken as a
// variable.
var (
	variableStart  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=`) })
	variableSpaced = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z_][A-Z0-9_]*[ \t]+=`) })
)

// cutVariables removes the comment from a line and cuts out the values of its
// variables, because a value may contain characters that have a meaning
// elsewhere in the line. In the returned text, each NAME=VALUE has become
// NAME=N, and values[N] is the value. The first word of a line is the host, so
// it is never a variable.
func cutVariables(line string) (text string, values []string, err error) {
	var kept strings.Builder
	for rest := line; rest != "" && rest[0] != '#'; {
		name := ""
		if wordStart(kept.String()) {
			name = variableStart().FindString(rest)
			if variableSpaced().MatchString(rest) {
				return "", nil, wrong("space before the = of a variable, expected NAME=VALUE without one")
			}
		}
		if name == "" {
			kept.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		var value string
		if value, rest, err = cutValue(name, rest[len(name):]); err != nil {
			return "", nil, err
		}
		kept.WriteString(name + strconv.Itoa(len(values)))
		values = append(values, value)
	}
	return kept.String(), values, nil
}

// wordStart reports whether the byte after text begins a new word of the line.
// The first word of the line does not count.
func wordStart(text string) bool {
	return strings.Trim(text, " \t") != "" && strings.TrimRight(text, " \t:") != text
}

// cutValue parses the value of a variable at the beginning of text. rest is
// the text after the value. name is the variable's name followed by "=". A
// value that contains spaces, quotes or # must be in single or double quotes;
// no character between the quotes has a special meaning.
func cutValue(name, text string) (value, rest string, err error) {
	const advice = `put the whole value in quotes, "..." or '...'`
	if text != "" && strings.IndexByte(`"'`, text[0]) >= 0 {
		inside, rest, closed := strings.Cut(text[1:], text[:1])
		switch {
		case !closed:
			return "", "", wrong("the value after %s has no closing %s", name, text[:1])
		case rest != "" && strings.IndexByte(" \t#", rest[0]) < 0:
			return "", "", hinted(advice, "text after the closing quote of %s, expected a space", name)
		}
		return inside, rest, checkValue(name, inside)
	}
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		end = len(text)
	}
	value = text[:end]
	if strings.ContainsAny(value, `"'#`) {
		return "", "", hinted(advice, "the value after %s has a quote or a # in it", name)
	}
	return value, text[end:], checkValue(name, value)
}

// checkValue returns an error if a variable's value is not UTF-8 or has
// control characters. The error does not contain the value, which may be a
// secret.
func checkValue(name, value string) error {
	const advice = "a file for --env-file may hold any value"
	if !utf8.ValidString(value) {
		return hinted(advice, "the value after %s is not UTF-8", name)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) {
		return hinted(advice, "the value after %s has a control character", name)
	}
	return nil
}

// quotedValue returns value with quotes if necessary, so that cutValue parses
// it. No line can contain a value that has both kinds of quotes.
func quotedValue(value string) string {
	switch {
	case strings.Contains(value, `"`):
		return "'" + value + "'"
	case value == "" || strings.ContainsAny(value, " \t'#"):
		return `"` + value + `"`
	}
	return value
}

// plainInterface matches the name of a network interface on Linux.
var plainInterface = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,14}$`) })

// CheckInterface returns an error unless name is a possible name of a network
// interface.
func CheckInterface(name string) error {
	if !plainInterface().MatchString(name) {
		return hinted("ip -brief address lists the interfaces of a host; leave out the part after an @",
			"%s is no name of a network interface, expected one such as eth0 or ib0", quoted(name))
	}
	return nil
}
