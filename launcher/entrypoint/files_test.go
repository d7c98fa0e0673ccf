package entrypoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/exit"
)

// resolve calls Check and Resolve, as a launch does.
func resolve(t *testing.T, s Source) (Program, error) {
	t.Helper()
	if err := s.Check(); err != nil {
		return Program{}, err
	}
	var sent *tree.Folder
	if s.Workdir != "" {
		var err error
		if sent, err = tree.Scan(t.Context(), s.Workdir, tree.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return Resolve(t.Context(), s, sent)
}

// makeFiles creates files with the given texts in the current folder.
func makeFiles(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestScriptOf(t *testing.T) {
	for command, want := range map[string]string{
		"python3 train.py x.py": "train.py x.py", "python3.11 -u -W ignore train.py": "train.py", "python3 -c code x": " code x", "python3 -s train.py": "train.py", "perl -e code x": " code x",
		"/usr/bin/python train.py": "train.py", "bash -e run.sh a": "run.sh a", "bash -c run.sh": " run.sh", "sh -- run.sh": "run.sh",
		"torchrun train.py": " train.py", "python3": "", "python3 -m missing x": " x",
	} {
		words := strings.Fields(command)
		script, others := Source{Program: words[0], Args: words[1:]}.script()
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
		cfg        Source
		hint, note string // part of the error's hint, and of the printed note; "" if there is none
	}{
		{command: "python3 train.py", hint: "train.py is a local file: add --workdir ."},
		{command: "python3 missing.py", cfg: Source{Workdir: "."}, hint: "use the script's path relative to that folder"},
		{command: "python3 missing.py", cfg: Source{Workdir: ".", Setup: "touch missing.py"}},
		{command: "python3 missing.py", cfg: Source{Workdir: ".", Copy: []string{"/elsewhere/missing.py"}}},
		{command: "python3 model.py", cfg: Source{Workdir: "src"}},
		{command: "python3 train.py --data data", cfg: Source{Workdir: "."}, note: "note: data: a local folder that the hosts do not get (.gitignore:1 excludes it; a line !/data/ in .plxignore sends it)"},
		{command: "python3 train.py --data=data src pkg made .", cfg: Source{Copy: []string{"train.py"}}, note: "note: data, src, pkg: local files and folders that the hosts do not get"},
		{command: "python3 train.py src made ..", cfg: Source{Workdir: "."}},
		{command: "python3 -m pkg", hint: "pkg/__main__.py is a local file"},
		{command: "train.py", hint: "plx launch --workdir . python3 train.py"},
		{command: "train.py", cfg: Source{Workdir: "."}, note: "the file is ./train.py"},
		{command: "train.py", cfg: Source{Workdir: ".", Path: "."}},
		{command: "python3 train.py", cfg: Source{Chdir: "there"}},
		{command: "python3 train.py", cfg: Source{Copy: []string{"train.py"}}},
		{command: "python3 train.py", cfg: Source{Setup: "cd there"}, note: "train.py"},
		{command: "python3 train.py --config=config.json", cfg: Source{Workdir: "."}},
		{command: "python3 other.py --config=config.json train.py train.py", note: "note: config.json, train.py: local files"},
		{command: "python3 " + dir + "/src/model.py", cfg: Source{Workdir: "."}, note: "the copy in their working directory is src/model.py"},
		{command: "python3 " + dir + "/src/model.py"},
		{command: "python3 src/model.py", cfg: Source{Workdir: "src"}, hint: "name it model.py"},
		{command: "python3 train.py", cfg: Source{Workdir: "src"}, hint: "--workdir ."},
		{command: "python3 src/ignored.py", cfg: Source{Workdir: "."}, hint: "add the line !/src/ignored.py to .plxignore"},
	} {
		words := strings.Fields(c.command)
		c.cfg.Program, c.cfg.Args = words[0], words[1:]
		p, err := resolve(t, c.cfg)
		if (err != nil) != (c.hint != "") || !strings.Contains(exit.Hint(err), c.hint) || err != nil && exit.Code(err) != exit.CodeUsage {
			t.Errorf("%s with %+v: %v, hint %q, want hint %q", c.command, c.cfg.Workdir, err, exit.Hint(err), c.hint)
		}
		if (len(p.Notes) > 0) != (c.note != "") || !slices.ContainsFunc(append(p.Notes, c.note), func(n string) bool { return strings.Contains(n, c.note) }) ||
			len(p.Notes) > 0 && !strings.Contains(p.Notes[0], c.note) {
			t.Errorf("%s: notes %q, want %q", c.command, p.Notes, c.note)
		}
	}
}

// A script that an ignore pattern excludes is an error, even if only a shell
// line names it. Following the hint of each error leads to success.
func TestExcludedScriptIsRejectedWithHint(t *testing.T) {
	t.Chdir(t.TempDir())
	makeFiles(t, map[string]string{".gitignore": "build/\n*.gen.py\n", "build/train.py": "", "build/sub/x.gen.py": "", "a": "", "a.gen.py": ""})
	ignore := ""
	for _, c := range []struct{ script, why, line string }{
		{"build/train.py", "build/train.py is not sent to the hosts: .gitignore:1", "!/build/"},
		{"a.gen.py", "a.gen.py is not sent to the hosts: .gitignore:2", "!/a.gen.py"},
		// The hint for the first case has already included build/.
		{"build/sub/x.gen.py", "build/sub/x.gen.py is not sent to the hosts: .gitignore:2", "!/build/sub/x.gen.py"},
	} {
		for _, command := range [][]string{{"python3", c.script}, {"bash", "-c", "exec python3 -u " + c.script + " --x"}} {
			_, err := resolve(t, Source{Workdir: ".", Program: command[0], Args: command[1:]})
			if err == nil || exit.Code(err) != exit.CodeUsage || !strings.Contains(err.Error(), c.why) || exit.Hint(err) != "add the line "+c.line+" to .plxignore" {
				t.Errorf("%q: %v, hint %q; want %q and %q", command, err, exit.Hint(err), c.why, c.line)
			}
		}
		if _, err := resolve(t, Source{Workdir: ".", Program: "bash", Args: []string{"-c", "cd build; python3 " + c.script}}); err != nil {
			t.Errorf("a line that goes elsewhere: %v", err)
		}
		ignore += c.line + "\n"
		makeFiles(t, map[string]string{".plxignore": ignore})
		if _, err := resolve(t, Source{Workdir: ".", Program: "python3", Args: []string{c.script}}); err != nil {
			t.Errorf("after the hint for %s: %v", c.script, err)
		}
	}
}

// The hosts must be asked whether one of their commands contains plx's
// trainer, unless it is known not to.
func TestAskHostsForUnknownCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	makeFiles(t, map[string]string{"train": "#!/bin/sh\n", ".venv/bin/tool": "#!/bin/sh\n", ".venv/pyvenv.cfg": ""})
	for _, c := range []struct {
		src  Source
		asks bool
	}{
		{Source{Program: "mytrainer", Args: []string{"--arch", "ps"}}, true},
		{Source{Program: "mytrainer", Path: "/opt/bin", Setup: "module load x"}, true},
		{Source{Program: "mytrainer", Venv: ".venv"}, false}, // the command may be part of the virtual environment
		{Source{Program: "./train"}, false},
		{Source{Program: ".venv/bin/tool", Venv: ".venv"}, false},
		{Source{Program: "python3", Args: []string{"-c", "1"}}, false},
		{Source{Program: "bash", Args: []string{"-c", "mytrainer"}}, false},
		{Source{Program: "numactl", Args: []string{"-N", "0", "mytrainer"}}, false},
		{Source{Program: "mpirun", Args: []string{"mytrainer"}}, false},
	} {
		if p, err := resolve(t, c.src); err != nil || p.AskHosts != c.asks {
			t.Errorf("%+v: %v, %v; want %v", c.src, p.AskHosts, err, c.asks)
		}
	}
}

// Resolve determines how an executable reaches the hosts, and by which path
// tasks execute it there.
func TestKindAndCommandOfProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	makeFiles(t, map[string]string{"train": "#!/bin/sh\n", "src/run": "#!/bin/sh\n", "src/left": "#!/bin/sh\n", "src/.plxignore": "left\n", ".venv/bin/tool": "#!/bin/sh\n", ".venv/pyvenv.cfg": ""})
	for _, c := range []struct {
		src     Source
		kind    Kind
		command string
	}{
		{Source{Program: "python3"}, OnHost, "python3"},
		{Source{Program: "./train"}, Local, "./train"},
		{Source{Program: "./train", Workdir: "src"}, Local, "./train"},
		{Source{Program: "src/run", Workdir: "src"}, InWorkdir, "./run"},
		{Source{Program: "src/run", Workdir: "."}, InWorkdir, "./src/run"},
		{Source{Program: "src/left", Workdir: "src"}, Local, "src/left"},
		{Source{Program: ".venv/bin/tool", Venv: ".venv"}, InVenv, "tool"},
		{Source{Program: ".venv/bin/tool", Venv: ".venv", Workdir: "."}, InVenv, "tool"},
	} {
		p, err := resolve(t, c.src)
		if err != nil || p.Kind != c.kind || p.Command != c.command {
			t.Errorf("%+v: %v %q, %v; want %v %q", c.src, p.Kind, p.Command, err, c.kind, c.command)
		}
	}
}
