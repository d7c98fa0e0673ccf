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

// Names of the pattern files. Both have the format of .gitignore; a matching
// line in .plxignore overrides all lines in .gitignore files.
const (
	gitFile = ".gitignore"
	plxFile = ".plxignore"
)

// maxPatterns is the maximum size in bytes of a pattern file such as
// .gitignore.
const maxPatterns = 1 << 20

// rule is one line of a pattern file such as .gitignore.
type rule struct {
	pattern
	includes bool   // the line begins with "!", which includes matching paths again
	folders  bool   // the line ends with "/", so it matches only folders
	from     string // "FILE:LINE" of the pattern, for messages
}

// newRule parses a line of a pattern file in the folder dir. It returns false
// for an empty line or a comment.
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

// rules are the lines of pattern files in the order in which they were read;
// the last match wins. Each rule is anchored at its file's folder, so the
// rules of one folder do not affect its siblings.
type rules []rule

// read appends the rules of a pattern file; a file that does not exist adds
// none. The patterns apply to dir, the file's folder, and everything below it.
// name is the file's name for messages.
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

// trimSpaces removes trailing spaces, except a space that is escaped with a
// backslash and so belongs to the pattern.
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
	defer f.Close() // only read: an error of Close does not matter
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(errors.New("it is not a regular file"), err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPatterns+1))
	if err == nil && len(text) > maxPatterns {
		err = fmt.Errorf("it has more than %d bytes: is it a file of patterns?", maxPatterns)
	}
	return string(text), err
}

// match finds the last rule that matches the path p. It returns that rule's
// "FILE:LINE" and whether the rule excludes p; decided is false if no rule
// matches.
func (r rules) match(p string, folder bool) (from string, excludes, decided bool) {
	for _, one := range slices.Backward(r) {
		if (folder || !one.folders) && one.match(p) {
			return one.from, !one.includes, true
		}
	}
	return "", false, false
}

// ignore decides which files of the scanned folder are not sent. Lines of
// .plxignore take precedence. Otherwise git decides, or, if git cannot be run,
// this package's own interpretation of .gitignore files.
type ignore struct {
	git, plx rules
	root     string                 // absolute path of the scanned folder, with symbolic links resolved
	base     string                 // path of the scanned folder relative to the root of its git repository; "" if the scanned folder is that root
	of       map[string]*repository // maps each folder to the git repository to ask about the folder's entries; nil: do not ask git there
	opened   []*repository
	notes    []string // notes to print for the user
}

// newIgnore returns the rules for the folder dir, an absolute path without
// symbolic links. If dir is in a git repository, the .gitignore files of its
// parent folders count too.
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
			// The user has named this folder explicitly, so a pattern that
			// excludes the folder as a whole does not count.
			g.notes = append(g.notes, fmt.Sprintf("%s excludes the folder itself: it is sent because you name it", why))
			return g, nil
		}
	}
	g.of[""] = r
	return g, nil
}

// open asks git for the files of the folder dir. If git fails, open adds a
// note for the user and returns nil.
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
			r.in.Close()       // git has answered all requests, so an error of Close does not matter
			_ = r.asked.Wait() // git check-ignore exits with status 1 if the last path is not ignored, so the error does not matter
		}
	}
}

// above reads the .gitignore files of all folders from the root of the
// repository down to the parent of the scanned folder.
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

// repositoryRoot returns the root of the git repository that contains dir, or
// "" if there is none.
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

// hasGit reports whether the folder dir contains an entry ".git", as the root
// of a git repository does.
func hasGit(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, ".git"))
	return err == nil
}

// enter reads the pattern files of the folder dir before its entries are
// scanned. p is the path of dir relative to the scanned folder.
func (g *ignore) enter(ctx context.Context, dir, p string) error {
	if p != "" && hasGit(dir) { // dir is the root of a nested git repository
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

// excluded returns why the entry p is not sent, or "" if it is. abs is its
// absolute path on the local machine.
func (g *ignore) excluded(abs, p string, folder bool) (string, error) {
	in := path.Join(g.base, p)
	parent := path.Dir(p)
	if parent == "." {
		parent = ""
	}
	r := g.of[parent] // nil: git is not asked about the entries of this folder
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

// readmit handles folder p, which git ignores but a line of .plxignore
// includes again. Inside p, plx does not ask git, because git would report
// every file as ignored. There a file is left out only if a pattern matches
// the file itself.
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

// exception returns why plx does not send an entry that no pattern excludes:
// .git, __pycache__ or a virtual environment. It returns "" for any other
// entry.
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

// isVenv reports whether dir is a Python virtual environment, which contains a
// file pyvenv.cfg.
func isVenv(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, "pyvenv.cfg"))
	return err == nil && info.Mode().IsRegular()
}
