package gpuprobe

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// section is the output between two of the script's own lines.
type section struct {
	name, word string
	// status is the exit status of the program that printed the section: "late"
	// if the script gave it up, "" if there was no program.
	status string
	lines  []string
}

// parseSections splits the script's output at the lines that begin with mark.
// Whatever is outside a section is dropped.
func parseSections(text, mark string) []section {
	var all []section
	open := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		own, isOwn := strings.CutPrefix(line, mark+" ")
		switch {
		case isOwn:
			all, open = command(all, own)
		case open && strings.TrimSpace(line) != "":
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		}
	}
	return all
}

// command handles one of the script's own lines and reports whether a section
// is open after it.
func command(all []section, own string) (_ []section, open bool) {
	words := strings.Fields(own)
	switch {
	case len(words) >= 2 && words[0] == "begin":
		s := section{name: words[1]}
		if len(words) > 2 {
			s.word = words[2]
		}
		return append(all, s), true
	case len(words) == 2 && words[0] == "end" && len(all) > 0:
		all[len(all)-1].status = words[1]
	}
	return all, false
}

// find returns the first section called name.
func find(all []section, name string) (section, bool) {
	for _, s := range all {
		if s.name == name {
			return s, true
		}
	}
	return section{}, false
}

// first returns the first line of a section, cleaned; "" if there is none.
func first(all []section, name string) string {
	s, _ := find(all, name)
	if len(s.lines) == 0 {
		return ""
	}
	return clean(s.lines[0])
}

// clean makes a short text of a host harmless on a terminal: printable, valid
// UTF-8, at most some 300 bytes.
func clean(s string) string {
	const limit = 300
	s = strings.TrimSpace(printable(s))
	if len(s) <= limit {
		return s
	}
	cut := limit
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// printable replaces every control character and every byte that is not UTF-8
// by a space.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
