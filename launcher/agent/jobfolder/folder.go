//go:build linux

// Package jobfolder is what an agent keeps of a job on its host:
//
//	~/.plx/jobs/JOB/HOST/state.json   what the agent knows; it outlives the agent
//	                     secret       the job's secret in hex, until the agent ends
//	                     agent.log    what watchdog and supervisor report
//	                     blobs        content hashes that the job uses, one per line
//	                     logs/        the output of the tasks
//	                     tasks/       their working folders
//	~/.plx/blobs/SUM                  programs and archives, by content
//	~/.plx/ckpt/NAME/                 checkpoints of the jobs of one name
//
// Several machines can share a home folder, so a state names the machine whose
// agent wrote it. [Life] tells whether that agent still runs.
package jobfolder

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/trainer/cluster"
)

// Folder is the path of the folder of one host and job, ~/.plx/jobs/JOB/HOST.
type Folder string

// State is the path of the agent's state.
func (f Folder) State() string { return filepath.Join(string(f), "state.json") }

// Secret is the path of the job's secret.
func (f Folder) Secret() string { return filepath.Join(string(f), "secret") }

// Logs is the folder of the tasks' output.
func (f Folder) Logs() string { return filepath.Join(string(f), "logs") }

// Log is the path of the agent's own log.
func (f Folder) Log() string { return filepath.Join(string(f), "agent.log") }

// Blobs is the path of the list of blobs that the job uses. "agent prune" reads
// it.
func (f Folder) Blobs() string { return filepath.Join(string(f), blobsName) }

const blobsName = "blobs"

// Task is the working folder of a task.
func (f Folder) Task(t cluster.Task) string {
	return filepath.Join(string(f), "tasks", strings.Replace(t.String(), ":", "-", 1))
}

// Job is the job's name, the last but one element of the path.
func (f Folder) Job() string { return filepath.Base(filepath.Dir(string(f))) }

// Name is the host's folder name, the last element of the path.
func (f Folder) Name() string { return filepath.Base(string(f)) }

// Home returns the user's home folder, which is $HOME everywhere in plx.
func Home() (string, error) {
	dir := os.Getenv("HOME")
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("HOME is %q, want the absolute path of the home folder", dir)
	}
	return dir, nil
}

// Root returns ~/.plx.
func Root() (string, error) {
	dir, err := Home()
	return filepath.Join(dir, ".plx"), err
}

// Of returns the folder of a host and job. It refuses names that lead out of
// ~/.plx/jobs.
func Of(job, name string) (Folder, error) {
	for _, element := range []string{job, name} {
		if err := CheckName(element); err != nil {
			return "", err
		}
	}
	dir, err := Root()
	return Folder(filepath.Join(dir, "jobs", job, name)), err
}

// CheckName refuses what is not one visible element of a path.
func CheckName(name string) error {
	if name == "" || len(name) > 200 || name[0] == '.' || strings.ContainsAny(name, "/\x00\n") {
		return fmt.Errorf("%q is not a valid name", name)
	}
	return nil
}

// Checkpoints returns the folder of the checkpoints that jobs keep under a name,
// or "" without a name. The tasks create it.
func Checkpoints(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if err := CheckName(name); err != nil {
		return "", err
	}
	dir, err := Root()
	return filepath.Join(dir, "ckpt", name), err
}

// BlobPath returns the path of the blob with a content hash.
func BlobPath(sum string) (string, error) {
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return "", fmt.Errorf("%q is not a content hash", sum)
	}
	dir, err := Home()
	return filepath.Join(dir, envsync.BlobPath(sum)), err
}
