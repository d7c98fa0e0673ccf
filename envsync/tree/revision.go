package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Revision is the commit that a folder has, and how its files differ from it.
type Revision struct {
	Commit  string // 40 or 64 hex digits
	Branch  string // empty: none is checked out
	Changed int    // number of changed, added and removed files; -1: not known
}

// ReadRevision asks git for the revision of a folder. Without git, outside of repositories and before the first
// commit it returns nil. At the end of ctx it returns what it knows.
func ReadRevision(ctx context.Context, dir string) *Revision {
	if _, err := exec.LookPath("git"); err != nil || repositoryRoot(dir) == "" {
		return nil
	}
	commit, err := runGit(ctx, dir, "rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return nil
	}
	r := &Revision{Commit: strings.TrimSpace(commit), Changed: -1}
	if branch, err := runGit(ctx, dir, "symbolic-ref", "--short", "--quiet", "HEAD"); err == nil {
		r.Branch = strings.TrimSpace(branch)
	}
	if list, err := runGit(ctx, dir, "status", "--porcelain"); err == nil {
		r.Changed = strings.Count(list, "\n")
	}
	return r
}

// ErrLargeDiff says that a diff exceeds its limit.
var ErrLargeDiff = errors.New("the diff is too large")

// Diff returns how the tracked files of a folder's repository differ from its commit, as a patch. It runs no program
// that the repository names.
func Diff(ctx context.Context, dir string, limit int) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := gitCommand(ctx, dir, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "HEAD")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("git diff: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(out, int64(limit)+1))
	if len(text) > limit {
		cancel() // git need not write the rest
		_ = cmd.Wait()
		return nil, fmt.Errorf("git diff: %w: over %d bytes", ErrLargeDiff, limit)
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("git diff: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return text, nil
}
