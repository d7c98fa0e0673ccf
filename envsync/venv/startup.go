package venv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// added lists what the environment adds to the interpreter's module path and
// import hooks at startup, through .pth files and sitecustomize.
type added struct {
	Dirs []struct {
		File string `json:"file"` // path of the .pth file or sitecustomize module that adds Dir
		Dir  string `json:"dir"`  // folder that is added to sys.path
	} `json:"dirs"`
	// Mapped maps package names to their folder or file, for packages that are
	// imported through hooks. setuptools and the package editables install
	// such hooks.
	Mapped map[string]string `json:"mapped"`
}

const addedMark = "\nplx-added "

// addedScript is a Python program that runs the interpreter's startup code for
// an environment and records what it adds to sys.path.
const addedScript = `import json, os, site, sys
dirs, mapped = [], {}
def watch(name, file):
    real = getattr(site, name, None)
    def watched(*args):
        before = list(sys.path)
        try:
            return real(*args)
        finally:
            seen = before + [d["dir"] for d in dirs]
            dirs.extend({"file": file(*args), "dir": p} for p in sys.path if p not in seen)
    if real:
        setattr(site, name, watched)
watch("addpackage", lambda folder, name, *more: os.path.join(folder, name))
watch("execsitecustomize", lambda: getattr(sys.modules.get("sitecustomize"), "__file__", None) or "")
site.main()
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        mapped.update(getattr(module, "MAPPING", {}))
for finder in sys.meta_path:
    more = getattr(finder, "_redirections", None)
    if isinstance(more, dict):
        mapped.update(more)
print("\nplx-added " + json.dumps({"dirs": dirs, "mapped": dict((n, str(p)) for n, p in mapped.items())}))`

// watchStart runs addedScript with the environment's interpreter and parses
// its output.
func (v *Venv) watchStart(ctx context.Context) (a added, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("it has not answered within %s", askTime))
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, v.python(), "-E", "-s", "-S", "-c", addedScript)
	// Python runs in the environment's folder, because a .pth file may add a
	// path relative to the working directory. Such a path means nothing on
	// another host.
	cmd.Stderr, cmd.WaitDelay, cmd.Dir = &said, time.Second, v.root
	out, err := cmd.Output()
	_, answer, found := strings.Cut("\n"+string(out), addedMark)
	switch {
	case err != nil && said.Len() > 0:
		return a, errors.New(lastLine(said.String()))
	case err != nil:
		return a, cmp.Or(context.Cause(ctx), err)
	case !found:
		return a, errors.New("the interpreter did not print its module path")
	}
	return a, json.Unmarshal([]byte(answer), &a)
}

// fromStart adds to places the folders in a that plx does not send to the
// hosts. places maps each folder to a description for the user.
func (v *Venv) fromStart(a added, places map[string]string) (notes []string) {
	for _, d := range a.Dirs {
		if filepath.IsAbs(d.Dir) && v.owns(d.File) && !v.has(d.Dir) {
			places[filepath.Clean(d.Dir)] = "a folder that " + filepath.Base(d.File) + " adds to the module path"
		}
	}
	for name, file := range a.Mapped {
		if file = strings.TrimSuffix(file, "/__init__.py"); v.has(file) {
			continue
		}
		dir, found := strings.CutSuffix(strings.TrimSuffix(file, ".py"), "/"+strings.ReplaceAll(name, ".", "/"))
		if !found {
			notes = append(notes, "the package "+name+" is imported from "+file+", which has another name: hosts miss it unless it is installed without -e")
			continue
		}
		places[dir] = "the package " + name
	}
	return notes
}

// owns reports whether a file is inside the environment. The base
// interpreter's folder is not part of the environment.
func (v *Venv) owns(file string) bool {
	for _, name := range v.names {
		if within(name, file) {
			return true
		}
	}
	return false
}
