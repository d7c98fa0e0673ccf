//go:build linux

// Package jobfolder reads and writes the files that an agent keeps on its
// host, most of them in one folder for each job:
//
//	~/.plx/jobs/JOB/HOST/state.json   state of the job on this host; stays after the agent has ended
//	                     secret       the job's secret in hex, until the agent ends
//	                     agent.log    log of watchdog and supervisor
//	                     blobs        checksums of the programs that the job uses, one per line
//	                     manifests    checksums of the folders that the job uses, one per line
//	                     envs         virtual environments that the job uses, one per line
//	                     work/        the working directory that the tasks share, with --workdir
//	                     setup.json   environment changes that --setup has made, until the agent ends
//	                     logs/        output of the tasks
//	                     tasks/       working folder of each task
//	                     metrics/     training metrics of each task, from all generations
//	                     errors/      error files that failing tasks write
//	                     places.json  folders in which tasks have run
//	                     begun.json   for each of these folders, when its first task began
//	                     fetched.json outputs that the user has fetched
//	~/.plx/blobs/SUM                  programs, by checksum
//	~/.plx/files/SU/M                 files and manifests of folders, by checksum
//	~/.plx/files/programs/            programs being received, which move to blobs, and lists of their chunks
//	~/.plx/envs/NAME/                 virtual environments, and interpreters that plx has sent
//	~/.plx/ckpt/NAME/                 checkpoints of the jobs with one name
//	~/.plx/lock                       locked by each agent and by "plx prune --all", see [HomeLock]
//	~/.plx/tidied                     its modification time is that of the last "agent gc"; earlier versions use the name too
//
// Several machines can share a home folder, so the state names the machine
// whose agent wrote it. [LifeOf] reports whether that agent still runs.
package jobfolder

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/envsync/tree/store"
	"github.com/plx-run/plx/internal/atomicfile"
	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Folder is the path of a job's folder on one host, ~/.plx/jobs/JOB/HOST.
type Folder string

// State returns the path of the agent's state file.
func (f Folder) State() string { return filepath.Join(string(f), "state.json") }

// GCEvery is the minimum time between two runs of "agent gc" (removal of
// unused cached files) in one home folder.
const GCEvery = 24 * time.Hour

// LastGC returns the path of the file whose modification time is that of the
// last "agent gc". root is ~/.plx.
func LastGC(root string) string { return filepath.Join(root, "tidied") }

// GCDue reports whether "agent gc" should run again. file describes the file
// that LastGC names.
func GCDue(file fs.FileInfo, now time.Time) bool {
	return file.Size() == 0 || now.Sub(file.ModTime()) >= GCEvery // gc has never run if the file is empty
}

// Secret returns the path of the file with the job's secret.
func (f Folder) Secret() string { return filepath.Join(string(f), "secret") }

// Logs returns the folder of the tasks' log files.
func (f Folder) Logs() string { return filepath.Join(string(f), "logs") }

// Log returns the path of the agent's own log.
func (f Folder) Log() string { return filepath.Join(string(f), "agent.log") }

// Blobs returns the path of the list of blobs (cached programs) that the job
// uses. Pruning keeps the blobs in it.
func (f Folder) Blobs() string { return filepath.Join(string(f), blobsName) }

const blobsName = "blobs"

// Names of the files that list the cached folders (by manifest) and the
// virtual environments that the job uses. Pruning keeps what they list.
const (
	manifestsName = "manifests"
	envsName      = "envs"
)

// Work returns the working directory that all tasks on the host share. It
// exists only for a job with --workdir.
func (f Folder) Work() string { return filepath.Join(string(f), "work") }

// Task returns the working folder of one task.
func (f Folder) Task(t cluster.Task) string {
	return filepath.Join(f.Tasks(), strings.Replace(t.String(), ":", "-", 1))
}

// ErrorFile returns the path at which task t writes why it failed. generation
// is the number of restarts of the job before that.
func (f Folder) ErrorFile(t cluster.Task, generation int) string {
	return filepath.Join(string(f), "errors", fmt.Sprintf("%s-%d.%d.json", t.Role, t.Index, generation))
}

// Job returns the job's id, the last but one element of the path.
func (f Folder) Job() string { return filepath.Base(filepath.Dir(string(f))) }

// Name returns the name of the host's folder, the last element of the path.
func (f Folder) Name() string { return filepath.Base(string(f)) }

// Home returns the user's home folder: the value of $HOME, which must be an
// absolute path.
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

// Of returns the path of a job's folder on one host: ~/.plx/jobs/JOB/NAME,
// where name stands for the host. It rejects names that would lead out of
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

// CheckName returns an error unless name is a single path element that does
// not begin with a dot.
func CheckName(name string) error {
	if name == "" || len(name) > 200 || name[0] == '.' || strings.ContainsAny(name, "/\x00\n") {
		return fmt.Errorf("%q is not a valid name", name)
	}
	return nil
}

// Checkpoints returns the folder of the checkpoints of jobs with the given
// name, which the tasks create. It returns "" for an empty name.
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

// BlobPath returns the path of the cached program (blob) with the given
// checksum.
func BlobPath(sum string) (string, error) {
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return "", fmt.Errorf("%q is not a content hash", sum)
	}
	dir, err := Home()
	return filepath.Join(dir, envsync.BlobPath(sum)), err
}

// Create makes the job's folder and writes the secret. If an earlier agent of
// the job has used the folder, the new agent must not repeat a generation (run
// of all tasks) that the earlier agent may have started. least is the first
// generation that it may run.
func (f Folder) Create(secret []byte) (least int, err error) {
	old, err := f.ReadState()
	switch {
	case err == nil && LifeOf(old) != Dead:
		return 0, fmt.Errorf("job %s already has an agent on this host, pid %d", f.Job(), old.Supervisor)
	case err == nil && old.Supervisor == 0: // the earlier agent never started a supervisor, so it has started no tasks
		least = old.Least
	case err == nil:
		least = max(old.Least, old.Generation+1)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if err := os.MkdirAll(f.Logs(), 0o700); err != nil {
		return 0, fmt.Errorf("make the job's folder: %w", err)
	}
	if err := replace(f.Secret(), []byte(hex.EncodeToString(secret)+"\n")); err != nil {
		return 0, fmt.Errorf("write the job's secret: %w", err)
	}
	return least, nil
}

// replace atomically writes a file with mode 0600.
func replace(path string, content []byte) error { return atomicfile.WriteFile(path, content, 0o600) }

// Files returns this host's cache of files. plx fills it when it sends folders
// to the host.
func Files() (*store.Store, error) {
	dir, err := Root()
	return store.Open(filepath.Join(dir, "files")), err
}

// Programs returns the store that receives programs. Complete programs are
// moved from it to ~/.plx/blobs.
func Programs() (*store.Store, error) {
	dir, err := Root()
	return store.Open(filepath.Join(dir, "files", "programs")).WithExtraContents(filepath.Join(dir, "blobs")), err
}

// Provision creates the working directory that the tasks share, or the working
// folder of each task, and fills it with the files that the user sent. It does
// not change a folder that exists, so that tasks of a later generation find
// the files that earlier tasks wrote.
func (f Folder) Provision(ctx context.Context, spec protocol.Spec, tasks []protocol.TaskSpec) error {
	if spec.Workdir != "" && len(tasks) > 0 {
		id, err := tree.ParseSum(spec.Workdir)
		if err == nil {
			err = f.Build(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("make the working directory: %w", err)
		}
	}
	if err := os.MkdirAll(f.Tasks(), 0o700); err != nil {
		return err
	}
	for _, t := range tasks {
		if err := furnish(ctx, f.Task(t.Task), spec.Copied); err != nil {
			return fmt.Errorf("make the folder of %s: %w", t.Task, err)
		}
	}
	return nil
}

// furnish creates the folder dir with the files of a manifest (list of files).
// If manifest is "", the folder stays empty.
func furnish(ctx context.Context, dir, manifest string) error {
	if manifest == "" {
		return os.MkdirAll(dir, 0o700)
	}
	id, err := tree.ParseSum(manifest)
	if err != nil {
		return err
	}
	files, err := Files()
	if err != nil {
		return err
	}
	err = files.Build(ctx, id, dir, nil)
	if errors.As(err, new(*tree.DamagedError)) {
		err = fmt.Errorf("%w: launch again to send the files", err)
	}
	return err
}

// RecordBlobs writes the lists of cached programs, folders and virtual
// environments that the job uses, so that pruning keeps them. The list of
// programs includes this executable.
func (f Folder) RecordBlobs(spec protocol.Spec) error {
	sums := []string{spec.Command.Blob, ownSum()}
	sums = slices.DeleteFunc(sums, func(sum string) bool { return len(sum) != 64 }) // remove empty checksums, which stand for programs that plx did not send
	if err := replace(f.Blobs(), []byte(strings.Join(sums, "\n")+"\n")); err != nil {
		return fmt.Errorf("record the job's files: %w", err)
	}
	manifests, envs := []string{spec.Workdir, spec.Copied}, []string{}
	if v := spec.Command.Venv; v != nil {
		manifests, envs = append(manifests, v.Manifests...), append(envs, v.Folder, v.Base)
	}
	for name, words := range map[string][]string{manifestsName: manifests, envsName: envs} {
		text := strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "\n")
		if text == "" {
			continue
		}
		if err := replace(filepath.Join(string(f), name), []byte(text+"\n")); err != nil {
			return fmt.Errorf("record the job's files: %w", err)
		}
	}
	return nil
}

// ownSum returns the file name of this executable, which is its checksum if
// plx has sent it.
func ownSum() string {
	path, _ := os.Executable() // ignore the error: os.Executable does not fail on Linux
	return filepath.Base(path)
}

// UsedBlobs returns the checksums of the cached programs that jobs under
// ~/.plx use, and that of this executable. It ignores the job folders in
// leaving, which are about to be removed.
func UsedBlobs(leaving []Folder) (map[string]bool, error) {
	used, err := words(blobsName, leaving)
	if err == nil {
		used[ownSum()] = true // the next job will use this executable too
	}
	return used, err
}

// UsedManifests returns the manifests of the cached folders that jobs under
// ~/.plx use. It ignores the job folders in leaving, which are about to be
// removed.
func UsedManifests(leaving []Folder) (ids []tree.Sum, err error) {
	used, err := words(manifestsName, leaving)
	if err != nil {
		return nil, err
	}
	for sum := range used {
		id, err := tree.ParseSum(sum)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Envs returns the folder that contains all installed virtual environments.
func Envs() (string, error) {
	dir, err := Root()
	return filepath.Join(dir, "envs"), err
}

// Env returns the folder of an installed virtual environment. It fails if that
// folder does not exist, because the tasks would then run with the wrong
// interpreter.
func Env(v *protocol.Venv) (string, error) {
	if err := CheckName(v.Folder); err != nil {
		return "", err
	}
	all, err := Envs()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(all, v.Folder)
	if _, err := os.Stat(filepath.Join(dir, "bin")); err != nil {
		return "", fmt.Errorf("the job's virtual environment is not on this host: %w", err)
	}
	return dir, nil
}

// UsedEnvs returns the names of the virtual environments that jobs under
// ~/.plx use. It ignores the job folders in leaving, which are about to be
// removed.
func UsedEnvs(leaving []Folder) (map[string]bool, error) { return words(envsName, leaving) }

// words returns the set of all words in the files with the given name in all
// job folders, except the folders in leaving.
func words(name string, leaving []Folder) (map[string]bool, error) {
	files, err := each(name)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, file := range files {
		if slices.Contains(leaving, Folder(filepath.Dir(file))) {
			continue
		}
		text, err := bounded.ReadFile(file, bounded.Words)
		if err != nil {
			return nil, fmt.Errorf("read which %s a job uses: %w", name, err)
		}
		for word := range strings.FieldsSeq(string(text)) {
			all[word] = true
		}
	}
	return all, nil
}
