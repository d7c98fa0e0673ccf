package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// refused is something in a folder that cannot be sent.
type refused struct {
	path string
	why  error
}

// RefusedError names all that cannot be sent of a folder.
type RefusedError struct {
	root string // absolute path of the folder; "": no file of patterns counts
	all  []refused
}

// errLeadsOut is the reason for a link that leads out of the folder.
var errLeadsOut = errors.New("leads out of the folder, or may do so")

// mostRefused is how many things an error names.
const mostRefused = 20

// Error names each on a line of its own, if there are several.
func (e *RefusedError) Error() string {
	if len(e.all) == 1 {
		return e.all[0].String()
	}
	var lines []string
	for _, r := range e.all[:min(len(e.all), mostRefused)] {
		lines = append(lines, "\n"+r.String())
	}
	if more := len(e.all) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("\nand %d more", more))
	}
	return fmt.Sprintf("%d files, links or folders in it cannot be sent:", len(e.all)) + strings.Join(lines, "")
}

func (r refused) String() string { return fmt.Sprintf("%s: %v", shown(r.path), r.why) }

// Unwrap returns the reasons.
func (e *RefusedError) Unwrap() (all []error) {
	for _, r := range e.all {
		all = append(all, r.why)
	}
	return all
}

// Hint has a command that adds the lines to .plxignore which leave all of it here. It is ""
// if no such file counts.
func (e *RefusedError) Hint() string {
	if e.root == "" {
		return ""
	}
	file := filepath.Join(e.root, plxFile)
	if here, err := os.Getwd(); err == nil {
		if in, err := filepath.Rel(here, file); err == nil && filepath.IsLocal(in) {
			file = in
		}
	}
	var lines []string
	for _, r := range e.all {
		lines = append(lines, quote(literal(r.path)))
	}
	hint := fmt.Sprintf("to leave it here: printf '%%s\\n' %s >> %s", strings.Join(lines, " "), quote(file))
	if slices.ContainsFunc(e.all, func(r refused) bool { return errors.Is(r.why, errLeadsOut) }) {
		hint += "; to send links as they are: --keep-links"
	}
	return hint
}

// literal is the line of a file of patterns that is for one path.
func literal(p string) string {
	var b strings.Builder
	b.WriteByte('/')
	for _, r := range p {
		switch {
		case unicode.IsControl(r):
			r = '?' // no line has it
		case strings.ContainsRune(`*?[]\ `, r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quote is a text as a word for a shell.
func quote(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+@%", r)
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
