//go:build linux

package install

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := executable.Write(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestScriptsGetTheNewPath(t *testing.T) {
	long := "/home/" + strings.Repeat("x", 150)
	for name, c := range map[string]struct{ dir, before, after string }{
		"first line":     {"/new", "#!/old/env/bin/python3\nx", "#!/new/bin/python3\nx"},
		"other name":     {"/new", "#!/link/env/bin/python3 -I\nx", "#!/new/bin/python3 -I\nx"},
		"activate":       {"/new", "VIRTUAL_ENV='/old/env'\nPATH=\"/old/env/bin:$PATH\"\n", "VIRTUAL_ENV='/new'\nPATH=\"/new/bin:$PATH\"\n"},
		"another folder": {"/new", "#!/old/env2/bin/python\n/old/env-x /old/envelope", "#!/old/env2/bin/python\n/old/env-x /old/envelope"},
		"long":           {long, "#!/old/env/bin/python3 -I\nx", "#!/bin/sh\n'''exec' \"" + long + "/bin/python3\" -I \"$0\" \"$@\"\n' '''\nx"},
		"space":          {"/a b", "#!/old/env/bin/python3\nx", "#!/bin/sh\n'''exec' \"/a b/bin/python3\"  \"$0\" \"$@\"\n' '''\nx"},
		"shell":          {long, "#!/bin/sh\n'''exec' \"/old/env/bin/python3\" \"$0\" \"$@\"\n' '''\nx", "#!/bin/sh\n'''exec' \"" + long + "/bin/python3\" \"$0\" \"$@\"\n' '''\nx"},
		"program":        {"/new", "\x7fELF\x00/old/env/bin", "\x7fELF\x00/old/env/bin"},
		"last in a file": {"/new", "/old/env", "/new"},
		"of the system":  {"/new", "#!/usr/bin/env python3\n", "#!/usr/bin/env python3\n"},
	} {
		at := t.TempDir()
		write(t, filepath.Join(at, "bin", "tool"), c.before)
		if err := (relocator{dir: c.dir, names: []string{"/old/env", "/link/env"}}).run(at); err != nil {
			t.Fatal(err)
		}
		if got := read(t, filepath.Join(at, "bin", "tool")); got != c.after {
			t.Errorf("%s: %q, want %q", name, got, c.after)
		}
	}
}

func TestPyvenvCfgGetsTheInterpreter(t *testing.T) {
	at := t.TempDir()
	write(t, filepath.Join(at, "bin", "x"), "")
	write(t, filepath.Join(at, "pyvenv.cfg"), "home = /old/python/bin\nimplementation = CPython\nversion_info = 3.11.2\nbase-prefix = /old/python\nexecutable=/old/python/bin/python3.11\ncommand = /old/python/bin/python3.11 -m venv /old/env")
	if err := (relocator{dir: "/new/env", names: []string{"/old/env"}, links: []string{"bin/python3"}, interpreter: "/new/python/bin/python3.11"}).run(at); err != nil {
		t.Fatal(err)
	}
	want := "home = /new/python/bin\nimplementation = CPython\nversion_info = 3.11.2\nbase-prefix = /new/python\nexecutable = /new/python/bin/python3.11\ncommand = /old/python/bin/python3.11 -m venv /new/env"
	if got := read(t, filepath.Join(at, "pyvenv.cfg")); got != want {
		t.Errorf("pyvenv.cfg: %q, want %q", got, want)
	}
	if to, err := os.Readlink(filepath.Join(at, "bin", "python3")); to != "/new/python/bin/python3.11" {
		t.Errorf("bin/python3 leads to %s, %v", to, err)
	}
	if err := (relocator{links: []string{"../x"}}).run(at); err == nil {
		t.Error("a link outside of the environment was made")
	}
}

// A source file gets the modification time recorded in its .pyc file.
func TestSourcesGetTheTimesOfTheirPycFiles(t *testing.T) {
	at := t.TempDir()
	head := make([]byte, 16)
	binary.LittleEndian.PutUint32(head[8:], 1234567)
	binary.LittleEndian.PutUint32(head[12:], 4)
	write(t, filepath.Join(at, "bin", "x"), "")
	for name, text := range map[string]string{"a": "same", "b": "other size"} {
		write(t, filepath.Join(at, name+".py"), text)
		write(t, filepath.Join(at, "__pycache__", name+".cpython-311.pyc"), string(head))
	}
	if err := (relocator{}).run(at); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a.py": true, "b.py": false} {
		info, err := os.Stat(filepath.Join(at, name))
		if err != nil || info.ModTime().Equal(time.Unix(1234567, 0)) != want {
			t.Errorf("%s: %v, %v", name, info.ModTime(), err)
		}
	}
}

// An interpreter with a shared library, as pyenv builds it, runs from another
// folder.
func TestMovedInterpreterFindsItsLibrary(t *testing.T) {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	old, now := filepath.Join(t.TempDir(), "a-long-name-of-a-folder"), filepath.Join(t.TempDir(), "now")
	write(t, filepath.Join(old, "lib", "lib.c"), "int answer(void) { return 42; }")
	write(t, filepath.Join(old, "bin", "main.c"), "int answer(void); int main(void) { return answer(); }")
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-o", filepath.Join(old, "lib", "libanswer.so"), filepath.Join(old, "lib", "lib.c")},
		{"-o", filepath.Join(old, "bin", "python"), filepath.Join(old, "bin", "main.c"), "-L" + filepath.Join(old, "lib"), "-lanswer", "-Wl,-rpath," + filepath.Join(old, "lib")},
	} {
		if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.Rename(old, now); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(now, "bin", "python")
	before := exec.Command(python)
	if before.Run(); before.ProcessState.ExitCode() == 42 {
		t.Fatal("it finds its library without a change")
	}
	if err := (relocator{dir: now, names: []string{old}, program: "bin/python"}).run(now); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python)
	if cmd.Run(); cmd.ProcessState.ExitCode() != 42 {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	short := relocator{names: []string{old}, program: "bin/python"}
	if err := short.libraries(now); err != nil {
		t.Errorf("the second time: %v", err)
	}
}

func TestProtect(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "lib", "x.py"), "")
	if err := protect(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "lib", "lib/x.py"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o555 && name != "" || info.Mode().Perm()&0o222 != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	Unprotect(dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}
