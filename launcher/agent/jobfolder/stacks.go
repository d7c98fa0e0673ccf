//go:build linux

package jobfolder

import (
	_ "embed" // go:embed below needs this package
	"fmt"
	"os"
	"path/filepath"

	"github.com/plx-run/plx/trainer/cluster"
)

// Stacks has the paths of the files with the tasks' call stacks, and of a
// Python module that writes the stacks of Python processes.
type Stacks struct{ folder Folder }

// StacksOf returns the paths for one job.
func StacksOf(f Folder) Stacks { return Stacks{f} }

// dir returns the folder of the stack files.
func (s Stacks) dir() string { return filepath.Join(string(s.folder), "stacks") }

// File returns the path at which the agent writes the stacks of a task.
func (s Stacks) File(t cluster.Task, generation int) string {
	return filepath.Join(s.dir(), fmt.Sprintf("%s-%d.%d.txt", t.Role, t.Index, generation))
}

// PythonFile returns the path to which the Python processes of a task append
// their stacks.
func (s Stacks) PythonFile(t cluster.Task, generation int) string {
	return filepath.Join(s.dir(), fmt.Sprintf("%s-%d.%d.python", t.Role, t.Index, generation))
}

// Python returns the folder of the module sitecustomize.py, for the tasks'
// PYTHONPATH.
func (s Stacks) Python() string { return filepath.Join(string(s.folder), "python") }

//go:embed sitecustomize.py
var sitecustomize []byte

// Prepare writes the module sitecustomize.py, which Python imports at its
// start. The module makes a Python process append its stacks to the task's
// PythonFile when it receives signal 57 or 58.
func (s Stacks) Prepare() error {
	for _, dir := range []string{s.Python(), s.dir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return replace(filepath.Join(s.Python(), "sitecustomize.py"), sitecustomize)
}
