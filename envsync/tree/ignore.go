package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The files of patterns. Both have git's format; a line of the second one counts
// more than any of the first.
const (
	gitFile = ".gitignore"
	plxFile = ".plxignore"
)

// maxPatterns bounds a file of patterns, in bytes.
const maxPatterns = 1 << 20

// rule is one line of a file of patterns.
type rule struct {
	pattern
	includes bool   // the line begins with "!"
	folders  bool   // the line ends with a slash: it is for folders only
	from     string // file and line, for messages
}

// newRule reads a line. False: it has no pattern.
func newRule(line, dir, from string) (rule, bool) {
	line = trimSpaces(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
	if line == "" || line[0] == '#' {
		return rule{}, false
	}
	text, includes := strings.CutPrefix(line, "!")
	text, folders := strings.CutSuffix(text, "/")
	if text == "" {
		return rule{}, false
	}
	return rule{newPattern(text, dir), includes, folders, from}, true
}

// rules are lines in the order in which they were read: a later one that matches
// counts more. Every folder's lines are for that folder only, so those of its
// siblings do no harm.
type rules []rule

// read adds the lines of a file, if there is one. Its patterns are for the folder
// dir and what is below.
func (r *rules) read(file, name, dir string) error {
	text, err := readPatterns(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		if one, ok := newRule(line, dir, fmt.Sprintf("%s:%d", name, number)); ok {
			*r = append(*r, one)
		}
	}
	return nil
}

// trimSpaces removes spaces at the end, unless a backslash makes one a part of the pattern.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		space := line[i] == ' '
		if line[i] == '\\' {
			i++
		}
		if !space {
			end = i + 1
		}
	}
	return line[:min(end, len(line))]
}

func readPatterns(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", cause(err)
	}
	defer f.Close() // only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(errors.New("it is not a regular file"), err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPatterns+1))
	if err == nil && len(text) > maxPatterns {
		err = fmt.Errorf("it has more than %d bytes: is it a file of patterns?", maxPatterns)
	}
	return string(text), err
}

// match returns the line that decides about a path, and whether it excludes the
// path.
func (r rules) match(p string, folder bool) (from string, excludes, decided bool) {
	for _, one := range slices.Backward(r) {
		if (folder || !one.folders) && one.match(p) {
			return one.from, !one.includes, true
		}
	}
	return "", false, false
}

// ignore decides what stays behind. The lines of .plxignore come first, then git or, where
// git cannot be asked, the rules of .gitignore files as this package reads them.
type ignore struct {
	git, plx rules
	root     string                 // the folder, absolute and without links
	base     string                 // its path, relative to the root of its git repository; "": it is the root
	of       map[string]*repository // by folder that was entered; nil: git is not asked there
	opened   []*repository
	notes    []string // for the user
}

// newIgnore returns the rules for the folder dir, an absolute path without links.
// In a git repository those of the folders above count too.
func newIgnore(ctx context.Context, dir string) (*ignore, error) {
	g := &ignore{root: dir, of: map[string]*repository{}}
	if err := g.above(); err != nil {
		return nil, err
	}
	r := g.open(ctx, dir, "")
	if r == nil {
		return g, nil
	}
	if g.base != "" {
		why, err := r.pattern(dir, "")
		if err != nil {
			return nil, err
		}
		if why != "" {
			// The user has named it, so what is in it is not excluded as a whole.
			g.notes = append(g.notes, fmt.Sprintf("%s excludes the folder itself: it is sent because you name it", why))
			return g, nil
		}
	}
	g.of[""] = r
	return g, nil
}

// open asks git about a folder. If git fails, a note says so.
func (g *ignore) open(ctx context.Context, dir, p string) *repository {
	r, err := openRepository(ctx, dir, p)
	if err != nil && ctx.Err() == nil {
		g.notes = append(g.notes, fmt.Sprintf("%s: %v: plx reads the .gitignore files itself", shown(p), err))
	}
	if r != nil {
		g.opened = append(g.opened, r)
	}
	return r
}

func (g *ignore) close() {
	for _, r := range g.opened {
		if r != nil && r.asked != nil {
			r.in.Close()       // what it read was answered
			_ = r.asked.Wait() // it says with 1 that the last path was not excluded
		}
	}
}

// above reads the rules of the folders between the root of the repository and the folder.
func (g *ignore) above() error {
	root := repositoryRoot(g.root)
	if root == "" {
		return nil
	}
	base, err := filepath.Rel(root, g.root)
	if err != nil {
		return err
	}
	if base == "." {
		return nil
	}
	g.base = filepath.ToSlash(base)
	for at := ""; ; {
		if err := g.git.read(filepath.Join(root, at, gitFile), filepath.Join(root, at, gitFile), at); err != nil {
			return err
		}
		next, more := strings.CutPrefix(g.base, at)
		element, _, below := strings.Cut(strings.TrimPrefix(next, "/"), "/")
		if !more || !below {
			return nil
		}
		at = path.Join(at, element)
	}
}

// repositoryRoot returns the root of the git repository that dir is in, or "".
func repositoryRoot(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if hasGit(at) {
			return at
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// hasGit reports whether a folder looks like the root of a git repository.
func hasGit(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, ".git"))
	return err == nil
}

// enter reads the rules of a folder that the walk enters. p is its path relative to
// the walk's folder.
func (g *ignore) enter(ctx context.Context, dir, p string) error {
	if p != "" && hasGit(dir) { // a repository of its own
		g.of[p] = g.open(ctx, dir, p)
	}
	in := path.Join(g.base, p)
	if in == "." {
		in = ""
	}
	if err := g.git.read(filepath.Join(dir, gitFile), path.Join(p, gitFile), in); err != nil {
		return err
	}
	return g.plx.read(filepath.Join(dir, plxFile), path.Join(p, plxFile), in)
}

// excluded returns why an entry stays behind, or "". abs is its path on this
// machine.
func (g *ignore) excluded(abs, p string, folder bool) (string, error) {
	in := path.Join(g.base, p)
	parent := path.Dir(p)
	if parent == "." {
		parent = ""
	}
	r := g.of[parent] // nil: git is not asked there
	if from, excludes, decided := g.plx.match(in, folder); decided {
		if !folder || excludes {
			return choose(excludes, from), nil
		}
		return "", g.readmit(r, p)
	}
	if why := exception(abs, path.Base(p), folder); why != "" {
		return why, nil
	}
	if r != nil {
		if folder {
			g.of[p] = r
		}
		return r.excluded(g.root, p, folder)
	}
	from, excludes, decided := g.git.match(in, folder)
	return choose(decided && excludes, from), nil
}

// readmit notes that .plxignore sends a folder. If git excludes it, git excludes all that
// is in it too, so there only the patterns count that are for those files themselves.
func (g *ignore) readmit(r *repository, p string) error {
	if r == nil {
		return nil
	}
	why, err := r.pattern(g.root, r.inside(p))
	if why == "" {
		g.of[p] = r
	}
	return err
}

// exception returns why plx leaves an entry here that no pattern excludes, or "".
func exception(abs, base string, folder bool) string {
	switch {
	case base == ".git":
		return "git's own folder stays behind unless " + plxFile + " has the line !.git"
	case !folder:
	case base == "__pycache__":
		return "it stays behind unless " + plxFile + " has the line !__pycache__/"
	case isVenv(abs):
		return "a virtual environment stays behind unless " + plxFile + " has the line !" + base + "/"
	}
	return ""
}

func choose(excludes bool, from string) string {
	if excludes {
		return from
	}
	return ""
}

// isVenv reports whether a folder is a Python virtual environment.
func isVenv(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, "pyvenv.cfg"))
	return err == nil && info.Mode().IsRegular()
}
