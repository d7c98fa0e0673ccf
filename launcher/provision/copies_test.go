package provision

import (
	"os"
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
)

// Files of --copy are added to the working directory. Without one, they are
// copied into each task's folder.
func TestCopiesAreFilesOfTheWorkdir(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	makeFiles(t, map[string]string{"work/train.py": "", "work/.gitignore": "data\n", "data": "1", "train.py": ""})
	printer := console.NewPrinter(console.Terminal{Stderr: os.Stderr})
	w, err := workdirOf(t, "work")
	if err != nil {
		t.Fatal(err)
	}
	without := w.ID()
	if err := w.ReadCopies(t.Context(), []string{"data"}, printer); err != nil {
		t.Fatal(err)
	}
	if !w.has("train.py") || !w.has("data") || w.ID() == without || w.Copied() != "" {
		t.Errorf("the working directory lacks files: %v", w.Folder.Entries)
	}
	if lines := strings.Join(w.Lines(2), "\n"); !strings.Contains(lines, "working directory") || !strings.Contains(lines, "send: data into each task's folder") {
		t.Errorf("the plan says %q", lines)
	}
	var alone Workdir
	if err := alone.ReadCopies(t.Context(), []string{"data"}, printer); err != nil {
		t.Fatal(err)
	}
	if alone.Copied() == "" || alone.ID() != "" || len(alone.Folder.Entries) != 1 {
		t.Errorf("without --workdir there is %+v", alone)
	}
	for _, wrong := range []string{"train.py", "none", "/dev/zero"} {
		w, err := workdirOf(t, "work")
		if err != nil {
			t.Fatal(err)
		}
		err = w.ReadCopies(t.Context(), []string{wrong}, printer)
		if err == nil || exit.Code(err) != exit.CodeUsage || !strings.HasPrefix(err.Error(), "--copy: "+wrong) || !strings.HasPrefix(exit.Hint(err), "--copy names") {
			t.Errorf("--copy %s: %v, hint %q", wrong, err, exit.Hint(err))
		}
	}
}

// A file of --copy that keeps changing is an error; it is never left out.
func TestChangingCopyIsAnError(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	makeFiles(t, map[string]string{"data": "1"})
	var w Workdir
	if err := w.ReadCopies(t.Context(), []string{"data"}, console.NewPrinter(console.Terminal{Stderr: os.Stderr})); err != nil {
		t.Fatal(err)
	}
	sent := 0
	err := w.sendUnchanged(t.Context(), func(*tree.Folder) error {
		sent++
		return &tree.ChangedError{Path: "data"}
	}, func([]string) {})
	if err == nil || !strings.Contains(err.Error(), "data: it changed") || sent != rereads+1 {
		t.Errorf("%v after %d times", err, sent)
	}
}
