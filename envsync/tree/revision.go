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

// Revision is the git commit that is checked out in a folder, and the number
// of files that differ from the commit.
type Revision struct {
	Commit  string // commit hash, 40 or 64 hexadecimal digits
	Branch  string // name of the checked-out branch; empty for a detached HEAD
	Changed int    // number of modified, added and deleted files; -1 if unknown
}

// ReadRevision asks git for the revision of the folder dir. It returns nil if
// git is not installed, dir is not in a repository, or the repository has no
// commit. If ctx ends early, the fields that are not known yet keep their
// defaults.
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

// ErrLargeDiff is the error of Diff for a patch that exceeds its size limit.
var ErrLargeDiff = errors.New("the diff is too large")

// Diff returns a patch of the changes of tracked files against the commit
// HEAD. limit is the maximum size in bytes. Diff runs no external diff program
// or text converter that the repository configures.
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
		cancel() // The patch is too large, so the rest of git's output is not needed: kill git.
		_ = cmd.Wait()
		return nil, fmt.Errorf("git diff: %w: over %d bytes", ErrLargeDiff, limit)
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("git diff: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return text, nil
}
