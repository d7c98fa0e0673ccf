//go:build linux

package program

import (
	"path/filepath"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// Activate returns the environment login with the changes of an activated
// Python virtual environment. If v is nil, Activate returns login unchanged.
// The caller adds the user's own variables later, so they override these
// changes.
func Activate(login []string, v *protocol.Venv) ([]string, error) {
	if v == nil {
		return login, nil
	}
	dir, err := jobfolder.Env(v)
	if err != nil {
		return nil, err
	}
	path, ok := Lookup(login, "PATH")
	if !ok {
		path = defaultPath
	}
	// If PYTHONHOME were set, the virtual environment's interpreter would load
	// another interpreter's standard library.
	return append(Without(login, "PYTHONHOME="), "VIRTUAL_ENV="+dir, "PATH="+filepath.Join(dir, "bin")+":"+path), nil
}
