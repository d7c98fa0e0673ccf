package tree

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ReadRevision returns what git reports, and applying the patch of Diff to the
// commit gives the changed files.
func TestRevision(t *testing.T) {
	dir := t.TempDir()
	if r := ReadRevision(t.Context(), dir); r != nil {
		t.Errorf("%+v outside of a repository", r)
	}
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=trunk"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init")
	if r := ReadRevision(t.Context(), dir); r != nil {
		t.Errorf("%+v before the first commit", r)
	}
	write("a", "one\n")
	git("add", "a")
	git("commit", "-m", "first")
	want := Revision{Commit: strings.TrimSpace(git("rev-parse", "HEAD")), Branch: "trunk"}
	if r := ReadRevision(t.Context(), dir); r == nil || *r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	write("a", "two\n")
	write("b", "new\n")
	want.Changed = 2
	if r := ReadRevision(t.Context(), dir); r == nil || *r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	git("config", "diff.external", "false") // an external diff program, which Diff must not run
	patch, err := Diff(t.Context(), dir, 1<<10)
	if err != nil || !strings.Contains(string(patch), "-one\n+two\n") {
		t.Errorf("%s, %v", patch, err)
	}
	if _, err := Diff(t.Context(), dir, 20); !errors.Is(err, ErrLargeDiff) {
		t.Errorf("a patch over its limit: %v", err)
	}
	git("checkout", "--detach")
	if r := ReadRevision(t.Context(), dir); r == nil || r.Branch != "" || r.Commit != want.Commit {
		t.Errorf("%+v without a branch", r)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if r := ReadRevision(over, dir); r != nil {
		t.Errorf("%+v although there was no time", r)
	}
}
