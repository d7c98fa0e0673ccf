package entrypoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/exit"
)

// makeVenv creates the files that identify a virtual environment, whose python
// is a symbolic link.
func makeVenv(t *testing.T, dir string) {
	t.Helper()
	makeFiles(t, map[string]string{dir + "/pyvenv.cfg": "", dir + "/bin/torchrun": "#!python\n", dir + "/bin/activate": "", "elsewhere/bin/python3.11": "\x7fELF"})
	base, err := filepath.Abs("elsewhere/bin/python3.11")
	if err != nil {
		t.Fatal(err)
	}
	link(t, base, dir+"/bin/python")
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

// The virtual environment of a program is found for each way to write the
// program's path.
func TestReportV1ProgramOfAVenv(t *testing.T) {
	t.Chdir(t.TempDir())
	makeVenv(t, ".venv")
	link(t, ".venv", "linked")
	link(t, ".venv/bin", "tools")
	link(t, "tools/python", "py")
	makeFiles(t, map[string]string{"bin/python": "", "plain/bin/python": ""})
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{
		".venv/bin/python": ".venv python", "./.venv/bin/torchrun": ".venv torchrun", "linked/bin/python": "linked python", here + "/.venv/bin/python": here + "/.venv python",
		"tools/python": ".venv python", "./py": ".venv python",
		"python": " ", "bin/python": " ", "plain/bin/python": " ", ".venv/bin/missing": " ", ".venv/bin": " ",
	} {
		root, command := venvOf(program)
		if got := root + " " + command; got != want {
			t.Errorf("%s: %q, want %q", program, got, want)
		}
		if root == "" {
			continue
		}
		s := Source{Program: program, Args: []string{"train.py"}, Venv: Source{Program: program}.OwnVenv()}
		if kind, command := s.place(nil); kind != InVenv || !strings.HasSuffix(want, " "+command) {
			t.Errorf("%s: %v %q", program, kind, command)
		}
	}
	t.Chdir(".venv/bin")
	if root, command := venvOf("./python"); root != ".." || command != "python" {
		t.Errorf("in bin: %q %q", root, command)
	}
}

// If a local Python would be sent without its modules, there is a note or an
// error.
func TestReportV1BareInterpreter(t *testing.T) {
	t.Chdir(t.TempDir())
	makeVenv(t, ".venv")
	makeVenv(t, "other")
	makeFiles(t, map[string]string{"conda/conda-meta/history": "", "conda/bin/python3.12": "\x7fELF", "shims/python3": "#!/bin/sh\n", "train.py": "", "app": "\x7fELF"})
	link(t, "elsewhere/bin/python3.11", "run")
	system := "/usr/bin/python3"
	for command, want := range map[string]string{
		"conda/bin/python3.12 train.py":            "it is of the conda environment",
		"elsewhere/bin/python3.11 train.py":        "would be sent alone, without its modules",
		"./run train.py":                           "would be sent alone, without its modules",
		"numactl -N 0 .venv/bin/python train.py":   "plx launch --venv .venv numactl -N 0 python train.py",
		"env A=1 nice ./.venv/bin/python train.py": "plx launch --venv .venv env A=1 nice python train.py",
		"bash -c 'source .venv/bin/activate;x'":    "note: .venv/bin/activate: hosts have no virtual environment at that path; --venv .venv sends it",
		"bash -c .venv/bin/python":                 "note: .venv/bin/python: hosts",
		system + " train.py":                       "note: " + system + " is sent alone",
		"./shims/python3 train.py":                 "",
		"./app":                                    "",
		"python3 train.py":                         "",
	} {
		words := strings.Fields(command)
		if strings.HasPrefix(words[0], "/") && !isFile(words[0]) {
			continue // no system Python on this machine
		}
		p, err := resolve(t, Source{Program: words[0], Args: words[1:], Copy: []string{"train.py"}})
		got := strings.Join(p.Notes, "|")
		if err != nil {
			got = err.Error() + "|" + exit.Hint(err)
		}
		if !strings.Contains(got, want) || (got == "") != (want == "") || err != nil && exit.Code(err) != exit.CodeUsage {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	if err := (Source{Program: "other/bin/python", Venv: ".venv"}).Check(); err == nil || !strings.Contains(err.Error(), "other/bin/python belongs to the virtual environment other, but --venv is .venv") {
		t.Errorf("two environments: %v", err)
	}
}
