//go:build linux

package install

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/envsync/venv"
)

// relocator adapts the files of an environment or interpreter to the path of the
// folder in which they are installed.
type relocator struct {
	dir         string   // absolute path that the folder will finally have
	names       []string // absolute paths on the sending machine; run replaces them by dir in the files
	links       []string // paths in the folder at which run creates links to the interpreter
	interpreter string   // absolute path of the interpreter; "" if the folder is not an environment but an interpreter's installation
	program     string   // path of the interpreter in its installation folder; "" if the folder is an environment
}

// run adapts the files of the folder, which is at the temporary path at.
func (f relocator) run(at string) error {
	for _, link := range f.links {
		if !filepath.IsLocal(link) {
			return fmt.Errorf("%q leads out of the environment", link)
		}
		if err := os.Symlink(f.interpreter, filepath.Join(at, link)); err != nil {
			return err
		}
	}
	if err := f.settings(at); err != nil {
		return err
	}
	if err := f.libraries(at); err != nil {
		return err
	}
	if err := f.scripts(filepath.Join(at, "bin")); err != nil {
		return err
	}
	return times(at)
}

// settings writes the path of the interpreter into pyvenv.cfg.
func (f relocator) settings(at string) error {
	if f.interpreter == "" {
		return nil
	}
	file := filepath.Join(at, "pyvenv.cfg")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	bin := filepath.Dir(f.interpreter)
	values := map[string]string{"home": bin, "executable": f.interpreter, "base-executable": f.interpreter,
		"base-prefix": filepath.Dir(bin), "base-exec-prefix": filepath.Dir(bin)}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, "=")
		if value, ok := values[strings.TrimSpace(key)]; ok {
			line = strings.TrimSpace(key) + " = " + value + "\n"
		}
		out.WriteString(line)
	}
	return rewrite(file, f.renamed([]byte(out.String())))
}

// maxScript is the maximum size of a script in bytes. A larger file in bin is
// assumed to be a binary program.
const maxScript = 1 << 20

// scripts adapts the text files in bin: the first line of each script, and the
// whole script activate.
func (f relocator) scripts(bin string) error {
	entries, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() > maxScript {
			continue
		}
		file := filepath.Join(bin, e.Name())
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		fixed := f.runnable(f.renamed(text))
		if bytes.Equal(fixed, text) {
			continue
		}
		if err := rewrite(file, fixed); err != nil {
			return err
		}
	}
	return nil
}

// renamed replaces each path of f.names in text by f.dir. It does not replace
// a longer path that merely begins with one of these paths.
func (f relocator) renamed(text []byte) []byte {
	for _, name := range f.names {
		var out []byte
		for rest := text; ; {
			i := bytes.Index(rest, []byte(name))
			if i < 0 {
				text = append(out, rest...)
				break
			}
			after := rest[i+len(name):]
			out = append(out, rest[:i]...)
			if len(after) > 0 && strings.IndexByte(" \t\r\n/'\":;)", after[0]) < 0 {
				out = append(out, name...)
			} else {
				out = append(out, f.dir...)
			}
			rest = after
		}
	}
	return text
}

// maxLine is the maximum length in bytes of a script's "#!" line on every
// Linux kernel; older kernels truncate a longer line.
const maxLine = 127

// runnable replaces the "#!" line of a Python script if the line is too long
// for Linux or contains spaces. The new first lines make /bin/sh start the
// interpreter. Python parses this shell command as a string, so the script
// ignores it.
func (f relocator) runnable(text []byte) []byte {
	line, rest, found := bytes.Cut(text, []byte("\n"))
	after, script := bytes.CutPrefix(line, []byte("#!"+f.dir+"/bin/python"))
	if !found || !script || len(line) < maxLine && !strings.ContainsAny(f.dir, " \t") {
		return text
	}
	version, options, _ := strings.Cut(strings.TrimSpace(string(after)), " ")
	return append(fmt.Appendf(nil, "#!/bin/sh\n'''exec' \"%s/bin/python%s\" %s \"$0\" \"$@\"\n' '''\n", f.dir, version, options), rest...)
}

// rewrite replaces the content of an existing file, which may be read-only.
func rewrite(file string, text []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if err := os.Chmod(file, info.Mode().Perm()|0o200); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0) // the file exists, so the mode 0 changes nothing
}

// times sets the modification time of each source file to the time recorded in
// its .pyc file. Otherwise Python would ignore the .pyc files, and it cannot
// write new ones in the read-only folder.
func times(at string) error {
	return filepath.WalkDir(at, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || !strings.HasSuffix(file, ".pyc") {
			return err
		}
		source, modified, size, ok := venv.Source(file)
		if !ok {
			return nil
		}
		info, err := os.Lstat(source)
		if err != nil || !info.Mode().IsRegular() || uint32(info.Size()) != size {
			return nil // Python ignores a .pyc file whose source is missing or has another size
		}
		return os.Chtimes(source, modified, modified)
	})
}
