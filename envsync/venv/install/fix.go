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

// fixer changes what in a folder depends on its path.
type fixer struct {
	dir         string   // absolute path that the folder will have
	names       []string // absolute paths by which its files may name it now
	links       []string // paths in it that become links to the interpreter
	interpreter string   // absolute path; "": the folder is that of an interpreter
	program     string   // path in it of an interpreter; "": it has none
}

// run fixes a folder, which has the path at for now.
func (f fixer) run(at string) error {
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

// settings writes where the interpreter is into pyvenv.cfg.
func (f fixer) settings(at string) error {
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

// maxScript bounds a script, in bytes. Larger files in bin are programs.
const maxScript = 1 << 20

// scripts rewrites the text files in bin: the first lines of scripts, and activate.
func (f fixer) scripts(bin string) error {
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

// renamed replaces the folder's old names by its path. A longer name that begins with
// an old one is another folder's.
func (f fixer) renamed(text []byte) []byte {
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

// maxLine is the length of the first line of a script that every Linux reads.
const maxLine = 127

// runnable changes the first line of a script of Python that Linux would cut off: a
// shell runs the interpreter then. Python takes that line for a string.
func (f fixer) runnable(text []byte) []byte {
	line, rest, found := bytes.Cut(text, []byte("\n"))
	after, script := bytes.CutPrefix(line, []byte("#!"+f.dir+"/bin/python"))
	if !found || !script || len(line) < maxLine && !strings.ContainsAny(f.dir, " \t") {
		return text
	}
	version, options, _ := strings.Cut(strings.TrimSpace(string(after)), " ")
	return append(fmt.Appendf(nil, "#!/bin/sh\n'''exec' \"%s/bin/python%s\" %s \"$0\" \"$@\"\n' '''\n", f.dir, version, options), rest...)
}

// rewrite replaces the content of a file that Build has made.
func rewrite(file string, text []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if err := os.Chmod(file, info.Mode().Perm()|0o200); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0) // it exists
}

// times gives sources the times that their compiled files have noted, so that Python
// uses those: it cannot write others.
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
			return nil // Python compiles it again
		}
		return os.Chtimes(source, modified, modified)
	})
}
