package venv

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
)

// environment creates a virtual environment whose interpreter is a shell
// script.
func environment(t *testing.T) (dir, interpreter string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "env")
	interpreter = filepath.Join(t.TempDir(), "python3.11")
	write(t, interpreter, "#!/bin/sh\ncase $* in *addpackage*) printf '\\nplx-added {}'; exit; esac\necho '{\"implementation\":\"cpython\",\"version\":\"3.11.2\",\"platform\":\"linux-x86_64\",\"abi\":\"abi\"}'\n")
	write(t, filepath.Join(dir, "pyvenv.cfg"), "home = "+filepath.Dir(interpreter)+"\n")
	write(t, filepath.Join(dir, "bin", "tool"), "#!"+dir+"/bin/python\n")
	write(t, filepath.Join(site(dir), "module.py"), "")
	link(t, interpreter, filepath.Join(dir, "bin", "python3"))
	link(t, "python3", filepath.Join(dir, "bin", "python"))
	return dir, interpreter
}

func site(dir string) string { return filepath.Join(dir, "lib", "python3.11", "site-packages") }

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := executable.Write(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, file string) {
	t.Helper()
	if err := os.Symlink(to, file); err != nil {
		t.Fatal(err)
	}
}

func readVenv(t *testing.T, dir, home string) *Venv {
	t.Helper()
	v, err := Read(t.Context(), dir, Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *Venv) paths() (all []string) {
	for _, e := range v.Folder.Entries {
		all = append(all, e.Path)
	}
	return all
}

// A .pyc file is sent if Python would use it locally, because hosts cannot
// write .pyc files.
func TestOnlyFreshPycFilesAreSent(t *testing.T) {
	dir, _ := environment(t)
	source := filepath.Join(site(dir), "module.py")
	info, err := os.Stat(source)
	if err != nil {
		t.Fatal(err)
	}
	compile := func(name string, flags uint32, modified time.Time, size uint32) {
		head := make([]byte, header)
		binary.LittleEndian.PutUint32(head[4:], flags)
		binary.LittleEndian.PutUint32(head[8:], uint32(modified.Unix()))
		binary.LittleEndian.PutUint32(head[12:], size)
		write(t, filepath.Join(site(dir), "__pycache__", name+".cpython-311.pyc"), string(head)+"code")
	}
	compile("module", 0, info.ModTime(), 0)
	compile("module.opt-1", 0, info.ModTime(), 1) // of another size
	compile("module.opt-2", 0, info.ModTime().Add(time.Second), 0)
	compile("gone", 0, info.ModTime(), 0)
	compile("hashed", 1, time.Time{}, 0)
	var sent []string
	for _, p := range readVenv(t, dir, "").paths() {
		if strings.HasSuffix(p, ".pyc") {
			sent = append(sent, filepath.Base(p))
		}
	}
	if want := []string{"hashed.cpython-311.pyc", "module.cpython-311.pyc"}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
}

func TestLinks(t *testing.T) {
	dir, interpreter := environment(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "cached.py"), "cached")
	link(t, filepath.Join(outside, "cached.py"), filepath.Join(site(dir), "cached.py")) // as uv does
	link(t, outside, filepath.Join(site(dir), "folder"))
	link(t, "/no/such/file", filepath.Join(site(dir), "dangling"))
	link(t, "lib", filepath.Join(dir, "lib64"))
	v := readVenv(t, dir, "")
	for p, want := range map[string]bool{"bin/python3": false, "bin/python": true, "lib64": true, "lib/python3.11/site-packages/cached.py": true,
		"lib/python3.11/site-packages/folder": false, "lib/python3.11/site-packages/dangling": false} {
		if slices.Contains(v.paths(), p) != want {
			t.Errorf("%s is sent: %v, want %v", p, !want, want)
		}
	}
	if e, _ := v.Folder.Find("lib/python3.11/site-packages/cached.py"); e.Size != int64(len("cached")) {
		t.Errorf("the file that a link leads to: %+v", e)
	}
	if len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "site-packages/folder is a link to the folder "+outside) {
		t.Errorf("notes %q", v.Notes)
	}
	if r := v.Request(); r.Interpreter != interpreter || !slices.Equal(r.Links, []string{"bin/python3"}) || r.Base != "" {
		t.Errorf("request %+v", r)
	}
}

// realEnvironment creates a virtual environment with the local machine's
// Python.
func realEnvironment(t *testing.T) (dir, site string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "env")
	if said, err := exec.Command("python3", "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Fatalf("python3 -m venv: %v: %s", err, said)
	}
	sites, err := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages"))
	if err != nil || len(sites) != 1 {
		t.Fatalf("site-packages: %q, %v", sites, err)
	}
	return dir, sites[0]
}

// editable writes the record that pip writes for an editable install (pip
// install -e).
func editable(t *testing.T, site, name, dir string) {
	t.Helper()
	write(t, filepath.Join(site, name+"-1.0.dist-info", "direct_url.json"), `{"dir_info": {"editable": true}, "url": "file://`+dir+`"}`)
}

// A note names every folder that a .pth file adds to sys.path and that is not
// sent.
func TestPackagesOutsideTheEnvironmentAreNamed(t *testing.T) {
	dir, site := realEnvironment(t)
	top := filepath.Dir(dir)
	for _, folder := range []string{"mine/src", "relative", "appended", "inserted", "joined", "customized", "nested", "env/own", "flat", "other/impl"} {
		if err := os.MkdirAll(filepath.Join(top, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(site, "__editable__.mine.pth"), top+"/mine/src\n")
	editable(t, site, "mine", top+"/mine")
	write(t, filepath.Join(site, "sent-1.0.dist-info", "direct_url.json"), `{"dir_info": {}, "url": "file:///home/u/sent"}`)
	write(t, filepath.Join(site, "odd-1.0.dist-info", "direct_url.json"), `{"dir_info"`)
	write(t, filepath.Join(site, "a.pth"), "# a comment\n../../../../relative\n../../../own\n"+dir+"/own\n/no/such/folder\n")
	write(t, filepath.Join(site, "b.pth"), "import sys; sys.path.append('"+top+"/appended')\nimport sys; sys.path.insert(0, '"+top+"/inserted')\nprint('noise')\n")
	write(t, filepath.Join(site, "c.pth"), "import os, site, sys; sys.path += [os.path.join('"+top+"', 'joined')]; site.addsitedir('"+top+"/nested')\n")
	write(t, filepath.Join(site, "d.pth"), "import no_such_module_here\n")
	write(t, filepath.Join(site, "sitecustomize.py"), "import sys\nsys.path.append('"+top+"/customized')\n")
	write(t, filepath.Join(site, "e.pth"), "import __editable___flat_finder\n")
	write(t, filepath.Join(site, "__editable___flat_finder.py"), "MAPPING = {'flat': '"+top+"/flat/flat', 'impl': '"+top+"/other/impl_1'}\n")
	write(t, filepath.Join(site, "f.pth"), "import _exact\n")
	write(t, filepath.Join(site, "_exact.py"), "import sys\nclass F:\n  _redirections = {'exact': '"+top+"/exact/exact/__init__.py'}\n  find_spec = classmethod(lambda *a: None)\nsys.meta_path.append(F)\n")
	miss := ", which is not sent: hosts miss it unless --workdir sends that folder, or it is installed without -e"
	added := func(file, folder string) string {
		return "a folder that " + file + " adds to the module path is in " + top + "/" + folder + miss
	}
	want := []string{
		"the package impl is imported from " + top + "/other/impl_1, which has another name: hosts miss it unless it is installed without -e",
		added("b.pth", "appended"), added("sitecustomize.py", "customized"), "the package exact is in " + top + "/exact" + miss, "the package flat is in " + top + "/flat" + miss,
		added("b.pth", "inserted"), added("c.pth", "joined"), "the package mine is in " + top + "/mine" + miss, added("c.pth", "nested"), added("a.pth", "relative"),
	}
	if v := readVenv(t, dir, ""); !slices.Equal(v.Notes, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(v.Notes, "\n"), strings.Join(want, "\n"))
	}
}

// Editable installs in the working directory, which is sent anyway, are found
// there: as "uv sync" and "pip install -e" make them, with any form of .pth
// file or none.
func TestEditableInstallsInWorkdirAreFound(t *testing.T) {
	dir, site := realEnvironment(t)
	work := filepath.Dir(dir)
	for _, folder := range []string{"lib/src", "flat/flat", "hooked/src", "relative", "appended"} {
		if err := os.MkdirAll(filepath.Join(work, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(site, "_lib.pth"), work+"/lib/src\n../../../../relative\nimport sys; sys.path.append('"+work+"/appended')\nimport __editable___m_finder\n")
	write(t, filepath.Join(site, "__editable___m_finder.py"), "MAPPING = {'m.n': '"+work+"/mapped/python/m/n'}\n")
	write(t, filepath.Join(work, "mapped", "python", "m", "n", "__init__.py"), "")
	for _, name := range []string{"lib", "flat", "hooked", "mapped"} {
		editable(t, site, name, work+"/"+name)
	}
	v, err := Read(t.Context(), dir, Options{Workdir: work})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"appended", "flat", "hooked/src", "lib/src", "mapped/python", "relative"}; !slices.Equal(v.InPlace, want) || len(v.Notes) > 0 {
		t.Errorf("in place %q, want %q; notes %q", v.InPlace, want, v.Notes)
	}
	if v, err = Read(t.Context(), dir, Options{Workdir: t.TempDir()}); err != nil || len(v.InPlace) > 0 || len(v.Notes) != 6 {
		t.Errorf("another folder is sent: in place %q, notes %q, error %v", v.InPlace, v.Notes, err)
	}
}

func TestInterpreterUnderTheHome(t *testing.T) {
	dir, interpreter := environment(t)
	home := t.TempDir()
	prefix := filepath.Join(home, "pythons", "3.11")
	write(t, filepath.Join(prefix, "bin", "python3.11"), string(must(os.ReadFile(interpreter))))
	write(t, filepath.Join(prefix, "lib", "python3.11", "os.py"), "")
	write(t, filepath.Join(prefix, "lib", "python3.11", "test", "x.py"), "")
	python := filepath.Join(dir, "bin", "python3")
	if err := os.Remove(python); err != nil {
		t.Fatal(err)
	}
	link(t, filepath.Join(prefix, "bin", "python3.11"), python)
	v := readVenv(t, dir, home)
	var sent []string
	for _, e := range v.Base.Entries {
		sent = append(sent, e.Path)
	}
	if want := []string{"bin", "bin/python3.11", "lib", "lib/python3.11", "lib/python3.11/os.py"}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	r := v.Request()
	if r.Interpreter != "bin/python3.11" || r.Base != v.Base.ID().String() || r.BaseFolder() == "" || r.BaseFolder() == r.Folder() {
		t.Errorf("request %+v", r)
	}
	// The same for an environment with copies of the interpreter.
	if err := os.Remove(python); err != nil {
		t.Fatal(err)
	}
	write(t, python, string(must(os.ReadFile(interpreter))))
	link(t, "python3.11", filepath.Join(prefix, "bin", "python3"))
	write(t, filepath.Join(dir, "pyvenv.cfg"), "home = "+filepath.Join(prefix, "bin")+"\n")
	if r := readVenv(t, dir, home).Request(); r.Interpreter != "bin/python3.11" || !slices.Equal(r.Links, []string{"bin/python3"}) {
		t.Errorf("with copies: request %+v", r)
	}
	if _, err := Read(t.Context(), dir, Options{Home: prefix}); err == nil || !strings.Contains(err.Error(), "shares its folder with other programs") {
		t.Errorf("an interpreter in the home itself: %v", err)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestFits(t *testing.T) {
	p := Python{"cpython", "3.11.2", "linux-x86_64", "cpython-311-x86_64-linux-gnu"}
	for other, want := range map[Python]bool{
		{"cpython", "3.11.9", "linux-x86_64", "cpython-311-x86_64-linux-gnu"}:  true,
		{"cpython", "3.12.2", "linux-x86_64", "cpython-311-x86_64-linux-gnu"}:  false,
		{"pypy", "3.11.2", "linux-x86_64", "cpython-311-x86_64-linux-gnu"}:     false,
		{"cpython", "3.11.2", "linux-aarch64", "cpython-311-x86_64-linux-gnu"}: false,
		{"cpython", "3.11.2", "linux-x86_64", "cpython-311-x86_64-linux-musl"}: false,
		{"cpython", "3.11.2", "linux-x86_64", "cpython-311t-x86_64-linux-gnu"}: false,
		{"cpython", "3.110.2", "linux-x86_64", "cpython-311-x86_64-linux-gnu"}: false,
	} {
		if p.Fits(other) != want {
			t.Errorf("%s runs under %s: %v", p, other, !want)
		}
	}
}

func TestCopiedInterpreterFindsItsOriginal(t *testing.T) {
	for _, text := range []string{"home = HOME\nversion = 3.11.2\n", "home = HOME\nversion_info = 3.11.2.final.0\n",
		"home = HOME\nexecutable = INTERPRETER\n", "home = HOME\nbase-executable = INTERPRETER\n"} {
		dir, interpreter := environment(t)
		for _, name := range []string{"python", "python3"} {
			if err := os.Remove(filepath.Join(dir, "bin", name)); err != nil {
				t.Fatal(err)
			}
			original, err := os.ReadFile(interpreter)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "bin", name), string(original))
		}
		write(t, filepath.Join(dir, "pyvenv.cfg"), strings.NewReplacer("HOME", filepath.Dir(interpreter), "INTERPRETER", interpreter).Replace(text))
		if got := readVenv(t, dir, "").Request().Interpreter; got != interpreter {
			t.Errorf("%q: the interpreter is %s, want %s", text, got, interpreter)
		}
	}
}

func TestLargeFileIsRefused(t *testing.T) {
	dir, _ := environment(t)
	large := filepath.Join(site(dir), "large.so")
	write(t, large, "")
	if err := os.Truncate(large, 3<<30); err != nil {
		t.Fatal(err)
	}
	_, err := Read(t.Context(), dir, Options{})
	var advice interface{ Hint() string }
	if !errors.As(err, &advice) || !strings.Contains(err.Error(), "large.so: it has 3.0 GiB") || strings.Contains(advice.Hint(), "plxignore") {
		t.Errorf("%v", err)
	}
}
