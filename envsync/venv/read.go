package venv

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/plx-run/plx/envsync/tree"
)

// Options are how an environment is read.
type Options struct {
	Home  string      // the user's home, absolute: an interpreter below it is sent; "": none is
	Cache string      // as in tree.Options
	Count *tree.Count // as in tree.Options
	// Workdir is a folder that is sent besides, absolute and without links; "": none is.
	Workdir string
}

// Venv is a virtual environment of this machine.
type Venv struct {
	Folder *tree.Folder // what is sent of it
	Base   *tree.Folder // the folder with the interpreter; nil: the hosts must have one
	Python Python       // the interpreter
	Notes  []string     // for the user: what hosts will miss
	// InPlace are folders below Options.Workdir, relative to it, from which packages are
	// imported that were installed in place: hosts find them there too.
	InPlace []string

	root        string   // absolute path, without links
	names       []string // absolute paths by which files of it may name it
	links       []string // paths in it that are links to the interpreter
	interpreter string   // absolute path of the interpreter, without links
	baseRoot    string   // absolute path of the folder with the interpreter
	loader      string   // what loads the interpreter; "": nothing
	copies      bool     // it has copies of the interpreter, not links to it
}

// Mistake is an error of the user, with advice.
type Mistake struct {
	error
	hint string
}

// Hint says what to do instead.
func (m *Mistake) Hint() string { return m.hint }

func mistake(hint, format string, args ...any) error {
	return &Mistake{fmt.Errorf(format, args...), hint}
}

// Read reads the environment in the folder dir and hashes its files.
func Read(ctx context.Context, dir string, o Options) (*Venv, error) {
	v, err := find(dir)
	if err != nil {
		return nil, err
	}
	if err := v.check(ctx, dir); err != nil {
		return nil, err
	}
	if err := v.findBase(dir, o.Home); err != nil {
		return nil, err
	}
	if v.Folder, err = tree.Scan(ctx, v.root, tree.Options{Cache: o.Cache, Count: o.Count, All: true, Follow: true, Leave: v.leave}); err != nil {
		return nil, advised(err)
	}
	slices.Sort(v.links)
	if v.baseRoot != "" {
		if v.Base, err = tree.Scan(ctx, v.baseRoot, tree.Options{Cache: o.Cache, Count: o.Count, All: true, Follow: true, Leave: v.leaveOfBase}); err != nil {
			return nil, fmt.Errorf("its interpreter's folder %s: %w", v.baseRoot, advised(err))
		}
	}
	v.Notes = append(v.Notes, v.elsewhere(ctx, o.Workdir)...)
	return v, nil
}

// advised replaces advice that holds for working directories only: an environment has no
// .plxignore.
func advised(err error) error {
	if errors.As(err, new(*tree.RefusedError)) {
		return mistake("install what it belongs to on the hosts, or make the environment without it", "%w", err)
	}
	return err
}

// find finds the environment and its interpreter.
func find(dir string) (*Venv, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, mistake("python3 -m venv DIR, or uv venv DIR, makes one", "%w", cause(err))
	}
	v := &Venv{root: root, names: []string{root}}
	if abs != root {
		v.names = append(v.names, abs)
	}
	switch {
	case !utf8.ValidString(root + abs):
		return nil, errors.New("its path is not valid UTF-8")
	case exists(root, "conda-meta"):
		return nil, mistake("pack it with conda-pack, send it with --copy and unpack it with --setup: see docs/environment.md",
			"it is a conda environment, whose programs have its path in their bytes")
	case !exists(root, "pyvenv.cfg") && exists(root, ".venv/pyvenv.cfg"):
		return nil, mistake("--venv "+filepath.Join(dir, ".venv"), "it has no pyvenv.cfg, so it is no virtual environment")
	case !exists(root, "pyvenv.cfg"):
		return nil, mistake("python3 -m venv DIR, or uv venv DIR, makes one", "it has no pyvenv.cfg, so it is no virtual environment")
	}
	if v.interpreter, err = v.resolve(); err != nil {
		return nil, mistake("make the environment again: its interpreter was removed or replaced", "its interpreter: %w", cause(err))
	}
	v.loader = loaderOf(v.interpreter)
	return v, nil
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// resolve returns the interpreter outside of the environment. One that was made with
// copies has its path in pyvenv.cfg only.
func (v *Venv) resolve() (string, error) {
	real, err := filepath.EvalSymlinks(v.python())
	if err != nil || !within(v.root, real) {
		return real, err
	}
	text, err := os.ReadFile(filepath.Join(v.root, "pyvenv.cfg"))
	if err != nil {
		return "", err
	}
	v.copies = true
	home := setting(string(text), "home")
	if !filepath.IsAbs(home) {
		return "", errors.New("pyvenv.cfg has no home")
	}
	return v.original(string(text), home, filepath.Base(real))
}

// original returns the interpreter of which the environment has a copy. text is
// pyvenv.cfg, home its folder there, and name the copy's name, which the original need
// not have: Debian's is python3.11, and there is no python.
func (v *Venv) original(text, home, name string) (string, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(home, name))
	if err == nil {
		return real, nil
	}
	minor := setting(text, "version")
	if parts := strings.SplitN(cmp.Or(minor, setting(text, "version_info")), ".", 3); len(parts) > 1 {
		minor = parts[0] + "." + parts[1]
	}
	for _, other := range []string{setting(text, "executable"), setting(text, "base-executable"),
		filepath.Join(home, "python"+minor), filepath.Join(home, "python3")} {
		if found, wrong := filepath.EvalSymlinks(other); wrong == nil && filepath.IsAbs(other) && !within(v.root, found) {
			return found, nil
		}
	}
	return "", err
}

// python returns the environment's own name for the interpreter.
func (v *Venv) python() string { return filepath.Join(v.root, "bin", "python") }

// setting returns the value of a key of pyvenv.cfg.
func setting(text, key string) string {
	for line := range strings.Lines(text) {
		if k, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// check asks the interpreter, and compares it with the packages.
func (v *Venv) check(ctx context.Context, dir string) (err error) {
	if v.Python, err = Ask(ctx, v.python()); err != nil {
		return mistake("make the environment again: its interpreter was removed or replaced", "%w", err)
	}
	libraries, err := filepath.Glob(filepath.Join(v.root, "lib", "python[0-9]*"))
	if err != nil || v.Python.Implementation != "cpython" || len(libraries) == 0 {
		return err
	}
	for _, library := range libraries {
		if strings.TrimSuffix(filepath.Base(library), "t") == "python"+v.Python.minor() {
			return nil
		}
	}
	return mistake("make the environment again with this interpreter",
		"its packages are for %s, and its interpreter %s is %s", filepath.Base(libraries[0]), v.interpreter, v.Python)
}

// findBase finds the folder of an interpreter below the user's home.
func (v *Venv) findBase(dir, home string) error {
	if home == "" {
		return nil
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	if !within(home, v.interpreter) {
		return nil
	}
	prefix := filepath.Dir(filepath.Dir(v.interpreter))
	if prefix == home || filepath.Base(prefix) == ".local" {
		return mistake("make it with an interpreter of uv or pyenv, or with the system's",
			"its interpreter %s shares its folder with other programs", v.interpreter)
	}
	if exists(prefix, "conda-meta") {
		return mistake("make it with an interpreter of uv or pyenv, or with the system's",
			"its interpreter %s is conda's, whose programs have their path in their bytes", v.interpreter)
	}
	v.baseRoot = prefix
	return nil
}

// within reports whether a file is below a folder; both are absolute.
func within(dir, file string) bool {
	p, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(p)
}

// copied are the names of copies of an interpreter.
var copied = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^bin/(python|pypy)[0-9.]*$`) })

// leave is tree.Options.Leave for the environment.
func (v *Venv) leave(p string, entry fs.DirEntry) (why string) {
	if strings.HasSuffix(p, ".pyc") && stale(filepath.Join(v.root, p)) {
		return "it is older than its source"
	}
	if v.copies && entry.Type().IsRegular() && copied().MatchString(p) {
		v.links = append(v.links, p)
		return "hosts have an interpreter of their own"
	}
	if entry.Type()&fs.ModeSymlink == 0 {
		return ""
	}
	real, err := filepath.EvalSymlinks(filepath.Join(v.root, p))
	if err == nil && filepath.Dir(p) == "bin" && real == v.interpreter {
		target, err := os.Readlink(filepath.Join(v.root, p))
		if err == nil && !strings.Contains(target, "/") {
			return "" // to another name of it in the same folder
		}
		v.links = append(v.links, p)
		return "hosts have an interpreter of their own"
	}
	return v.leaveLink(v.root, p, real, err)
}

// leaveOfBase is tree.Options.Leave for the interpreter's folder.
func (v *Venv) leaveOfBase(p string, entry fs.DirEntry) (why string) {
	switch {
	case strings.HasSuffix(p, ".pyc") && stale(filepath.Join(v.baseRoot, p)):
		return "it is older than its source"
	case p == "lib/python"+v.Python.minor()+"/test":
		return "no program needs it"
	case entry.Type()&fs.ModeSymlink == 0:
		return ""
	}
	real, err := filepath.EvalSymlinks(filepath.Join(v.baseRoot, p))
	return v.leaveLink(v.baseRoot, p, real, err)
}

// leaveLink keeps links behind that lead to nothing, or to a folder elsewhere. A link to
// a file elsewhere is sent as that file.
func (v *Venv) leaveLink(root, p, real string, err error) (why string) {
	if err != nil {
		return "it leads to nothing"
	}
	if info, err := os.Stat(real); err == nil && info.IsDir() && !within(root, real) {
		v.Notes = append(v.Notes, fmt.Sprintf("%s is a link to the folder %s, which is not sent", p, real))
		return "it leads to a folder elsewhere"
	}
	return ""
}

// loaderOf returns the loader that an executable names.
func loaderOf(file string) string {
	program, err := elf.Open(file)
	if err != nil {
		return "" // of another system, which is found by other means
	}
	defer program.Close() // only read
	section := program.Section(".interp")
	if section == nil || section.Size > 4096 {
		return ""
	}
	text, err := section.Data()
	if err != nil {
		return ""
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	return string(text)
}

// Request returns what hosts are asked.
func (v *Venv) Request() Request {
	r := Request{Manifest: v.Folder.ID().String(), Names: v.names, Links: v.links,
		Python: v.Python, Interpreter: v.interpreter, Loader: v.loader}
	if v.Base != nil {
		r.Base, r.BaseNames = v.Base.ID().String(), []string{v.baseRoot}
		r.Interpreter, _ = filepath.Rel(v.baseRoot, v.interpreter) // it is two folders below
	}
	return r
}

// cause drops the "lstat PATH:" that messages have already.
func cause(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return fmt.Errorf("%s: %w", e.Path, e.Err)
	}
	return err
}
