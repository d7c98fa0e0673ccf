package agent

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/trainer/cluster"
)

// folder is the place of one host and job: ~/.plx/jobs/<job>/<folder>.
type folder string

func (f folder) state() string  { return filepath.Join(string(f), "state.json") }
func (f folder) secret() string { return filepath.Join(string(f), "secret") }
func (f folder) logs() string   { return filepath.Join(string(f), "logs") }
func (f folder) log() string    { return filepath.Join(string(f), "agent.log") }

// blobs lists the content hashes that the job uses, a line each, for prune.
func (f folder) blobs() string { return filepath.Join(string(f), "blobs") }

// task is the working folder of a task.
func (f folder) task(t cluster.Task) string {
	return filepath.Join(string(f), "tasks", strings.Replace(t.String(), ":", "-", 1))
}

// job and name are the last two elements of the path.
func (f folder) job() string  { return filepath.Base(filepath.Dir(string(f))) }
func (f folder) name() string { return filepath.Base(string(f)) }

// home returns the home folder, which is $HOME everywhere in plx.
func home() (string, error) {
	dir := os.Getenv("HOME")
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("HOME is %q, want the absolute path of the home folder", dir)
	}
	return dir, nil
}

// root returns ~/.plx.
func root() (string, error) {
	dir, err := home()
	return filepath.Join(dir, ".plx"), err
}

// folderOf returns the folder of a host and job. The names come from
// elsewhere and must not lead out of ~/.plx/jobs.
func folderOf(job, name string) (folder, error) {
	for _, element := range []string{job, name} {
		if err := checkElement(element); err != nil {
			return "", err
		}
	}
	dir, err := root()
	return folder(filepath.Join(dir, "jobs", job, name)), err
}

func checkElement(name string) error {
	if name == "" || len(name) > 200 || name[0] == '.' || strings.ContainsAny(name, "/\x00\n") {
		return fmt.Errorf("%q is no name of a job or host folder", name)
	}
	return nil
}

// blobPath returns where a blob lies.
func blobPath(sum string) (string, error) {
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return "", fmt.Errorf("%q is no content hash", sum)
	}
	dir, err := home()
	return filepath.Join(dir, envsync.BlobPath(sum)), err
}

// create makes the folder with what is in it before the agent runs. A folder
// that an agent has left is used again, for generations after those that it
// may have run: least is the first of them.
func (f folder) create(secret []byte) (least int, err error) {
	old, err := readState(f)
	switch {
	case err == nil && alive(old) != dead:
		return 0, fmt.Errorf("job %s already has an agent on this host, pid %d", f.job(), old.Supervisor)
	case err == nil && old.Supervisor == 0: // it was not started, and has run nothing
		least = old.Least
	case err == nil:
		least = max(old.Least, old.Generation+1)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if err := os.MkdirAll(f.logs(), 0o700); err != nil {
		return 0, fmt.Errorf("make the job's folder: %w", err)
	}
	if err := replace(f.secret(), []byte(hex.EncodeToString(secret)+"\n")); err != nil {
		return 0, fmt.Errorf("write the job's secret: %w", err)
	}
	return least, nil
}

// replace writes a file for its owner only, whole or not at all.
func replace(path string, content []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-"+hostPid()+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary.Name()) // the first error says more
		}
	}()
	_, err = temporary.Write(content)
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// hostPid makes temporary names of hosts that share a home differ.
func hostPid() string {
	name, err := os.Hostname()
	if err != nil {
		name = "host" // the random part of the name still differs
	}
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(name, "/", "-"), os.Getpid())
}
