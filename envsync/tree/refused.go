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

// refused is an entry of a folder that cannot be sent, with the reason.
type refused struct {
	path string
	why  error
}

// RefusedError lists all entries of a folder that cannot be sent.
type RefusedError struct {
	root string // absolute path of the folder; "": .plxignore files do not apply to the folder
	all  []refused
}

// errLeadsOut is the error for a symbolic link that points out of the folder.
var errLeadsOut = errors.New("leads out of the folder, or may do so")

// mostRefused is the maximum number of entries that an error message lists.
const mostRefused = 20

// Error lists the entries, each on its own line if there are several.
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

// Unwrap returns the reason of each refused entry, for errors.Is and
// errors.As.
func (e *RefusedError) Unwrap() (all []error) {
	for _, r := range e.all {
		all = append(all, r.why)
	}
	return all
}

// Hint returns a shell command that adds all refused entries to .plxignore. It
// returns "" if .plxignore does not apply to the folder.
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

// literal returns a line for .plxignore that matches only the path p: special
// characters are escaped.
func literal(p string) string {
	var b strings.Builder
	b.WriteByte('/')
	for _, r := range p {
		switch {
		case unicode.IsControl(r):
			r = '?' // a line of .plxignore cannot contain every control character; "?" matches any character
		case strings.ContainsRune(`*?[]\ `, r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quote returns text as one word for a shell, in single quotes if necessary.
func quote(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+@%", r)
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
