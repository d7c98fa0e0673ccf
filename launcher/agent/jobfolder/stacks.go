//go:build linux

package jobfolder

import (
	_ "embed" // sitecustomize.py
	"fmt"
	"os"
	"path/filepath"

	"github.com/plx-run/plx/trainer/cluster"
)

// Stacks is where stacks of a job's tasks are, and what Python needs to write its own.
type Stacks struct{ folder Folder }

// StacksOf returns the stacks of a job.
func StacksOf(f Folder) Stacks { return Stacks{f} }

// dir is the folder of the stacks.
func (s Stacks) dir() string { return filepath.Join(string(s.folder), "stacks") }

// File is where the agent writes the stacks of a task of a generation.
func (s Stacks) File(t cluster.Task, generation int) string {
	return filepath.Join(s.dir(), fmt.Sprintf("%s-%d.%d.txt", t.Role, t.Index, generation))
}

// PythonFile is where the Python processes of a task write their stacks.
func (s Stacks) PythonFile(t cluster.Task, generation int) string {
	return filepath.Join(s.dir(), fmt.Sprintf("%s-%d.%d.python", t.Role, t.Index, generation))
}

// Python is a folder for PYTHONPATH, see Prepare.
func (s Stacks) Python() string { return filepath.Join(string(s.folder), "python") }

//go:embed sitecustomize.py
var sitecustomize []byte

// Prepare writes the module that Python imports when it starts in a task. It makes Python
// write its stacks into the task's PythonFile on signals 58 and 57.
func (s Stacks) Prepare() error {
	for _, dir := range []string{s.Python(), s.dir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return replace(filepath.Join(s.Python(), "sitecustomize.py"), sitecustomize)
}
