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

// repository answers questions about a git repository by running git. So its
// answers respect which files git tracks, all exclude files of the repository
// and the user, and git's own interpretation of patterns.
type repository struct {
	dir     string          // absolute path of the folder in which git commands run
	at      string          // path of dir relative to the scanned folder; "": dir is the scanned folder
	top     string          // absolute path of the root of the repository
	files   map[string]bool // paths, relative to dir, of the files that git does not ignore and of nested repositories
	folders map[string]bool // parent folders of all paths in files
	asked   *exec.Cmd       // the process "git check-ignore"; nil: not started yet
	in      io.WriteCloser  // standard input of git check-ignore: paths to check
	out     *bufio.Reader   // standard output of git check-ignore: matching patterns
}

// openRepository asks git for the files of the folder dir: tracked files, and
// untracked files that no pattern excludes. It returns nil if git is not
// installed or dir is not in a repository.
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
		p = strings.TrimSuffix(p, "/") // git prints a nested repository with a slash at the end
		r.files[p] = true
		for up := path.Dir(p); up != "." && !r.folders[up]; up = path.Dir(up) {
			r.folders[up] = true
		}
	}
	return r, nil
}

// runGit runs a git command in dir and returns its standard output.
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

// gitCommand prepares a git command that starts no fsmonitor daemon. The
// command ignores variables such as GIT_DIR, so it uses the repository that
// contains dir.
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

// gitVariables lists the variables that make git use another repository than
// that of the current folder. git sets them when it runs a hook.
var gitVariables = []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_FLUSH"}

// inside converts a path relative to the scanned folder to a path relative to
// r.dir, in which git runs.
func (r *repository) inside(p string) string {
	if r.at == "" {
		return p
	}
	return strings.TrimPrefix(p, r.at+"/")
}

// excluded returns "FILE:LINE" of the pattern that excludes the entry p, or ""
// if git does not ignore it. base is the absolute path of the scanned folder.
func (r *repository) excluded(base, p string, folder bool) (string, error) {
	in := r.inside(p)
	if r.files[in] || folder && r.folders[in] {
		return "", nil
	}
	return r.pattern(base, in)
}

// pattern asks git which pattern excludes a path. The argument in is the path,
// relative to r.dir. git answers for tracked files too. If the path is "",
// pattern asks about r.dir itself, which must not be the root of the
// repository.
func (r *repository) pattern(base, in string) (string, error) {
	if r.asked == nil {
		if err := r.start(); err != nil {
			return "", err
		}
	}
	asked := "./" + in // The prefix "./" makes git take the path literally, even one like ":(glob)x".
	if in == "" {
		asked = "../" + filepath.Base(r.dir)
	}
	if _, err := io.WriteString(r.in, asked+"\x00"); err != nil {
		return "", fmt.Errorf("git check-ignore: %w", err)
	}
	var fields [4]string // the four fields that git prints for a path: file, line and pattern that match, and the path
	for i := range fields {
		text, err := r.out.ReadString(0)
		if err != nil {
			return "", fmt.Errorf("git check-ignore: it exited while checking %s: %w", shown(in), err)
		}
		fields[i] = strings.TrimSuffix(text, "\x00")
	}
	if fields[0] == "" || strings.HasPrefix(fields[2], "!") {
		return "", nil
	}
	return r.named(base, fields[0]) + ":" + fields[1], nil
}

// named returns the name of a pattern file for messages: relative to the
// scanned folder base if the file is inside it, else absolute.
func (r *repository) named(base, file string) string {
	if !filepath.IsAbs(file) {
		file = filepath.Join(r.top, file)
	}
	if in, err := filepath.Rel(base, file); err == nil && filepath.IsLocal(in) {
		return filepath.ToSlash(in)
	}
	return file
}

// start starts the process "git check-ignore", which checks one path after
// another. The process ends when its standard input is closed.
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
