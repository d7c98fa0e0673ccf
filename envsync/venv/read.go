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

// Options control how Read reads an environment.
type Options struct {
	Home  string      // absolute path of the user's home folder; Read marks an interpreter below it to be sent to the hosts; "": the interpreter is never sent
	Cache string      // local folder that stores file hashes between calls, as in tree.Options
	Count *tree.Count // receives the progress of reading; may be nil
	// Workdir is the absolute path, without symbolic links, of the working
	// directory that plx also sends to the hosts. "" means that plx sends no
	// working directory.
	Workdir string
}

// Venv is a Python virtual environment of the local machine.
type Venv struct {
	Folder *tree.Folder // files of the environment to send
	Base   *tree.Folder // installation folder of the base interpreter, which is sent to hosts too; nil if the hosts must already have an interpreter
	Python Python       // description of the base interpreter
	Notes  []string     // notes for the user about files that the environment uses but plx does not send to hosts
	// InPlace lists folders below Options.Workdir, as paths relative to it,
	// from which editable installs (pip install -e) are imported. Hosts find
	// them in their copy of the working directory.
	InPlace []string

	root        string   // absolute path of the environment, symbolic links resolved
	names       []string // absolute paths under which the environment's own files, such as scripts, may refer to the environment
	links       []string // paths in the environment that are links to, or copies of, the interpreter
	interpreter string   // absolute path of the interpreter, symbolic links resolved
	baseRoot    string   // absolute path of the base interpreter's installation folder; "" if that folder is not sent
	loader      string   // path of the ELF loader of the interpreter, such as /lib64/ld-linux-x86-64.so.2; "" if the interpreter needs none
	copies      bool     // the environment contains copies of the interpreter, not links to it
}

// Mistake is an error that the user has caused, with a hint.
type Mistake struct {
	error
	hint string
}

// Hint returns advice on how to avoid the error.
func (m *Mistake) Hint() string { return m.hint }

func mistake(hint, format string, args ...any) error {
	return &Mistake{fmt.Errorf(format, args...), hint}
}

// Read checks the virtual environment in the folder dir, hashes its files and
// finds packages that are installed outside of it.
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
	v.Notes = append(v.Notes, v.notePackagesOutside(ctx, o.Workdir)...)
	return v, nil
}

// advised replaces the hint of a tree.RefusedError. That hint suggests a line
// in .plxignore, but .plxignore does not apply to an environment.
func advised(err error) error {
	if errors.As(err, new(*tree.RefusedError)) {
		return mistake("install what it belongs to on the hosts, or make the environment without it", "%w", err)
	}
	return err
}

// find checks that dir is a virtual environment and finds its interpreter.
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

// resolve returns the path of the base interpreter outside the environment. If
// the environment contains a copy of the interpreter, resolve finds the folder
// of the original in pyvenv.cfg.
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
		return "", errors.New("pyvenv.cfg has no line home = FOLDER")
	}
	return v.original(string(text), home, filepath.Base(real))
}

// original returns the interpreter of which the environment contains a copy.
// text is the content of pyvenv.cfg, home the value of its key "home", and
// name the copy's file name. The original may have another name than the copy:
// Debian has python3.11 but no python.
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

// python returns the path bin/python in the environment.
func (v *Venv) python() string { return filepath.Join(v.root, "bin", "python") }

// setting returns the value of a key such as "home" in text, the content of
// pyvenv.cfg. It returns "" if the key is missing.
func setting(text, key string) string {
	for line := range strings.Lines(text) {
		if k, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// check runs the interpreter and compares its version with the version for
// which the packages are installed.
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

// findBase sets v.baseRoot to the installation folder of the interpreter if
// the folder is below the user's home folder.
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

// within reports whether file is dir or is below it; both must be absolute
// paths.
func within(dir, file string) bool {
	p, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(p)
}

// copied matches the paths that copies of the interpreter have in an
// environment, such as bin/python3.
var copied = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^bin/(python|pypy)[0-9.]*$`) })

// leave implements tree.Options.Leave for the environment: it returns why a
// file is not sent, or "".
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
			return "" // The link points to another name of the interpreter in the same folder, so it is sent.
		}
		v.links = append(v.links, p)
		return "hosts have an interpreter of their own"
	}
	return v.leaveLink(v.root, p, real, err)
}

// leaveOfBase implements tree.Options.Leave for the base interpreter's folder:
// it returns why a file is not sent, or "".
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

// leaveLink returns why the symbolic link p is not sent, or "". A link is not
// sent if it is broken or points to a folder outside root. For a link to a
// file outside root, the file itself is sent.
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

// loaderOf returns the path of the ELF loader (PT_INTERP) of an executable, or
// "" if it has none.
func loaderOf(file string) string {
	program, err := elf.Open(file)
	if err != nil {
		return "" // the file is not an ELF file but an executable of another operating system
	}
	defer program.Close() // opened for reading: an error of Close does not matter
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

// Request returns the request with which a host installs the environment.
func (v *Venv) Request() Request {
	r := Request{Manifest: v.Folder.ID().String(), Names: v.names, Links: v.links,
		Python: v.Python, Interpreter: v.interpreter, Loader: v.loader}
	if v.Base != nil {
		r.Base, r.BaseNames = v.Base.ID().String(), []string{v.baseRoot}
		r.Interpreter, _ = filepath.Rel(v.baseRoot, v.interpreter) // Rel returns no error, because the interpreter is two folders below baseRoot
	}
	return r
}

// cause removes the operation, such as "lstat", from a file error and keeps
// the path.
func cause(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return fmt.Errorf("%s: %w", e.Path, e.Err)
	}
	return err
}
