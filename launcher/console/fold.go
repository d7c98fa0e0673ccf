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

// Fold writes the names of hosts as one word, such as gpu[01-03,07],login. Names that
// differ in one number are put together, at the place of the first of them.
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
		words = append(words, strings.Replace(pattern, hole, ranges(groups[pattern]), 1))
	}
	return strings.Join(words, ",")
}

// ofHost is a line about one host.
var ofHost = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)^host (\S+): (.*)$`) })

// FoldHosts puts lines together that say the same of several hosts, at the place of the
// first of them: "host h1: text" and "host h2: text" are "hosts h[1-2]: text".
func FoldHosts(lines []string) (folded []string) {
	about := map[string][]string{} // hosts by text
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

// hole stands for the number of a name: no name has it.
const hole = "\x00"

// number is the number in a name, as it is written.
type number struct {
	text  string
	value uint64
}

// before reports whether m follows n in a range. Zeros in front count: 08 follows 07, and
// 8 does not.
func (n number) before(m number) bool {
	return fmt.Sprintf("%0*d", len(n.text), n.value+1) == m.text
}

// dotted is an IPv4 address, and numbered a name with a number in its first label.
var (
	dotted   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]+\.[0-9]+\.[0-9]+\.)([0-9]+)((?::[0-9]+)?)$`) })
	numbered = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([^.:]*[^0-9.:])([0-9]{1,18})([^0-9.:]*(?:\.[^:]*)?(?::[0-9]+)?)$`)
	})
)

// split takes the number out of a name: the last of the first label, or that of an IPv4
// address. A name without a number is its own pattern.
func split(name string) (pattern string, n number) {
	m := dotted().FindStringSubmatch(name)
	if m == nil {
		m = numbered().FindStringSubmatch(name)
	}
	if m == nil {
		return name, number{}
	}
	value, _ := strconv.ParseUint(m[2], 10, 64) // at most 18 digits
	return m[1] + hole + m[3], number{m[2], value}
}

// ranges writes numbers as one word: 3, or [1-3,7].
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
