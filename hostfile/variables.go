package hostfile

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Names of variables are written in capitals, so that a misspelt option is none.
var (
	variableStart  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=`) })
	variableSpaced = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z_][A-Z0-9_]*[ \t]+=`) })
)

// lift takes the comment and the values of variables out of a line. In text a variable
// NAME=VALUE has become NAME=N, and its value is values[N]: a value may hold what has a
// meaning elsewhere in the line. The first word is the host and so no variable.
func lift(line string) (text string, values []string, err error) {
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

// wordStart reports whether a word of the line begins after text, other than the first.
func wordStart(text string) bool {
	return strings.Trim(text, " \t") != "" && strings.TrimRight(text, " \t:") != text
}

// cutValue cuts the value of a variable from the start of text. name ends with "=". A
// value with blanks, quotes or a # stands in single or double quotes, between which
// every character stands for itself.
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

// checkValue shows nothing of the value, which may be a secret.
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

// quotedValue returns value as cutValue reads it. A value with both quotes cannot be read
// from a line.
func quotedValue(value string) string {
	switch {
	case strings.Contains(value, `"`):
		return "'" + value + "'"
	case value == "" || strings.ContainsAny(value, " \t'#"):
		return `"` + value + `"`
	}
	return value
}

// plainInterface is a name that Linux gives a network interface.
var plainInterface = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,14}$`) })

// CheckInterface returns an error unless name can be that of a network interface.
func CheckInterface(name string) error {
	if !plainInterface().MatchString(name) {
		return hinted("a NAME such as eth0: ip -brief address lists those of a host, without what stands after an @",
			"%s is no name of a network interface, expected one such as eth0 or ib0", quoted(name))
	}
	return nil
}
