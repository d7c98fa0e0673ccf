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

// added is what the start of an interpreter in an environment does, by .pth files in any of
// their forms and by sitecustomize.
type added struct {
	Dirs []struct {
		File string `json:"file"` // that adds it
		Dir  string `json:"dir"`  // as in sys.path
	} `json:"dirs"`
	// Mapped has the folders or files of packages that are imported by hooks, as setuptools
	// and the package editables install them, by the names of the packages.
	Mapped map[string]string `json:"mapped"`
}

const addedMark = "\nplx-added "

// addedScript starts an environment as the interpreter does, and watches.
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

// watchStart starts the environment's interpreter.
func (v *Venv) watchStart(ctx context.Context) (a added, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("it has not answered within %s", askTime))
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, v.python(), "-E", "-s", "-S", "-c", addedScript)
	cmd.Stderr, cmd.WaitDelay, cmd.Dir = &said, time.Second, v.root // what a .pth file takes from the present folder is no path elsewhere
	out, err := cmd.Output()
	_, answer, found := strings.Cut("\n"+string(out), addedMark)
	switch {
	case err != nil && said.Len() > 0:
		return a, errors.New(lastLine(said.String()))
	case err != nil:
		return a, cmp.Or(context.Cause(ctx), err)
	case !found:
		return a, errors.New("it did not tell")
	}
	return a, json.Unmarshal([]byte(answer), &a)
}

// fromStart adds to places what the start of the interpreter finds outside of what is sent.
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

// owns reports whether a file is one of the environment, not one of the interpreter's folder.
func (v *Venv) owns(file string) bool {
	for _, name := range v.names {
		if within(name, file) {
			return true
		}
	}
	return false
}
