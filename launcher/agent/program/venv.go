//go:build linux

package program

import (
	"path/filepath"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// Activate returns the login's environment as it is in a virtual environment. Nil is
// none. What the user sets counts more: the caller adds it later.
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
	// PYTHONHOME would make the interpreter take another one's library.
	return append(Without(login, "PYTHONHOME="), "VIRTUAL_ENV="+dir, "PATH="+filepath.Join(dir, "bin")+":"+path), nil
}
