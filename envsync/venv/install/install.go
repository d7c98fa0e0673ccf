//go:build linux

// Package install creates virtual environments on a host from the contents in
// its store:
//
//	ready, err := install.Environment(ctx, "/home/u/.plx/envs", files, request)
//
// Equal environments share one folder, also between jobs, so the folder is
// read-only. A folder that exists is complete.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/envsync/tree/store"
	"github.com/plx-run/plx/envsync/venv"
)

// Environment installs an environment below the folder root, unless it is
// installed already. It returns false if plx must first send missing file
// contents to the host's store. It returns an error if this host cannot run
// the environment.
func Environment(ctx context.Context, root string, files *store.Store, r venv.Request) (ready bool, err error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return false, err
	}
	i := &installer{root: root, files: files, request: r, dir: filepath.Join(root, r.Folder())}
	installed := i.there(i.dir) && (r.Base == "" || i.there(i.baseDir()))
	// If the installed environment works, plx need not search for an
	// interpreter, so an interpreter is started only once.
	if installed && i.check(ctx) == nil {
		return true, nil
	}
	if err := i.findInterpreter(ctx); err != nil {
		return false, err
	}
	if installed {
		return true, i.check(ctx)
	}
	if !r.Stored {
		return false, nil
	}
	if err := i.install(ctx); err != nil {
		return false, err
	}
	return true, i.check(ctx)
}

type installer struct {
	root    string // folder that contains all environments
	files   *store.Store
	request venv.Request

	dir         string // absolute path of the environment
	interpreter string // absolute path of the interpreter on this host
}

// baseDir returns the folder for the interpreter's installation, if plx sends
// the interpreter to the host.
func (i *installer) baseDir() string { return filepath.Join(i.root, i.request.BaseFolder()) }

// there reports whether the folder dir exists. It sets the folder's
// modification time to now, so that "plx prune" keeps the folder.
func (i *installer) there(dir string) bool {
	_, err := os.Stat(dir)
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // an error does not matter: plx prune also keeps the environments that the records of jobs name
	return err == nil
}

// findInterpreter finds a suitable interpreter on this host. If plx sends the
// interpreter, findInterpreter computes the path of its future installation.
func (i *installer) findInterpreter(ctx context.Context) error {
	r := i.request
	if r.Loader != "" {
		if _, err := os.Stat(r.Loader); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the environment is for %s, whose loader %s is not on this host: it has another C library", r.Python, r.Loader)
		}
	}
	if r.Base != "" {
		if !filepath.IsLocal(r.Interpreter) {
			return fmt.Errorf("the path %q of the interpreter leads out of its folder", r.Interpreter)
		}
		i.interpreter = filepath.Join(i.baseDir(), r.Interpreter)
		return nil
	}
	candidates := []string{r.Interpreter}
	if other, err := exec.LookPath(filepath.Base(r.Interpreter)); err == nil {
		candidates = append(candidates, other)
	}
	var found []string
	for _, candidate := range candidates {
		p, err := venv.Ask(ctx, candidate)
		if err == nil && r.Python.Fits(p) {
			i.interpreter = candidate
			return nil
		}
		if err == nil {
			found = append(found, fmt.Sprintf("%s is %s", candidate, p))
		}
	}
	return missing(ctx, r, found)
}

// missing returns an error that names the required interpreter and the
// interpreters that this host has.
func missing(ctx context.Context, r venv.Request, found []string) error {
	if len(found) == 0 {
		found = []string{fmt.Sprintf("there is no %s", r.Interpreter)}
		if other, err := exec.LookPath("python3"); err == nil {
			if p, err := venv.Ask(ctx, other); err == nil {
				found = append(found, fmt.Sprintf("its %s is %s", other, p))
			}
		}
	}
	text := found[0]
	if len(found) > 1 && found[1] != text {
		text += ", and " + found[1]
	}
	return fmt.Errorf("the environment is for %s, and on this host %s", r.Python, text)
}

// check runs the installed environment's interpreter and returns an error
// unless its version fits the packages.
func (i *installer) check(ctx context.Context) error {
	p, err := venv.Ask(ctx, filepath.Join(i.dir, "bin", "python"))
	if err == nil && !i.request.Python.Fits(p) {
		err = fmt.Errorf("its interpreter has become %s since it was installed", p)
	}
	if err != nil {
		return fmt.Errorf("the environment is for %s: %w", i.request.Python, err)
	}
	return nil
}

// install creates the folder of the environment and, if plx sends the
// interpreter, the folder of the interpreter. It leaves existing folders
// unchanged.
func (i *installer) install(ctx context.Context) error {
	r := i.request
	if r.Base != "" {
		fix := relocator{dir: i.baseDir(), names: r.BaseNames, program: r.Interpreter}
		if err := i.build(ctx, r.Base, i.baseDir(), fix.run); err != nil {
			return fmt.Errorf("install the interpreter: %w", err)
		}
	}
	fix := relocator{dir: i.dir, names: r.Names, links: r.Links, interpreter: i.interpreter}
	if err := i.build(ctx, r.Manifest, i.dir, fix.run); err != nil {
		return fmt.Errorf("install the environment: %w", err)
	}
	return nil
}

// build creates a folder from a manifest and makes it read-only. If two
// processes create the same folder at once, both succeed.
func (i *installer) build(ctx context.Context, manifest, dir string, finish func(string) error) error {
	id, err := tree.ParseSum(manifest)
	if err != nil {
		return err
	}
	// Flush the content to disk before the folder gets its final name: later
	// launches do not verify the content, even after a power cut.
	flushed := func(at string) error { return errors.Join(finish(at), flush(at)) }
	if err := i.files.Build(ctx, id, dir, flushed); err != nil {
		if _, gone := os.Stat(dir); gone != nil {
			return err
		}
	}
	return protect(dir)
}

// flush writes all data of the file system that contains dir to disk (syncfs).
func flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading: an error of Close does not matter
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("flush the file system: %w", err)
	}
	return nil
}

// protect removes write permission from all files and folders in dir.
func protect(dir string) error {
	return filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return os.Chmod(file, info.Mode().Perm()&^0o222)
	})
}

// Unprotect makes the folders in dir writable, so that the caller can remove
// them. It returns no error, because the removal would fail and report the
// reason.
func Unprotect(dir string) {
	_ = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = os.Chmod(file, 0o700) // on an error the removal that follows reports the reason
		}
		return nil
	})
}
