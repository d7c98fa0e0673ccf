package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
)

func TestScriptOf(t *testing.T) {
	for command, want := range map[string]string{
		"python3 train.py x.py": "train.py x.py", "python3.11 -u -W ignore train.py": "train.py", "python3 -c code x": " code x", "python3 -s train.py": "train.py", "perl -e code x": " code x",
		"/usr/bin/python train.py": "train.py", "bash -e run.sh a": "run.sh a", "bash -c run.sh": " run.sh", "sh -- run.sh": "run.sh",
		"torchrun train.py": " train.py", "python3": "", "python3 -m missing x": " x",
	} {
		words := strings.Fields(command)
		script, others := scriptOf(words[0], words[1:])
		if got := strings.TrimRight(script+" "+strings.Join(others, " "), " "); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func TestLocalFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"train.py", "config.json", "src/model.py", "src/ignored.py", "pkg/__main__.py", "data/x"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir("made", 0o755), os.WriteFile(".gitignore", []byte("/data/\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("src/.gitignore", []byte("ignored.py\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command    string
		cfg        Config
		hint, note string // of the error, of the warning; "": there is none
	}{
		{command: "python3 train.py", hint: "train.py is a local file: add --workdir ."},
		{command: "python3 missing.py", cfg: Config{Workdir: "."}, hint: "name the file by its path in that folder"},
		{command: "python3 missing.py", cfg: Config{Workdir: ".", Setup: "touch missing.py"}},
		{command: "python3 missing.py", cfg: Config{Workdir: ".", Copy: []string{"/elsewhere/missing.py"}}},
		{command: "python3 model.py", cfg: Config{Workdir: "src"}},
		{command: "python3 train.py --data data", cfg: Config{Workdir: "."}, note: "note: data: a local folder that the hosts do not get (.gitignore:1 excludes it; a line !/data/ in .plxignore sends it)"},
		{command: "python3 train.py --data=data src pkg made .", cfg: Config{Copy: []string{"train.py"}}, note: "note: data, src, pkg: local files and folders that the hosts do not get"},
		{command: "python3 train.py src made ..", cfg: Config{Workdir: "."}},
		{command: "python3 -m pkg", hint: "pkg/__main__.py is a local file"},
		{command: "train.py", hint: "plx launch --workdir . python3 train.py"},
		{command: "train.py", cfg: Config{Workdir: "."}, note: "the file is ./train.py"},
		{command: "train.py", cfg: Config{Workdir: ".", Path: "."}},
		{command: "python3 train.py", cfg: Config{Chdir: "there"}},
		{command: "python3 train.py", cfg: Config{Copy: []string{"train.py"}}},
		{command: "python3 train.py", cfg: Config{Setup: "cd there"}, note: "train.py"},
		{command: "python3 train.py --config=config.json", cfg: Config{Workdir: "."}},
		{command: "python3 other.py --config=config.json train.py train.py", note: "note: config.json, train.py: local files"},
		{command: "python3 " + dir + "/src/model.py", cfg: Config{Workdir: "."}, note: "in the working directory the file is src/model.py"},
		{command: "python3 " + dir + "/src/model.py"},
		{command: "python3 src/model.py", cfg: Config{Workdir: "src"}, hint: "name it model.py"},
		{command: "python3 train.py", cfg: Config{Workdir: "src"}, hint: "--workdir ."},
		{command: "python3 src/ignored.py", cfg: Config{Workdir: "."}, hint: "add the line !/src/ignored.py to .plxignore"},
	} {
		words := strings.Fields(c.command)
		c.cfg.Program, c.cfg.Args = words[0], words[1:]
		w, err := readWorkdir(t.Context(), c.cfg, console.NewPrinter(console.Terminal{Stderr: os.Stderr}))
		if (err != nil) != (c.hint != "") || !strings.Contains(exit.Hint(err), c.hint) || err != nil && exit.Code(err) != exit.CodeUsage {
			t.Errorf("%s with %+v: %v, hint %q, want hint %q", c.command, c.cfg.Workdir, err, exit.Hint(err), c.hint)
		}
		if (len(w.notes) > 0) != (c.note != "") || !slices.ContainsFunc(append(w.notes, c.note), func(n string) bool { return strings.Contains(n, c.note) }) ||
			len(w.notes) > 0 && !strings.Contains(w.notes[0], c.note) {
			t.Errorf("%s: notes %q, want %q", c.command, w.notes, c.note)
		}
	}
}

// The home folder has keys. It is sent only with a .plxignore.
func TestHomeStaysHere(t *testing.T) {
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
		_, err := readWorkdir(t.Context(), Config{Program: "true", Workdir: folder}, console.NewPrinter(console.Terminal{Stderr: os.Stderr}))
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
