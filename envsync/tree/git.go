package tree

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// repository is what git says of a folder that lies in a repository. It has the tracked
// files too, the exclude files of the repository and of the user, and git's own reading
// of patterns.
type repository struct {
	dir     string          // where git was asked, absolute
	at      string          // path of dir in the walk's folder; "": it is that folder
	top     string          // root of the repository, absolute
	files   map[string]bool // that git sends, and roots of other repositories, by path in dir
	folders map[string]bool // that those are in
	asked   *exec.Cmd       // git check-ignore; nil: it was not started yet
	in      io.WriteCloser  // paths to ask about
	out     *bufio.Reader   // its answers
}

// openRepository asks git for the files of a folder: the tracked ones, and the others that
// no pattern excludes. Without git, and outside of repositories, it returns nil.
func openRepository(ctx context.Context, dir, at string) (*repository, error) {
	if _, err := exec.LookPath("git"); err != nil || repositoryRoot(dir) == "" {
		return nil, nil
	}
	top, err := runGit(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	list, err := runGit(ctx, dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	r := &repository{dir: dir, at: at, top: strings.TrimSuffix(top, "\n"), files: map[string]bool{}, folders: map[string]bool{}}
	for p := range strings.FieldsFuncSeq(list, func(c rune) bool { return c == 0 }) {
		p = strings.TrimSuffix(p, "/") // a repository in this one
		r.files[p] = true
		for up := path.Dir(p); up != "." && !r.folders[up]; up = path.Dir(up) {
			r.folders[up] = true
		}
	}
	return r, nil
}

// runGit returns what a command of git prints.
func runGit(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := gitCommand(ctx, dir, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	return string(out), nil
}

// gitCommand is a command of git that starts no daemon, and knows no repository but the one
// that dir is in.
func gitCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.fsmonitor=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(gitVariables, name)
	})
	cmd.Env = append(cmd.Env, "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0")
	return cmd
}

// gitVariables name another repository, as in a hook of git.
var gitVariables = []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_FLUSH"}

// inside returns the path of something in the walk's folder as git is told it.
func (r *repository) inside(p string) string {
	if r.at == "" {
		return p
	}
	return strings.TrimPrefix(p, r.at+"/")
}

// excluded returns the file and line of the pattern that excludes an entry, or "". base is
// the walk's folder.
func (r *repository) excluded(base, p string, folder bool) (string, error) {
	in := r.inside(p)
	if r.files[in] || folder && r.folders[in] {
		return "", nil
	}
	return r.pattern(base, in)
}

// pattern asks git which pattern excludes a path of r.dir, whether it is tracked or not. ""
// is r.dir itself, which must not be the root of the repository.
func (r *repository) pattern(base, in string) (string, error) {
	if r.asked == nil {
		if err := r.start(); err != nil {
			return "", err
		}
	}
	asked := "./" + in // with ./ before it no path has a meaning of its own
	if in == "" {
		asked = "../" + filepath.Base(r.dir)
	}
	if _, err := io.WriteString(r.in, asked+"\x00"); err != nil {
		return "", fmt.Errorf("git check-ignore: %w", err)
	}
	var fields [4]string // file, line, pattern, path
	for i := range fields {
		text, err := r.out.ReadString(0)
		if err != nil {
			return "", fmt.Errorf("git check-ignore: it ended at %s: %w", shown(in), err)
		}
		fields[i] = strings.TrimSuffix(text, "\x00")
	}
	if fields[0] == "" || strings.HasPrefix(fields[2], "!") {
		return "", nil
	}
	return r.named(base, fields[0]) + ":" + fields[1], nil
}

// named returns the name of a file of patterns: relative to the walk's folder if it is in
// there.
func (r *repository) named(base, file string) string {
	if !filepath.IsAbs(file) {
		file = filepath.Join(r.top, file)
	}
	if in, err := filepath.Rel(base, file); err == nil && filepath.IsLocal(in) {
		return filepath.ToSlash(in)
	}
	return file
}

// start starts the command that answers for single paths. It ends at the end of its input,
// see close.
func (r *repository) start() (err error) {
	cmd := gitCommand(context.Background(), r.dir, "check-ignore", "--no-index", "--stdin", "-z", "--verbose", "--non-matching")
	if r.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.asked, r.out = cmd, bufio.NewReader(out)
	return nil
}
