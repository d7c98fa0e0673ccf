package provision

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
)

// makeFiles creates files in the current folder. They are empty, except ignore
// files, which get the given patterns.
func makeFiles(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shell runs a shell line, such as the one that a hint tells the user to run.
func shell(t *testing.T, line string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// workdirOf reads a folder as a launch with --workdir does.
func workdirOf(t *testing.T, folder string) (Workdir, error) {
	t.Helper()
	return ReadWorkdir(t.Context(), folder, false, console.NewPrinter(console.Terminal{Stderr: os.Stderr}))
}

// inRepository creates a git repository in a folder that is the user's home,
// and makes it the current folder.
func inRepository(t *testing.T) string {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Chdir(home)
	shell(t, "git init -q")
	return home
}

// A git repository for dotfiles in the home folder excludes everything below
// that folder.
func TestReportW3DotfilesRepository(t *testing.T) {
	home := inRepository(t)
	makeFiles(t, map[string]string{".gitignore": "*\n", "project/train.py": "", "project/src/model.py": ""})
	for _, cure := range []string{"git init -q .", "echo '!*' >> .plxignore"} {
		t.Chdir(filepath.Join(home, "project"))
		_, err := workdirOf(t, ".")
		if err == nil || exit.Code(err) != exit.CodeUsage || !strings.Contains(err.Error(), "--workdir .: nothing in it would be sent: "+home+"/.gitignore:1 excludes it") {
			t.Fatalf("%v, want who excludes all", err)
		}
		if !strings.Contains(exit.Hint(err), strings.Replace(cure, " -q", "", 1)) {
			t.Errorf("hint %q, want %q", exit.Hint(err), cure)
		}
		shell(t, cure)
		w, err := workdirOf(t, ".")
		if err != nil {
			t.Fatal(err)
		}
		if _, found := w.Folder.Find("src/model.py"); !found || !w.has("train.py") {
			t.Errorf("after %s: not all is sent", cure)
		}
		shell(t, "rm -rf .git .plxignore")
	}
}

func (w Workdir) has(p string) bool {
	_, found := w.Folder.Find(p)
	return found
}

// A folder that excludes itself.
func TestReportW4FolderExcludesItself(t *testing.T) {
	inRepository(t)
	makeFiles(t, map[string]string{"dist/.gitignore": "*\n", "dist/train": "", "dist/sub/x": ""})
	_, err := workdirOf(t, "dist")
	if err == nil || exit.Code(err) != exit.CodeUsage || !strings.Contains(err.Error(), "nothing in it would be sent: .gitignore:1 excludes it") {
		t.Fatalf("%v, want who excludes all", err)
	}
	cure, found := strings.CutPrefix(exit.Hint(err), "to send it all: ")
	if !found {
		t.Fatalf("hint %q", exit.Hint(err))
	}
	shell(t, cure)
	if w, err := workdirOf(t, "dist"); err != nil || !w.has("train") || !w.has("sub/x") {
		t.Errorf("after %s: %v", cure, err)
	}
}

// Before more than 1 GiB is sent, plx prints a note.
func TestReportW6LargeFolder(t *testing.T) {
	m := tree.Manifest{Entries: []tree.Entry{{Path: "data", Kind: tree.Directory}, {Path: "small", Kind: tree.File, Size: 1}}}
	for i, name := range []string{"a", "b", "c", "d"} {
		m.Entries = append(m.Entries, tree.Entry{Path: name, Kind: tree.File, Size: 1<<28 + int64(i)<<20})
	}
	w := Workdir{named: ".", Folder: &tree.Folder{Manifest: m}}
	const want = "note: --workdir . has 1.0 GiB, and hosts are sent what they do not have; largest: d (259.0 MiB), c (258.0 MiB), b (257.0 MiB); lines in .plxignore exclude files"
	if got := w.size(); len(got) != 1 || got[0] != want {
		t.Errorf("notes %q, want %q", got, want)
	}
	w.Folder.Entries = w.Folder.Entries[:3]
	if got := w.size(); len(got) != 0 {
		t.Errorf("notes %q of a small folder", got)
	}
}

// A launch continues if files vanish or change after they were read and before
// they are sent.
func TestReportW5FilesVanishWhileSending(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	makeFiles(t, map[string]string{"train.py": "", "gone": "", "always": "1"})
	w, err := workdirOf(t, ".")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	sent := 0
	err = w.sendUnchanged(t.Context(), func(f *tree.Folder) error {
		sent++
		_ = os.Remove("gone") // the first time
		if w.has("gone") {
			return fmt.Errorf("host h1: %w", &tree.ChangedError{Path: "gone"})
		}
		if w.has("always") {
			return &tree.ChangedError{Path: "always"}
		}
		return nil
	}, func(lines []string) { said = append(said, lines...) })
	if err != nil || !w.has("train.py") || sent != rereads+2 || len(said) != 1 || said[0] != "note: --workdir .: always stays here: it changes all the time" {
		t.Errorf("%v, sent %d times, said %q", err, sent, said)
	}
	failed := errors.New("no network")
	if err := w.sendUnchanged(t.Context(), func(*tree.Folder) error { return failed }, nil); err != failed {
		t.Errorf("%v, want the error", err)
	}
}

// The home folder contains SSH keys, so it is sent only if it has a
// .plxignore.
func TestHomeFolderIsNotSent(t *testing.T) {
	above := t.TempDir()
	home := filepath.Join(above, "user")
	project := filepath.Join(home, "project")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.MkdirAll(project, 0o755), os.Symlink(home, link)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", link)
	read := func(folder string, refused bool) {
		t.Helper()
		_, err := workdirOf(t, folder)
		if (err != nil) != refused || refused && (exit.Code(err) != exit.CodeUsage || exit.Hint(err) == "" || !strings.Contains(err.Error(), "your home folder "+home)) {
			t.Errorf("--workdir %s: %v, hint %q; want an error: %v", folder, err, exit.Hint(err), refused)
		}
	}
	read(project, false)
	for _, folder := range []string{home, link, above, "/"} {
		read(folder, true)
	}
	if err := os.WriteFile(filepath.Join(home, ".plxignore"), []byte("*\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	read(home, false)
}

// Before files are sent that are only git-lfs pointers, plx prints a note that
// names them.
func TestReportL7GitLFSPointers(t *testing.T) {
	t.Chdir(t.TempDir())
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
	makeFiles(t, map[string]string{"a.pt": pointer, "b.pt": "weights", "sub/c.pt": pointer})
	var said strings.Builder
	printer := console.NewPrinter(console.Terminal{Stderr: &said})
	w, err := ReadWorkdir(t.Context(), ".", false, printer)
	if err != nil {
		t.Fatal(err)
	}
	if want := `note: --workdir .: "a.pt" and 1 file more are pointers of git-lfs, without the content: git lfs pull fetches it`; !strings.Contains(said.String(), want) {
		t.Errorf("%q, want %q", said.String(), want)
	}
	said.Reset()
	w = Workdir{}
	if err := w.ReadCopies(t.Context(), []string{"a.pt", "b.pt"}, printer); err != nil {
		t.Fatal(err)
	}
	if want := `note: --copy: "a.pt" is a pointer of git-lfs, without the content: git lfs pull fetches it`; !strings.Contains(said.String(), want) {
		t.Errorf("%q, want %q", said.String(), want)
	}
}
