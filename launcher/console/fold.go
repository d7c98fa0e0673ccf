package console

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Fold abbreviates a list of host names, such as gpu[01-03,07],login. It
// merges names that differ only in one number. The merged name stands at the
// position of the first of them.
func Fold(names []string) string {
	groups := map[string][]number{}
	var order []string
	for _, name := range names {
		pattern, n := split(name)
		if _, known := groups[pattern]; !known {
			order = append(order, pattern)
		}
		groups[pattern] = append(groups[pattern], n)
	}
	var words []string
	for _, pattern := range order {
		words = append(words, strings.Replace(pattern, placeholder, ranges(groups[pattern]), 1))
	}
	return strings.Join(words, ",")
}

// ofHost matches a line of the form "host NAME: TEXT".
var ofHost = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)^host (\S+): (.*)$`) })

// FoldHosts merges lines that have the same text about several hosts. "host
// h1: text" and "host h2: text" become "hosts h[1-2]: text". The merged line
// stands at the position of the first of them.
func FoldHosts(lines []string) (folded []string) {
	about := map[string][]string{} // host names by the text of their line
	for _, line := range lines {
		if m := ofHost().FindStringSubmatch(line); m != nil {
			about[m[2]] = append(about[m[2]], m[1])
		}
	}
	for _, line := range lines {
		m := ofHost().FindStringSubmatch(line)
		switch {
		case m == nil || len(about[m[2]]) == 1:
			folded = append(folded, line)
		case about[m[2]][0] == m[1] && !slices.Contains(folded, hostsLine(about[m[2]], m[2])):
			folded = append(folded, hostsLine(about[m[2]], m[2]))
		}
	}
	return folded
}

func hostsLine(hosts []string, text string) string { return "hosts " + Fold(hosts) + ": " + text }

// placeholder replaces the number in a name's pattern. No host name contains a NUL
// byte.
const placeholder = "\x00"

// number is the number in a host name. text keeps its leading zeros.
type number struct {
	text  string
	value uint64
}

// before reports whether m is the next number after n and has the same width:
// 08 follows 07, 8 does not.
func (n number) before(m number) bool {
	return fmt.Sprintf("%0*d", len(n.text), n.value+1) == m.text
}

// ipv4 matches an IPv4 address. numbered matches a host name that has a number
// before its first dot. Both allow a port.
var (
	ipv4     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]+\.[0-9]+\.[0-9]+\.)([0-9]+)((?::[0-9]+)?)$`) })
	numbered = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([^.:]*[^0-9.:])([0-9]{1,18})([^0-9.:]*(?:\.[^:]*)?(?::[0-9]+)?)$`)
	})
)

// split replaces the number in a host name by placeholder and returns it
// separately. This is the last number before the first dot, or the last part
// of an IPv4 address. A name without a number is returned unchanged.
func split(name string) (pattern string, n number) {
	m := ipv4().FindStringSubmatch(name)
	if m == nil {
		m = numbered().FindStringSubmatch(name)
	}
	if m == nil {
		return name, number{}
	}
	value, _ := strconv.ParseUint(m[2], 10, 64) // there is no error, because the pattern allows at most 18 digits
	return m[1] + placeholder + m[3], number{m[2], value}
}

// ranges formats numbers as one word, such as 3 or [1-3,7].
func ranges(all []number) string {
	slices.SortStableFunc(all, func(a, b number) int { return cmp.Compare(a.value, b.value) })
	var words []string
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last].before(all[last+1]) {
			last++
		}
		word := all[i].text
		if last > i {
			word += "-" + all[last].text
		}
		words, i = append(words, word), last+1
	}
	if len(all) == 1 {
		return words[0]
	}
	return "[" + strings.Join(words, ",") + "]"
}
